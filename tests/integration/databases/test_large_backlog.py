"""One aggregate holds 200,000 rows behind its head: the others go out all the same, and at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_outbox.databases import Database
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessage
from tests.support.rows import LIMITS

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

WAITING, IN_FLIGHT, OTHERS = 200_000, 2_000, 50

#: A table of the numbers from 1 in each database.
_NUMBERS = {
    "postgresql": "generate_series(1, {count}) AS numbers (n)",
    "mysql": "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n < {count}) SELECT n FROM numbers) AS numbers",
    "sqlite": "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n < {count}) SELECT n FROM numbers) AS numbers",
}
_MESSAGE_ID = {
    "postgresql": "gen_random_uuid()",
    "mysql": "UUID()",
    "sqlite": "lower(hex(randomblob(16)))",
}
_TEXT = {"postgresql": "n::text", "mysql": "CONCAT('', n)", "sqlite": "CAST(n AS TEXT)"}


def fill(count: int, aggregate_id: str, **columns: str) -> None:
    """Write that many rows by one statement; ``aggregate_id`` and the columns' values are SQL."""
    vendor = connection.vendor
    names, values = "".join(f", {c}" for c in columns), "".join(f", {v}" for v in columns.values())
    with connection.cursor() as cursor:
        if vendor == "mysql":
            cursor.execute(
                "SET SESSION cte_max_recursion_depth = 1000000"
                if not connection.mysql_is_mariadb
                else "SET SESSION max_recursive_iterations = 1000000"
            )
        cursor.execute(
            "INSERT INTO django_outbox_outboxmessage"
            f" (message_id, topic, payload, size, aggregate_type, aggregate_id{names})"
            f" SELECT {_MESSAGE_ID[vendor]}, 'invoice.issued', '1', 1, 'invoice',"
            f" {aggregate_id.format(n=_TEXT[vendor])}{values}"
            f" FROM {_NUMBERS[vendor].format(count=count)}"
        )


@pytest.fixture
def backlog(database: Database) -> Database:
    """A head that backs off with what waits behind it, relays at work on others, and 50 more."""
    fill(1, "'stuck'", attempts="1")
    fill(WAITING, "'stuck'")
    fill(IN_FLIGHT, "{n}", attempts="1")
    OutboxMessage.objects.filter(attempts=1).update(available_at=DatabaseNow(), payload=2)
    token = "0" * 31 + "1"
    OutboxMessage.objects.filter(attempts=1).exclude(aggregate_id="stuck").update(
        lease_token=token, lease_expires_at="2999-01-01T00:00:00Z"
    )
    OutboxMessage.objects.filter(attempts=1, aggregate_id="stuck").update(
        available_at="2999-01-01T00:00:00Z"
    )
    fill(OTHERS, "{n} || 'x'" if connection.vendor != "mysql" else "CONCAT({n}, 'x')")
    return database


def test_the_others_go_out_in_the_next_claim(backlog: Database) -> None:
    batch = backlog.claim(LIMITS, "host:1")
    assert batch is not None
    assert len(batch) == OTHERS
    assert all(claimed.message.aggregate_id.endswith("x") for claimed in batch.claimed)


def test_the_rule_of_order_is_looked_up_and_not_run_for_each_row(backlog: Database) -> None:
    plan = plan_of_the_claim(backlog)
    if backlog.vendor == "postgresql":
        assert len(re.findall(r"\(hashed SubPlan \d+\)", plan)) == 2
        assert not re.search(r"(?<!hashed )\(?SubPlan \d+\)", plan)
        assert "using django_outbox_due" in plan
        assert "using django_outbox_busy" in plan
    elif backlog.vendor == "mysql":
        assert "DEPENDENT" not in plan
        assert "MATERIALIZED" in plan
        [claim] = [line for line in plan.splitlines() if "PRIMARY" in line.split()[:2]]
        assert "django_outbox_due" in claim
        assert "filesort" not in claim
        assert "temporary" not in claim
        assert "django_outbox_busy" in plan
    else:
        assert "CORRELATED" not in plan
        assert "USING INDEX django_outbox_due" in plan
        assert "USING INDEX django_outbox_busy" in plan


def plan_of_the_claim(database: Database) -> str:
    """How the database would run the statement that decides what a claim takes."""
    explains = {"postgresql": "EXPLAIN ", "mysql": "EXPLAIN ", "sqlite": "EXPLAIN QUERY PLAN "}
    plans: list[str] = []

    def explain(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if "busy" in sql and not plans:
            execute(explains[database.vendor] + sql, params, many, context)
            plans.append("\n".join(" ".join(map(str, row)) for row in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        database.claim(LIMITS, "host:1")
    return plans[0]
