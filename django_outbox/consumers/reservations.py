"""Reservations: rows that are committed before the work they announce begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet

from django_outbox.exceptions import InTransaction

M = TypeVar("M", bound=Model)


def insert_if_missing(rows: QuerySet[M], values: dict[str, Any], remedy: str) -> bool:
    """Commit a new row unless ``rows`` holds one already; whether it was new.

    The conflict ends its transaction. Locking the row that was there in the same one deadlocks on
    MySQL, where everybody who lost the race holds a shared lock on it already.
    """
    if rows.exists():
        return False
    try:
        with own_transaction(rows.db, remedy):
            rows.model._default_manager.using(rows.db).create(**values)
    except IntegrityError:
        return False
    return True


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
