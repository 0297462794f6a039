"""The Celery tasks of the worker processes."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from django_outbox.consumers.celery import ConsumerMixin, ConsumerTask
from django_outbox.messages import Message
from tests.transports.behaviour import act, note
from tests.transports.consumers import update_one


@shared_task(base=ConsumerTask, bind=True, name="ledger.book", max_attempts=3)
def book(self: Any, message: Message) -> None:
    act(message)


@shared_task(
    base=ConsumerTask,
    bind=True,
    name="ledger.book_in_time",
    max_attempts=2,
    soft_time_limit=1,
    time_limit=2,
)
def book_in_time(self: Any, message: Message) -> None:
    act(message)


@shared_task(
    base=ConsumerTask,
    bind=True,
    name="ledger.autoretry",
    autoretry_for=(ValueError,),
    retry_kwargs={"max_retries": 1, "countdown": 0.1},
)
def book_with_autoretry(self: Any, message: Message) -> None:
    act(message)


@shared_task(base=ConsumerTask, bind=True, name="ledger.own_retry", max_retries=2)
def book_with_own_retry(self: Any, message: Message) -> None:
    note("handling", message)
    if self.request.retries < message.payload.get("until", 100):
        raise self.retry(countdown=0.1)


@shared_task(base=ConsumerTask, bind=True, name="ledger.picky", topics=["receipt.*"])
def book_receipts_only(self: Any, message: Message) -> None:
    act(message)


@shared_task(base=ConsumerTask, bind=True, name="bench.update")
def update_balance(self: Any, message: Message) -> None:
    update_one(message)


class BookInvoice(ConsumerMixin, Task):  # type: ignore[misc, type-arg]
    """A task as a class, with an inbox name of its own."""

    name = "ledger.class"
    consumer_name = "invoices"

    def run(self, message: Message) -> None:
        act(message)
