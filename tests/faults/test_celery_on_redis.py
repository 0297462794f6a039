"""Consumer tasks on a broker that has neither confirms nor dead letters: the publisher and a real worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery

from django_outbox.databases import Database
from django_outbox.models import ProcessedMessage
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.celery import CeleryPublisher
from tests.support import services
from tests.support.messages import received
from tests.support.publishing import outcomes
from tests.support.threads import wait_until
from tests.support.workers import Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["workers"]


@pytest.fixture
def redis_url() -> Iterator[str]:
    services.require(services.REDIS_URL, "Redis")
    url = services.REDIS_URL.rpartition("/")[0] + "/13"
    yield url
    redis.Redis.from_url(url).flushdb()


def test_an_event_takes_effect_once_and_a_task_that_raises_is_tried_again(
    database: Database, redis_url: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    Balance.objects.create(account="sales")
    queue = f"ledger.{uuid4().hex[:8]}"
    app = Celery("project", broker=redis_url, set_as_current=False)
    monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
    outbox: dict[str, Any] = {"CONSUMERS": {"BACKOFF_BASE": 0.02, "BACKOFF_CAP": 0.1}}
    worker = workers.celery(outbox, redis_url, queue)
    good, failing = (
        received(body='{"amount": 5}'),
        received(body=json.dumps({"amount": 7, "do": "raise", "until": 3, "name": "Ada"})),
    )
    publisher = CeleryPublisher(
        "tasks", {"APP": f"{__name__}:app", "QUEUE": queue, "TASKS": {"#": "ledger.book"}}
    )
    assert outcomes(publisher.publish([good, failing, good])) == {Outcome.CONFIRMED: 3}
    publisher.close()
    wait_until(lambda: ProcessedMessage.objects.count() == 2, "both are processed")
    wait_until(lambda: worker.text.count(" succeeded in ") == 3, "all deliveries have ended")
    assert [entry["attempt"] for entry in workers.diary.entries("handling", failing.id)] == [
        1,
        2,
        3,
    ]
    assert LedgerEntry.objects.count() == 2
    assert Balance.objects.get().amount == 12
    assert "Ada" not in worker.text
    assert worker.stop() == 0
