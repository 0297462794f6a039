"""How many messages are in which state: counted where they are few, estimated where they are many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from django.db import connections
from django.db.models import QuerySet

from django_outbox.databases.clock import as_moment, sql_of_now
from django_outbox.databases.estimates import compiled, estimated_rows
from django_outbox.databases.held_back import HeldBack
from django_outbox.models import OutboxMessageQuerySet

#: Rows of one state that are counted; each takes about a microsecond, from an index.
COUNTED = 10_000

_Query: TypeAlias = QuerySet[Any, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages are in a state."""

    number: int
    is_estimate: bool = False
    """There are more than are counted: the number is the database's estimate, or just the least."""

    def __str__(self) -> str:
        return f"about {self.number:,}" if self.is_estimate else f"{self.number:,}"


def count_messages(
    messages: OutboxMessageQuerySet,
) -> tuple[datetime, datetime | None, dict[str, Count]]:
    """When it is for the database, since when its oldest due message has been due, and the counts."""
    states = _states(messages)
    waiting = messages.pending().order_by("available_at", "id")
    # One statement, so that all of it is of one moment.
    now, oldest, pending, blocked, *others = _ask(
        messages.db,
        [
            ("{}", messages.due().order_by("available_at", "id").values("available_at")[:1]),
            (_COUNT, waiting.values("id")[: COUNTED + 1]),
            (_COUNT_HELD, waiting.annotate(held=HeldBack()).values("held")[:COUNTED]),
            *((_COUNT, state.values("id")[: COUNTED + 1]) for state in states.values()),
        ],
    )
    counts = dict(zip(states, map(Count, others), strict=True))
    counts |= _estimates({name: states[name] for name, c in counts.items() if c.number > COUNTED})
    counts["blocked"] = Count(blocked, is_estimate=pending > COUNTED)
    connection = connections[messages.db]
    oldest_at = None if oldest is None else as_moment(oldest, connection)
    return as_moment(now, connection), oldest_at, counts


_COUNT = "SELECT count(*) FROM ({}) AS counted"
_COUNT_HELD = "SELECT count(*) FROM ({}) AS counted WHERE held"


def _states(messages: OutboxMessageQuerySet) -> dict[str, _Query]:
    # Each in the order of the index that serves it: a LIMIT without an order could begin at the end of
    # the table where there are none.
    due, settled = ("available_at", "id"), ("published_at",)
    busy = ("aggregate_type", "aggregate_id", "id")
    return {
        "ready": messages.ready().order_by(*due),
        "scheduled": messages.scheduled().order_by(*due),
        "retrying": messages.retrying().order_by(*busy),
        "in_flight": messages.in_flight().order_by(*busy),
        "dead": messages.dead().order_by(*settled),
        "published": messages.published().order_by(*settled),
        "discarded": messages.discarded().order_by(*settled),
    }


def _ask(alias: str, questions: list[tuple[str, _Query]]) -> list[Any]:
    """The time, and the answer to each question, in one statement."""
    connection = connections[alias]
    now, now_params = sql_of_now(connection)
    columns, params = [now], [*now_params]
    for template, asked in questions:
        sql, its_params = compiled(asked)
        columns.append(f"({template.format(sql)})")
        params += its_params
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)}", params)
        return list(cursor.fetchone())


def _estimates(states: Mapping[str, _Query]) -> dict[str, Count]:
    numbers = estimated_rows([state.order_by().values("id") for state in states.values()])
    if numbers is None:
        numbers = [0] * len(states)
    return {
        name: Count(max(number, COUNTED), is_estimate=True)
        for name, number in zip(states, numbers, strict=True)
    }
