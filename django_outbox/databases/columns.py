"""Columns that take the form each database needs. Named by migrations, so the path is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField

if TYPE_CHECKING:
    _CharField = CharField[str, str]
else:
    _CharField = CharField  # generic in the type stubs only


class ExactCharField(_CharField):
    """Text that names something: two names are one only where they are the same byte for byte.

    Most collations of MySQL and MariaDB hold "ab", "AB", "áb" and "ab " to be equal, so two aggregates
    would share one row. The collation is binary there, without padding; elsewhere nothing changes.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        if connection.vendor == "mysql":
            is_mariadb = getattr(connection, "mysql_is_mariadb", False)
            parameters["type"] += " CHARACTER SET utf8mb4"
            parameters["collation"] = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return parameters
