"""Find the row that an unreadable value stands in, for the error alone.

Django hands a column's value to its field without the row, and ``values_list("tax_id")`` does not even
select the primary key. Tokens are random, so the stored text is the row's own.
"""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError


def pk_of_row_with(field: Any, raw: str, connection: Any) -> object:
    """The primary key of a row whose column holds this text; None if it cannot be found out."""
    meta = field.model._meta
    quote = connection.ops.quote_name
    columns = ", ".join(quote(part.column) for part in meta.pk_fields)
    table, column = quote(meta.db_table), quote(field.column)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {table} WHERE {column} = %s", [raw])
            row = cursor.fetchone()
    except DatabaseError:
        return None
    if row is None:
        return None
    return row[0] if len(row) == 1 else row
