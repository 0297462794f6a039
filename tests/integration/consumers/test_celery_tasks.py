"""Consumer tasks without a worker: called, applied eagerly, and declared wrongly."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from django_outbox import current_context
from django_outbox.consumers.celery import ConsumerMixin, ConsumerTask
from django_outbox.databases import Database
from django_outbox.exceptions import ImproperlyConfiguredOutbox, MalformedMessage, RejectMessage
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from django_outbox.wire.celery import to_celery
from tests.support.messages import received

MOVED = {"acks_late": False, "acks_on_failure": True, "acks_on_timeout": True}
OTHERS = {
    "reject_on_worker_lost": False,
    "acks_on_failure_or_timeout": True,
    "retry_on_worker_lost": True,
}


@pytest.fixture
def app() -> Celery:
    app = Celery("project", broker="memory://", set_as_current=False)
    app.conf.task_always_eager = True
    app.conf.task_eager_propagates = True
    return app


def declared(app: Celery, **options: Any) -> tuple[Any, list[Message]]:
    """A consumer task, and the messages that it has handled."""
    handled: list[Message] = []

    @app.task(base=ConsumerTask, bind=True, name="ledger.book", shared=False, **options)
    def book(self: Any, message: Message) -> None:
        handled.append(message)
        assert current_context().causation_id == str(message.id)
        if isinstance(message.payload, dict) and message.payload.get("fail"):
            raise ValueError("no")

    return book, handled


def event(message: Message) -> tuple[Any, dict[str, Any]]:
    call = to_celery(message, "ledger.book")
    (argument,), _, _ = json.loads(call.body)
    return argument, dict(call.headers)


def test_called_with_a_message_it_is_handled_once(database: Database, app: Celery) -> None:
    book, handled = declared(app)
    message = received()
    assert [book(message), book(message)] == ["handled", "duplicate"]
    assert handled == [message]
    assert ProcessedMessage.objects.get().consumer == "ledger.book"


def test_applied_eagerly_it_reads_the_event_and_its_headers(
    database: Database, app: Celery
) -> None:
    book, handled = declared(app)
    message = received(
        source="/billing", correlation_id="chain-1", headers={"tenant": "acme"}, body='{"n":1}'
    )
    argument, headers = event(message)
    for expected in ("handled", "duplicate"):
        applied = book.apply((argument,), task_id=headers["id"], headers=headers)
        assert applied.get() == expected
    assert handled == [message]


def test_without_headers_the_event_says_its_id_and_without_an_event_the_task(
    database: Database, app: Celery
) -> None:
    book, handled = declared(app)
    message, task_id = received(), uuid4()
    book.apply((event(message)[0],), task_id=str(uuid4())).get()
    book.apply(({"n": 2},), task_id=str(task_id)).get()
    book.apply(({"n": 2},), task_id=str(task_id)).get()
    assert [each.id for each in handled] == [message.id, task_id]
    assert (handled[1].topic, handled[1].payload) == ("ledger.book", {"n": 2})


def test_eagerly_it_is_tried_as_often_as_by_a_worker(
    database: Database, app: Celery, outbox_settings: Any
) -> None:
    outbox_settings(CONSUMERS={"BACKOFF_BASE": 0.001, "BACKOFF_CAP": 0.001})
    book, handled = declared(app, max_attempts=3)
    app.conf.task_eager_propagates = False
    book.apply((event(received(body='{"fail": 1}'))[0],))
    assert [message.attempt for message in handled] == [1, 2, 3]
    assert not ProcessedMessage.objects.exists()


@pytest.mark.parametrize("arguments", [(), ({}, {})])
def test_it_takes_one_argument(database: Database, app: Celery, arguments: Any) -> None:
    book, handled = declared(app, typing=False)
    with pytest.raises(MalformedMessage, match="one argument"):
        book.apply(arguments).get()
    assert handled == []


def test_a_topic_that_it_does_not_take_is_refused(database: Database, app: Celery) -> None:
    book, handled = declared(app, topics=["receipt.*"])
    with pytest.raises(RejectMessage, match="does not take its topic"):
        book.apply((event(received())[0],)).get()
    assert handled == []


@pytest.mark.parametrize(("option", "value"), [*MOVED.items(), *OTHERS.items()])
def test_an_option_under_which_messages_would_be_lost_is_refused(
    app: Celery, option: str, value: bool
) -> None:
    book, _ = declared(app, **{option: value})
    with pytest.raises(ImproperlyConfiguredOutbox, match=f"ledger.book.*{option}"):
        book.name  # noqa: B018 - the task is made when the app is asked for it


def test_a_class_of_ones_own_is_a_consumer(database: Database, app: Celery) -> None:
    class BookInvoice(ConsumerMixin, app.Task):  # type: ignore[misc, name-defined]
        name = "ledger.class"
        consumer_name = "invoices"
        max_retries = 4

        def run(self, message: Message) -> str:
            return "what is returned is ignored"

    task = app.register_task(BookInvoice())
    assert task(received()) == "handled"
    assert ProcessedMessage.objects.get().consumer == "invoices"
    assert task.retry_policy.max_attempts == 5
