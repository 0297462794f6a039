"""The transaction that an event is written in: the caller's own, on the outbox's database."""

from __future__ import annotations

import traceback

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.asyncio import async_unsafe

from django_outbox.databases import outbox_alias
from django_outbox.exceptions import NotInTransaction


def open_transaction(topic: str) -> str:
    """The alias that outbox rows go to, which has a transaction open.

    Raises ``NotInTransaction`` where it has none, and Django's ``SynchronousOnlyOperation`` in a
    coroutine, which never has one.
    """
    alias = outbox_alias()
    connection = connections[alias]
    if not connection.in_atomic_block:
        _refuse_synchronously(connection, topic)
    return alias


@async_unsafe(
    "enqueue writes in the transaction of the business change, which is synchronous: call the"
    " function that opens transaction.atomic() through sync_to_async."
)
def _refuse_synchronously(connection: BaseDatabaseWrapper, topic: str) -> None:
    # With autocommit off, every statement is in a transaction that the caller commits.
    if connection.get_autocommit():
        in_on_commit = _runs_commit_hooks(connection)
        raise NotInTransaction(topic, connection.alias, in_on_commit=in_on_commit)


def _runs_commit_hooks(connection: BaseDatabaseWrapper) -> bool:
    """Whether the caller is an ``on_commit`` callback of this connection.

    Read off the stack, on the way to an error: Django has a flag for it, but a callback that raised
    leaves it set.
    """
    hooks = getattr(BaseDatabaseWrapper.run_and_clear_commit_hooks, "__code__", None)
    return any(
        frame.f_code is hooks and frame.f_locals.get("self") is connection
        for frame, _ in traceback.walk_stack(None)
    )
