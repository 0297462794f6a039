"""One aggregate holds 200,000 rows behind its head: the others go out all the same, and at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_outbox.batches import Batch
from django_outbox.databases import Database
from tests.support.bulk_rows import fill, text
from tests.support.rows import LIMITS

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

WAITING, IN_FLIGHT, OTHERS = 200_000, 2_000, 50


@pytest.fixture
def backlog(database: Database) -> Database:
    """A head that backs off with what waits behind it, relays at work on others, and 50 more."""
    later = "'2999-01-01 00:00:00'"
    fill(1, "'stuck'", attempts="1", available_at=later)
    fill(WAITING, "'stuck'")
    token = f"'{'0' * 31}1'"
    fill(IN_FLIGHT, text("n"), attempts="1", lease_token=token, lease_expires_at=later)
    fill(OTHERS, text("n + 1000000"))
    return database


def test_the_others_go_out_in_the_next_claim_and_order_is_looked_up_and_not_run_for_each_row(
    backlog: Database,
) -> None:
    batch, plan = claim_with_its_plan(backlog)
    assert batch is not None
    assert len(batch) == OTHERS
    assert all(int(claimed.message.aggregate_id) > 1_000_000 for claimed in batch.claimed)
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


def claim_with_its_plan(database: Database) -> tuple[Batch | None, str]:
    """A claim, and how the database runs the statement that decides what it takes."""
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
        batch = database.claim(LIMITS, "host:1")
    return batch, plans[0]
