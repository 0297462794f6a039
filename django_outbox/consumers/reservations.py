"""A transaction of its own, for what must be committed before anything else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import transaction

from django_outbox.exceptions import InTransaction


@contextmanager
def own_transaction(alias: str, remedy: str) -> Iterator[None]:
    """A transaction that is committed when the block ends; the one around a ``TestCase`` passes.

    Raises ``InTransaction``, with what to do about it, where another one is open.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(transaction.atomic(using=alias, durable=True))
        except RuntimeError:
            raise InTransaction(alias, remedy) from None
        yield
