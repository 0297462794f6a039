from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, connections, transaction

from django_outbox.consumers import Consumer, Processed
from django_outbox.consumers.delivery import deliver, deliver_batch
from django_outbox.consumers.failures import database_answers, failure_of
from django_outbox.consumers.verdicts import Ack, DeadLetter, Failure, RetryLater
from django_outbox.exceptions import PostponeMessage, RejectMessage
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from django_outbox.signals import consumer_failed
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.support.outages import database_away
from tests.testapp.models import Balance, LedgerEntry

SECRET = "jane@example.org"


class Broken(Exception):
    pass


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id))


def raising(error: Exception) -> Consumer:
    def handle(message: Message) -> None:
        book(message)
        raise error

    return Consumer(name="ledger", handler=handle, max_attempts=3)


def nothing_happened() -> bool:
    return not LedgerEntry.objects.exists() and not ProcessedMessage.objects.exists()


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_what_is_handled_or_known_is_acknowledged(database):
    consumer = Consumer(name="ledger", handler=book)
    message = received()
    assert deliver(consumer, message) == Ack(Processed.HANDLED)
    assert deliver(consumer, message) == Ack(Processed.DUPLICATE)


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_what_raises_is_rolled_back_and_tried_again_up_to_the_limit(database):
    consumer = raising(Broken())
    first = deliver(consumer, received(attempt=1))
    assert isinstance(first, RetryLater)
    assert first.charged
    assert first.reason == f"{Broken.__module__}.Broken"
    last = deliver(consumer, received(attempt=3))
    assert isinstance(last, DeadLetter)
    assert last.reason.endswith("attempt 3 of 3")
    assert nothing_happened()


def test_the_limit_comes_from_the_settings_where_the_consumer_names_none(database, settings):
    settings.OUTBOX = {**settings.OUTBOX, "CONSUMERS": {"MAX_ATTEMPTS": 2}}

    def fail(message: Message) -> None:
        raise Broken

    consumer = Consumer(name="ledger", handler=fail)
    assert isinstance(deliver(consumer, received(attempt=1)), RetryLater)
    assert isinstance(deliver(consumer, received(attempt=2)), DeadLetter)


def test_a_handler_can_reject_a_message_at_once(database):
    verdict = deliver(raising(RejectMessage("no such account")), received())
    assert verdict == DeadLetter("no such account")
    assert nothing_happened()


def test_a_handler_can_postpone_a_message(database):
    error = PostponeMessage(timedelta(seconds=90), "the period is not open yet")
    verdict = deliver(raising(error), received(attempt=3))
    assert verdict == RetryLater(timedelta(seconds=90), "the period is not open yet", charged=False)
    assert nothing_happened()


def test_an_exception_that_ends_the_process_is_not_taken_for_a_failure(database):
    def leave(message: Message) -> None:
        book(message)
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        deliver(Consumer(name="ledger", handler=leave), received())
    assert nothing_happened()


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_neither_log_nor_reason_holds_what_the_exception_says(database, caplog):
    Balance.objects.create(account=SECRET)

    def duplicate(message: Message) -> None:
        Balance.objects.create(account=message.payload)

    caplog.set_level(logging.DEBUG, "django_outbox")
    consumer = Consumer(name="ledger", handler=duplicate, max_attempts=1)
    message = received(body=f'"{SECRET}"')
    verdict = deliver(consumer, message)
    assert isinstance(verdict, DeadLetter)
    assert IntegrityError.__name__ in verdict.reason
    assert SECRET not in verdict.reason
    assert SECRET not in caplog.text
    assert "in duplicate" in caplog.text  # where it was raised
    assert str(message.id) in caplog.text
    assert {record.consumer for record in caplog.records} == {"ledger"}


def test_whoever_wants_the_exception_itself_gets_it_by_signal(database):
    told = []

    def receive(sender: object, **kwargs: object) -> None:
        told.append(kwargs)

    error = Broken("details")
    message = received()
    consumer_failed.connect(receive)
    try:
        deliver(raising(error), message)
    finally:
        consumer_failed.disconnect(receive)
    assert told[0]["error"] is error
    assert told[0]["message"] is message
    assert told[0]["consumer"].name == "ledger"
    assert told[0]["failed"].failure is Failure.RAISED


def test_a_batch_has_a_verdict_for_each_message(database):
    messages = [received() for _ in range(5)]

    def handle(batch: list[Message]) -> None:
        if messages[2] in batch:
            raise Broken

    told = []

    def receive(sender: object, **kwargs: object) -> None:
        told.append(kwargs["message"])

    consumer_failed.connect(receive)
    try:
        verdicts = deliver_batch(Consumer(name="ledger", handler=handle, batch=10), messages)
    finally:
        consumer_failed.disconnect(receive)
    assert [type(each) for each in verdicts] == [Ack, Ack, RetryLater, Ack, Ack]
    assert told == [messages[2]]


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_database_that_is_away_charges_nobody(database):
    consumer = Consumer(name="ledger", handler=book)
    batch = Consumer(name="ledger", handler=lambda messages: None, batch=10)
    message = received(attempt=1000)
    with database_away():
        verdicts = [
            deliver(consumer, message),
            *deliver_batch(batch, [received(attempt=1000) for _ in range(4)]),
        ]
    for verdict in verdicts:
        assert isinstance(verdict, RetryLater)
        assert not verdict.charged
        assert verdict.reason == "the database 'default' does not answer"
    assert deliver(consumer, message) == Ack(Processed.HANDLED)


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_handler_that_kills_its_own_connection_is_charged(database):
    def cut(message: Message) -> None:
        kill = {
            "postgresql": "SELECT pg_terminate_backend(pg_backend_pid())",
            "mysql": "KILL CONNECTION_ID()",
        }
        with connections["default"].cursor() as cursor:
            cursor.execute(kill[connections["default"].vendor])

    consumer = Consumer(name="ledger", handler=cut)
    verdict = deliver(consumer, received())
    assert isinstance(verdict, RetryLater)
    assert verdict.charged
    # The broken connection is gone: the next message is handled.
    assert deliver(Consumer(name="ledger", handler=book), received()) == Ack(Processed.HANDLED)


def test_inside_a_transaction_the_connection_is_left_alone(database):
    with transaction.atomic():
        Balance.objects.create(account="before")
        assert database_answers("default")
        assert failure_of(OperationalError(), "default").failure is Failure.RAISED
    assert Balance.objects.count() == 1
