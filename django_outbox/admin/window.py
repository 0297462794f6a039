"""Lists that end early: from an index, or from the rows that come first along one.

What no index serves is looked for among the first ``WINDOW`` rows of the list's own order, so that a
page costs the same whatever lies behind them. Where the window ends is asked in one statement before
the list; see docs/decisions/0016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import BooleanField, Case, Q, QuerySet, When

from django_outbox.admin.asked import Asked
from django_outbox.admin.states import WAITING, State, order_of
from django_outbox.databases.clock import DatabaseNow, as_model_value
from django_outbox.databases.estimates import compiled
from django_outbox.databases.held_back import HeldBack
from django_outbox.models import OutboxMessageQuerySet, Status

#: Rows that are looked through where no index leads to those that are asked for.
WINDOW = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """What was asked for, in the list's order."""

    messages: OutboxMessageQuerySet
    is_cut_off: bool
    """There are more rows than are looked through: some that match may be missing."""


def find(messages: OutboxMessageQuerySet, asked: Asked, *, always_cut: bool = False) -> Found:
    """Those of the messages that are asked for; ``always_cut``: at most a window of them.

    Takes one statement beside the list itself, or none where an index knows all that is asked for.
    """
    found = asked.narrow(messages)
    if asked.is_searched:
        return _searched(messages, found, asked)
    order = order_of(asked.state)
    if not (asked.is_sifted or asked.state is State.BLOCKED or always_cut):
        return Found(found.order_by(*order), is_cut_off=False)
    rows = messages
    if asked.state is State.BLOCKED:
        rows = messages.pending()
    elif asked.state is not None:
        rows = asked.state.messages(messages)
    [end] = _ends(messages.db, _Walk(rows, order))
    return Found(found.filter(end or Q()).order_by(*order), is_cut_off=end is not None)


def with_state(messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
    """Each with what ``state_of`` looks at: the database's time, and whether order holds it back."""
    held = Case(When(HeldBack(), then=True), default=False, output_field=BooleanField())
    return messages.annotate(clock=DatabaseNow(), is_held_back=held)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Rows in the order of an index that holds them."""

    rows: OutboxMessageQuerySet
    order: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.order[0].lstrip("-")

    @property
    def end(self) -> QuerySet[Any, Any]:
        """The key of the first row behind the window, if there is one."""
        keys: QuerySet[Any, Any] = self.rows.order_by(*self.order).values(self.key)
        return keys[WINDOW : WINDOW + 1]

    def until(self, end: Any) -> Q:
        """The rows up to that key."""
        return Q(**{f"{self.key}__{'gte' if self.order[0].startswith('-') else 'lte'}": end})


def _searched(messages: OutboxMessageQuerySet, found: OutboxMessageQuerySet, asked: Asked) -> Found:
    """The messages of one thing, request or person, the newest first.

    Tags are indexed whatever the state. Aggregates and correlation ids are indexed once a message is
    settled; pending ones are looked for among those that are due soonest.
    """
    if asked.tags:
        return Found(found.order_by("-id"), is_cut_off=False)
    settled = ~Q(status=Status.PENDING)
    for column in ("aggregate_id", "correlation_id"):
        if getattr(asked, column):
            settled &= ~Q(**{column: ""})  # said once more: it is the condition of the index
    walks = (
        _Walk(asked.of_one_thing(messages).filter(settled), order_of(None)),
        _Walk(messages.pending(), order_of(State.READY)),
    )
    ends = _ends(messages.db, *walks)
    of_settled, of_pending = settled & (ends[0] or Q()), Q(status=Status.PENDING) & (ends[1] or Q())
    if asked.state is None:
        found = found.filter(of_settled | of_pending)
    else:
        found = found.filter(of_pending if asked.state in WAITING else of_settled)
    return Found(found.order_by("-id"), is_cut_off=any(ends))


def _ends(alias: str, *walks: _Walk) -> list[Q | None]:
    """Where the window of each walk ends, asked in one statement; None: it holds all of its rows."""
    connection = connections[alias]
    parts = [compiled(walk.end) for walk in walks]
    columns = ", ".join(f"({sql})" for sql, _ in parts)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns}", [param for _, params in parts for param in params])
        keys = cursor.fetchone()
    return [
        None if key is None else walk.until(key if walk.key == "id" else as_model_value(key))
        for walk, key in zip(walks, keys, strict=True)
    ]
