"""Any number of outbox rows in one statement, for tests and benchmarks with a large table."""

from __future__ import annotations

from django.db import connection

_RECURSIVE = (
    "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n < {count}) SELECT n FROM numbers) AS numbers"
)
#: A table of the numbers from 1.
_NUMBERS = {
    "postgresql": "generate_series(1, {count}) AS numbers (n)",
    "mysql": _RECURSIVE,
    "sqlite": _RECURSIVE,
}
_MESSAGE_ID = {
    "postgresql": "gen_random_uuid()",
    "mysql": "UUID()",
    "sqlite": "lower(hex(randomblob(16)))",
}


def fill(count: int, aggregate_id: str = "''", **columns: str) -> None:
    """Write that many rows; the aggregate and the columns' values are SQL, ``n`` counts the rows."""
    vendor = connection.vendor
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", {value}" for value in columns.values())
    with connection.cursor() as cursor:
        if vendor == "mysql":
            mariadb = connection.mysql_is_mariadb
            limit = "max_recursive_iterations" if mariadb else "cte_max_recursion_depth"
            cursor.execute(f"SET SESSION {limit} = 10000000")
        cursor.execute(
            "INSERT INTO django_outbox_outboxmessage"
            f" (message_id, topic, payload, size, aggregate_type, aggregate_id{names})"
            f" SELECT {_MESSAGE_ID[vendor]}, 'invoice.issued', '{{\"text\": \"{'x' * 280}\"}}', 300,"
            f" 'invoice', {aggregate_id}{values}"
            f" FROM {_NUMBERS[vendor].format(count=count)}"
        )


def text(number: str) -> str:
    """SQL of a number as text."""
    return {
        "postgresql": f"({number})::text",
        "mysql": f"CONCAT('', {number})",
        "sqlite": f"CAST({number} AS TEXT)",
    }[connection.vendor]
