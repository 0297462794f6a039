"""The tasks for Celery beat: run by a real worker, and called here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from django.db import transaction
from django.db.models.functions import Now
from kombu import Exchange, Queue

from django_outbox import Event, enqueue_many, tasks
from django_outbox.databases import Database, database_for
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage, Status
from django_outbox.publishers import locmem
from django_outbox.publishers.base import Receipt
from tests.conftest import EVERY_DATABASE
from tests.support.plants import Plant, plant
from tests.support.threads import elsewhere, wait_until
from tests.support.workers import Workers, workers

__all__ = ["plant", "workers"]

MAX_SECONDS = 0.2
on_every_database = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class SlowPublisher(locmem.LocMemPublisher):
    """Takes longer for its first round than the task may take."""

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        time.sleep(2 * MAX_SECONDS)
        return super().publish(messages)


def enqueue_some(count: int) -> set[str]:
    with transaction.atomic():
        rows = enqueue_many(Event("invoice.issued", {"n": n}) for n in range(count))
    return {str(row.message_id) for row in rows}


def published() -> int:
    return OutboxMessage.objects.filter(status=Status.PUBLISHED).count()


def test_beats_relays_may_overlap_and_every_message_is_published_once(
    database: Database, plant: Plant, workers: Workers
) -> None:
    exchange = plant.broker.exchange()
    queue = plant.broker.queue(exchange)
    outbox = plant.outbox
    outbox["PUBLISHERS"]["default"]["EXCHANGE"] = exchange
    outbox["BATCH_SIZE"] = 20
    sent = enqueue_some(600)
    worker = workers.celery(outbox, plant.broker.url, plant.queue)
    with Celery("beat", broker=plant.broker.url, set_as_current=False) as beat:
        queue_of_tasks = Queue(plant.queue, Exchange(""), routing_key=plant.queue, no_declare=True)
        for _ in range(4):
            beat.send_task("django_outbox.tasks.relay", queue=queue_of_tasks)
    wait_until(lambda: published() == 600, "all are published")
    wait_until(lambda: worker.text.count(" succeeded in ") == 4, "all four relays have ended")
    arrived = [properties.message_id for properties, _ in plant.broker.take(queue)]
    assert len(arrived) == 600
    assert set(arrived) == sent
    assert worker.text.count("'lost': 0") == 4


@on_every_database
def test_a_relay_claims_nothing_more_when_its_time_is_up_and_holds_no_lease(
    database: Database, outbox_settings: Callable[..., None]
) -> None:
    outbox_settings(PUBLISHERS={"default": {"BACKEND": f"{__name__}.SlowPublisher"}}, BATCH_SIZE=1)
    locmem.outbox.clear()
    enqueue_some(8)
    done = tasks.relay(max_seconds=MAX_SECONDS)
    assert 1 <= done["published"] == len(locmem.outbox) < 8
    left = OutboxMessage.objects.filter(status=Status.PENDING)
    assert left.count() == 8 - done["published"]
    assert not left.exclude(lease_token=None).exists()
    outbox_settings(
        PUBLISHERS={"default": {"BACKEND": "django_outbox.publishers.locmem.LocMemPublisher"}}
    )
    tasks.relay()
    assert published() == len({message.id for message in locmem.outbox}) == len(locmem.outbox) == 8


@on_every_database
def test_a_pruning_that_is_under_way_is_left_alone(database: Database) -> None:
    enqueue_some(3)
    long_ago = Now() - timedelta(days=30)
    OutboxMessage.objects.update(status=Status.PUBLISHED, published_at=long_ago)
    with database_for("default").one_at_a_time("prune") as mine:
        assert mine
        meanwhile: dict[str, Any] = elsewhere(tasks.prune).result(60)
    assert (meanwhile["published"], meanwhile["others_at_work"]) == (0, True)
    assert tasks.prune()["published"] == 3
    assert tasks.prune()["published"] == 0
