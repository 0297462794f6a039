"""Whether order holds a row back, as a condition for querysets: the claim's own rule (free_rows.py)."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Expression
from django.db.models.sql.compiler import SQLCompiler

from django_outbox.databases import database_for


class HeldBack(Expression):
    """True for a pending message that waits for an earlier one of its aggregate.

    Only for queries of the outbox's table alone: its columns are named without their table.
    """

    conditional = True

    def __init__(self) -> None:
        super().__init__(output_field=BooleanField())

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        return database_for(connection.alias).held_back()
