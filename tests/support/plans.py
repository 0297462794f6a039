"""The plans of the statements that run while a block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connections

_EXPLAIN = {"postgresql": "EXPLAIN ", "mysql": "EXPLAIN ", "sqlite": "EXPLAIN QUERY PLAN "}


@dataclass(frozen=True)
class Explained:
    """One statement as it ran, and how the database runs it."""

    sql: str
    plan: str


@contextmanager
def explained(alias: str = "default") -> Iterator[list[Explained]]:
    """Every statement, in its order; those that ask for a plan themselves are their own plan."""
    connection = connections[alias]
    found: list[Explained] = []

    def explain(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        plan = ""
        if sql.lstrip().upper().startswith(("SELECT", "WITH")):
            execute(_EXPLAIN[connection.vendor] + sql, params, many, context)
            plan = "\n".join(" ".join(map(str, row)) for row in context["cursor"].fetchall())
        found.append(Explained(sql, plan))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found
