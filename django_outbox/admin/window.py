"""Lists that end early: from an index, or from the rows that come first along one.

What no index serves is looked for among the first ``WINDOW`` rows of the list's own order, so that a
page costs the same whatever lies behind them. The window is a subquery with a LIMIT, not a condition on
a range: a planner that is wrong about the range would read the rest of the table for it. See
docs/decisions/0016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import BooleanField, Case, Q, QuerySet, When

from django_outbox.admin.asked import Asked
from django_outbox.admin.states import WAITING, State, order_of
from django_outbox.databases.clock import DatabaseNow
from django_outbox.databases.estimates import compiled
from django_outbox.databases.held_back import HeldBack
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet, Status

#: Rows that are looked through where no index leads to those that are asked for.
WINDOW = 100_000

#: All that may be asked about a message; its payload and its headers are not.
_COLUMNS = tuple(
    field.attname
    for field in OutboxMessage._meta.concrete_fields
    if field.attname not in {"payload", "headers"}
)


def is_indexed(asked: Asked) -> bool:
    """Whether an index knows the whole list, so that it can be counted and paged through as it is."""
    if asked.tags:
        return not (asked.aggregate_id or asked.correlation_id)
    return not (asked.is_searched or asked.is_sifted or asked.state is State.BLOCKED)


def listed(messages: OutboxMessageQuerySet, asked: Asked) -> OutboxMessageQuerySet:
    """Those of the messages that are asked for, in the list's order; where an index knows them."""
    order = order_of(None) if asked.is_searched else order_of(asked.state)
    return asked.narrow(messages).order_by(*order)


@dataclass(frozen=True, slots=True)
class Picked:
    """What was found in the window, in the list's order."""

    rows: tuple[tuple[int, str], ...]
    """Primary keys and topics."""
    is_cut_off: bool
    """There are more rows than were looked through: some that match may be missing."""

    @property
    def ids(self) -> list[int]:
        """The primary keys."""
        return [pk for pk, _topic in self.rows]


def pick(messages: OutboxMessageQuerySet, asked: Asked, *conditions: Q, most: int) -> Picked:
    """At most so many of the messages that are asked for and meet the conditions. Two statements.

    The conditions are looked at in the window, whose end they do not move.
    """
    walks = _walks(messages, asked)
    order = order_of(None) if len(walks) > 1 or asked.is_searched else order_of(asked.state)
    wanted = asked.narrow(messages).filter(*conditions)
    connection = connections[messages.db]
    ends = [compiled(walk.values("pk")[WINDOW : WINDOW + 1]) for walk in walks]
    columns = ", ".join(f"({sql})" for sql, _ in ends)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns}", [param for _, params in ends for param in params])
        is_cut_off = any(end is not None for end in cursor.fetchone())
        cursor.execute(*_in_window(walks, wanted, order, most))
        return Picked(tuple(cursor.fetchall()), is_cut_off)


def with_state(messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
    """Each with what ``state_of`` looks at: the database's time, and whether order holds it back."""
    held = Case(When(HeldBack(), then=True), default=False, output_field=BooleanField())
    return messages.annotate(clock=DatabaseNow(), is_held_back=held)


def _walks(messages: OutboxMessageQuerySet, asked: Asked) -> list[OutboxMessageQuerySet]:
    """The rows to look through, each in the order of an index that holds them."""
    if asked.is_searched:
        return _walks_of_one_thing(messages, asked)
    rows = messages if asked.state is None else asked.state.whole(messages)
    return [rows.order_by(*order_of(asked.state))]


def _walks_of_one_thing(
    messages: OutboxMessageQuerySet, asked: Asked
) -> list[OutboxMessageQuerySet]:
    if not (asked.aggregate_id or asked.correlation_id):
        return [messages.filter(index_tag__in=asked.tags).order_by("-id")]
    # Aggregates and correlation ids are indexed once a message is settled. Pending ones are looked for
    # among those that are due soonest.
    settled = asked.of_one_thing(messages).exclude(status=Status.PENDING)
    for column in ("aggregate_id", "correlation_id"):
        if getattr(asked, column):
            settled = settled.exclude(**{column: ""})  # once more: it is the index's condition
    pending = messages.pending().order_by(*order_of(State.READY))
    if asked.state is None:
        return [settled.order_by("-id"), pending]
    return [pending] if asked.state in WAITING else [settled.order_by("-id")]


def _in_window(
    walks: Sequence[OutboxMessageQuerySet],
    wanted: OutboxMessageQuerySet,
    order: Sequence[str],
    most: int,
) -> tuple[str, list[Any]]:
    """SQL of the wanted rows within the windows.

    The windows stand in the place of the table and under its name, so that the conditions of the
    queryset, as Django writes them, are about their rows.
    """
    connection = connections[wanted.db]
    quote = connection.ops.quote_name
    windows, params = list[str](), list[Any]()
    for number, walk in enumerate(walks):
        rows: QuerySet[Any, Any] = walk.values(*_COLUMNS)[:WINDOW]
        sql, its_params = compiled(rows)
        windows.append(f"SELECT * FROM ({sql}) AS walk{number}")
        params += its_params
    compiler = wanted.query.get_compiler(wanted.db)
    condition, its_params = compiler.compile(wanted.query.where)
    params += its_params
    ordering = ", ".join(
        f"{quote(name.lstrip('-'))} {'DESC' if name.startswith('-') else 'ASC'}" for name in order
    )
    text = (
        f"SELECT {quote('id')}, {quote('topic')}"
        f" FROM ({' UNION ALL '.join(windows)}) AS {quote(OutboxMessage._meta.db_table)}"
        f" WHERE {condition or '1 = 1'} ORDER BY {ordering} LIMIT {most:d}"
    )
    return text, params
