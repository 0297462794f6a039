"""About how many rows a query would find, from what the database knows already. No row is read.

Where a table has millions of rows, people are served by a good guess now rather than by an exact
number in a while.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet


def estimated_rows(queries: Sequence[QuerySet[Any, Any]]) -> list[int] | None:
    """The planner's estimates, in one statement; None where the database has none (SQLite).

    The queries are all of one database. Estimates are as old as the last ANALYZE.
    """
    if not queries:
        return []
    connection = connections[queries[0].db]
    estimate = _ESTIMATES.get(connection.vendor)
    if estimate is None:
        return None
    # As scalar subqueries: they are planned and never run, so it matters not how many rows they have.
    parts = [compiled(query) for query in queries]
    text = ", ".join(f"({sql})" for sql, _ in parts)
    return estimate(connection, text, [param for _, params in parts for param in params])


def compiled(query: QuerySet[Any, Any]) -> tuple[str, tuple[Any, ...]]:
    """The query's SQL and parameters, to be part of a larger statement."""
    sql, params = query.query.get_compiler(query.db).as_sql()
    return sql, tuple(params)


def _by_postgresql(connection: BaseDatabaseWrapper, sql: str, params: list[Any]) -> list[int]:
    # Each subquery becomes an InitPlan of its own, in their order.
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT {sql}", params)
        (found,) = cursor.fetchone()
    [explained] = json.loads(found) if isinstance(found, str) else found
    return [round(plan["Plan Rows"]) for plan in explained["Plan"]["Plans"]]


def _by_mysql(connection: BaseDatabaseWrapper, sql: str, params: list[Any]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN SELECT {sql}", params)
        columns = [column[0] for column in cursor.description]
        found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    subqueries = sorted((row for row in found if row["table"] is not None), key=lambda r: r["id"])
    return [
        round(int(row["rows"] or 0) * float(row.get("filtered") or 100) / 100) for row in subqueries
    ]


_ESTIMATES: dict[str, Callable[[BaseDatabaseWrapper, str, list[Any]], list[int]]] = {
    "postgresql": _by_postgresql,
    "mysql": _by_mysql,
}
