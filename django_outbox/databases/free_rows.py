"""Which rows a claim may take now, as SQL: one text for all databases, which differ in three words.

Order is kept within an aggregate. A *busy* row is pending and has been tried: in flight, backing off,
or left behind by a relay that died. A fresh row may go when its aggregate has no busy row, a busy row
only when it is its aggregate's first. A dead row of a topic that blocks makes its aggregate busy too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from django_outbox.batches import Limits
from django_outbox.topics import TopicSelection, pattern_regex

#: A piece of SQL and its parameters, in their order.
Fragment: TypeAlias = tuple[str, tuple[Any, ...]]

EVERYTHING: Fragment = ("TRUE", ())
NOTHING: Fragment = ("FALSE", ())


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words in which the databases differ here."""

    now: str
    matches: str
    """Whether a topic matches a regular expression, minding case whatever the column's collation."""
    once: str = "AS MATERIALIZED"
    """Makes the database compute a common table expression once."""
    hint: str = ""
    """Makes it look values up in a subquery's result instead of running the subquery for each row."""
    busy_index: str = ""
    """Makes it read the busy rows through their index, whatever its statistics say."""


@dataclass(frozen=True, slots=True)
class FreeRows:
    """A WITH clause, which may be empty, and the condition that uses it: apart from due times."""

    with_busy: Fragment
    condition: Fragment


# Served by the index on busy rows, which are few. Its shape matters: as sets that are computed once a
# claim and looked up by hash, the rule costs the same whatever waits. As a join or as NOT EXISTS the
# planner may try each waiting row against each busy one: minutes instead of milliseconds.
_BUSY = """
WITH busy {once} (
    SELECT aggregate_type, aggregate_id, min(id) AS head
    FROM ({held}) AS held
    GROUP BY aggregate_type, aggregate_id
)
"""
# The same rule from the other side, for people who ask what waits for what.
_HELD_BACK = """
(status = 'pending' AND aggregate_id <> '' AND NOT {unordered} AND CASE
    WHEN attempts > 0 THEN id NOT IN (
        SELECT {hint} min(id) FROM ({held}) AS held GROUP BY aggregate_type, aggregate_id)
    ELSE (aggregate_type, aggregate_id)
        IN (SELECT {hint} aggregate_type, aggregate_id FROM ({held}) AS held)
END)
"""
_TRIED = """
SELECT aggregate_type, aggregate_id, id FROM {table} {index}
WHERE status = 'pending' AND attempts > 0 AND aggregate_id <> '' AND NOT {unordered}
"""
_BLOCKING = """
UNION ALL
SELECT aggregate_type, aggregate_id, id FROM {table}
WHERE status = 'dead' AND aggregate_id <> '' AND {blocking}
"""
_IN_ORDER = """
(aggregate_id = '' OR {unordered} OR CASE
    WHEN attempts > 0 THEN id IN (SELECT {hint} head FROM busy)
    ELSE (aggregate_type, aggregate_id)
        NOT IN (SELECT {hint} aggregate_type, aggregate_id FROM busy)
END)
"""


@lru_cache(maxsize=256)
def free_rows(dialect: Dialect, table: str, limits: Limits) -> FreeRows:
    """The rows of the topics that are under no live lease and that order does not hold back."""
    condition = f"(lease_expires_at IS NULL OR lease_expires_at <= {dialect.now})"
    params: tuple[Any, ...] = ()
    for selection in (limits.topics, limits.reachable):
        chosen, chosen_params = selected(selection, dialect)
        if (chosen, chosen_params) != EVERYTHING:
            condition += f" AND {chosen}"
            params += chosen_params
    loose, loose_params = selected(limits.unordered, dialect)
    if (loose, loose_params) == EVERYTHING:
        return FreeRows(("", ()), (condition, params))
    condition += " AND " + _IN_ORDER.format(unordered=loose, hint=dialect.hint)
    held, held_params = _holding(dialect, table, limits.unordered, limits.blocking)
    busy = _BUSY.format(once=dialect.once, held=held)
    return FreeRows((busy, held_params), (condition, params + loose_params))


@lru_cache(maxsize=16)
def held_back(
    dialect: Dialect, table: str, unordered: TopicSelection, blocking: TopicSelection
) -> Fragment:
    """The pending rows, due or not, that order would hold back now; a condition for a WHERE."""
    loose, loose_params = selected(unordered, dialect)
    if (loose, loose_params) == EVERYTHING:
        return NOTHING
    held, held_params = _holding(dialect, table, unordered, blocking)
    condition = _HELD_BACK.format(unordered=loose, hint=dialect.hint, held=held)
    return condition, loose_params + held_params + held_params


def _holding(
    dialect: Dialect, table: str, unordered: TopicSelection, blocking: TopicSelection
) -> Fragment:
    """The rows that may hold others of their aggregate back."""
    loose, params = selected(unordered, dialect)
    held = _TRIED.format(table=table, index=dialect.busy_index, unordered=loose)
    dead, dead_params = selected(blocking, dialect)
    if (dead, dead_params) == NOTHING:
        return held, params
    return held + _BLOCKING.format(table=table, blocking=dead), params + dead_params


def selected(selection: TopicSelection, dialect: Dialect) -> Fragment:
    """A condition that is true for rows whose topic is in the selection.

    One of the constants where it is everything or nothing, so that a condition can be left out.
    """
    if selection.is_everything:
        return EVERYTHING
    if selection.is_nothing:
        return NOTHING
    branches = " ".join(
        f"WHEN {dialect.matches} THEN {_truth(chosen)}" for _pattern, chosen in selection.rules
    )
    patterns = tuple(pattern_regex(pattern) for pattern, _chosen in selection.rules)
    return f"CASE {branches} ELSE {_truth(selection.default)} END", patterns


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"
