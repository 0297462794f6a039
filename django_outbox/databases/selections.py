"""A TopicSelection as SQL: the same rules that Python follows, decided by the database."""

from __future__ import annotations

from typing import TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

from django_outbox.topics import TopicSelection, pattern_regex

#: A piece of SQL and its parameters, in their order.
Fragment: TypeAlias = tuple[str, tuple[object, ...]]

EVERYTHING: Fragment = ("TRUE", ())
NOTHING: Fragment = ("FALSE", ())


def selected(
    selection: TopicSelection, connection: BaseDatabaseWrapper, column: str = "topic"
) -> Fragment:
    """A condition that is true for rows whose topic is in the selection.

    The constants where it is everything or nothing, so that the caller can leave a condition out.
    """
    if selection.is_everything:
        return EVERYTHING
    if selection.is_nothing:
        return NOTHING
    match = _matches(column, connection)
    branches = " ".join(
        f"WHEN {match} THEN {_truth(chosen)}" for _pattern, chosen in selection.rules
    )
    patterns = tuple(pattern_regex(pattern) for pattern, _chosen in selection.rules)
    return f"CASE {branches} ELSE {_truth(selection.default)} END", patterns


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _matches(column: str, connection: BaseDatabaseWrapper) -> str:
    """Topics are case-sensitive, whatever the collation of the column."""
    if connection.vendor == "mysql":
        return str(connection.ops.regex_lookup("regex")) % (column, "%s")
    return f"{column} ~ %s" if connection.vendor == "postgresql" else f"{column} REGEXP %s"
