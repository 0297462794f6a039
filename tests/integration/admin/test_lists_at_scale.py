"""However many rows there are: every list, filter and page reads a bounded number of them, by index."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_outbox.admin import acting, neighbours, paging, window
from django_outbox.admin.states import State
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.integration.admin.conftest import LIST
from tests.support.bulk_rows import fill, text

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
TABLE = "django_outbox_outboxmessage"
_LATER = "statement_timestamp() + n * interval '1 second'"
#: What people fill in; ``nothing`` matches no row, so that nothing ends a search early.
FILTERS = ("", "topic=no.such.topic", "error=nothing", "until=2001-01-01T00:00")
SEARCHES = ("aggregate=invoice:7", "aggregate=7", "correlation=req-7", "tag=i:7")


@dataclass(frozen=True)
class Read:
    """How one statement ran."""

    sql: str
    rows: int
    """Rows of the table that were looked at."""
    scans: tuple[str, ...]


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name") == TABLE:
        yield plan
    for below in plan.get("Plans", []):
        yield from _scans(below)


@contextmanager
def reads() -> Iterator[list[Read]]:
    """Run every SELECT of the block once more, and count what it looks at."""
    found: list[Read] = []

    def explain(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if TABLE in sql and sql.lstrip().upper().startswith("SELECT"):
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params, many, context)
            (answer,) = context["cursor"].fetchone()
            [explained] = json.loads(answer) if isinstance(answer, str) else answer
            scans = list(_scans(explained["Plan"]))
            rows = sum(
                (s["Actual Rows"] + s.get("Rows Removed by Filter", 0)) * s["Actual Loops"]
                for s in scans
            )
            found.append(Read(sql, int(rows), tuple(s["Node Type"] for s in scans)))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found


def crowd(published: int, dead: int, pending: int) -> None:
    """Mostly published, some dead and discarded ones before and after them, and a backlog."""
    names = {"correlation_id": "'req-' || n % 1000", "index_tag": "'i:' || n % 1000"}
    number = text("n % 1000")
    fill(dead // 2, number, status="'dead'", last_error="'nack'", attempts="10", **names)
    fill(published, number, status="'published'", published_at=_LATER, **names)
    fill(dead // 2, number, status="'dead'", last_error="'nack'", attempts="10", **names)
    fill(dead, number, status="'discarded'", **names)
    fill(pending, number, **names)
    fill(pending // 10, number, attempts="1", available_at=_LATER, last_error="'nack'", **names)
    fill(pending // 10, text("n + 5000"), available_at=_LATER, **names)
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE {TABLE}")


def look_at_every_list(client: Client, most: int) -> None:
    states = ["", *(f"state={state}" for state in State)]
    queries = ["&".join(parts) for parts in itertools.product(states, [*FILTERS, *SEARCHES])]
    for query in queries:
        with reads() as statements:
            assert client.get(f"{LIST}?{query}").status_code == 200
        assert 0 < len(statements) <= 3, query
        for read in statements:
            assert "Seq Scan" not in read.scans, f"{query}\n{read.sql}"
            assert read.rows <= most, f"{query}\n{read.rows} {read.scans}\n{read.sql}"


def look_at_the_rest(client: Client, most: int) -> None:
    """The pages of messages, the dashboard, the search, and the confirmation of everything."""
    for state in State:
        message = state.messages(OutboxMessage.objects.all()).order_by("-id").first()
        if message is None:
            continue
        with reads() as statements:
            assert client.get(f"{LIST}{message.pk}/change/").status_code == 200
        assert all("Seq Scan" not in read.scans and read.rows <= most for read in statements), state
    for text_ in ("invoice:7", "req-7", "no such thing"):
        with reads() as statements:
            client.post(f"{LIST}search/", {"text": text_})
        assert all("Seq Scan" not in read.scans and read.rows <= most for read in statements)
    with reads() as statements:
        assert client.get(f"{LIST}dashboard/").status_code == 200
    assert all("Seq Scan" not in read.scans for read in statements)
    for act, state in (("requeue", "dead"), ("discard", "ready"), ("replay", "published")):
        form = {"everything": "1", "asked": f"?state={state}&topic=no.such.topic"}
        with reads() as statements:
            assert client.post(f"{LIST}act/{act}/", form).status_code == 200
        for read in statements:
            assert "Seq Scan" not in read.scans
            assert read.rows <= most, f"{act}\n{read.rows} {read.scans}\n{read.sql}"


EVERY_PERMISSION = ("view", "requeue", "discard", "replay", "reveal")


def test_every_list_reads_a_bounded_number_of_rows_by_index(
    database: Database, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(published=20_000, dead=4_000, pending=4_000)
    monkeypatch.setattr(window, "WINDOW", 1_000)
    monkeypatch.setattr(acting, "WINDOW", 1_000)
    monkeypatch.setattr(paging, "COUNTED", 500)
    monkeypatch.setattr(acting, "COUNTED", 500)
    monkeypatch.setattr(neighbours, "LOOKED_THROUGH", 1_000)
    with connection.cursor() as cursor:
        # Reading a table of this size from end to end would be right: asked is whether it is needed.
        cursor.execute("SET enable_seqscan = off")
        # And reading all dead ones in one go, rather than a fourth of them one by one.
        cursor.execute("SET enable_bitmapscan = off")
    client = browse(*EVERY_PERMISSION)
    # A statement walks along one window, or two; what holds others back is read beside it.
    most = 2 * 1_000 + 4_000 // 10 * 4
    look_at_every_list(client, most)
    look_at_the_rest(client, most)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_five_million_rows_change_nothing(database: Database, browse: Any) -> None:
    crowd(published=5_000_000, dead=50_000, pending=300_000)
    client = browse(*EVERY_PERMISSION)
    most = 2 * window.WINDOW + 30_000 * 4
    look_at_every_list(client, most)
    look_at_the_rest(client, most)
