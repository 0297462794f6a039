from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections

from django_outbox.consumers import consumer
from django_outbox.consumers.registry import isolated_registry
from django_outbox.exceptions import ImproperlyConfiguredOutbox, RejectMessage
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.local import LocalPublisher
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.support.outages import database_away
from tests.testapp.models import LedgerEntry

SECRET = "jane@example.org"


class Broken(Exception):
    pass


@pytest.fixture(autouse=True)
def no_consumers() -> Iterator[None]:
    with isolated_registry():
        yield


def book(account: str, *, fails: list[Exception] | None = None) -> None:
    """Declare a consumer that books each message, and raises as long as there are exceptions."""

    @consumer("invoice.*", name=account)
    def handle(message: Message) -> None:
        LedgerEntry.objects.create(account=account, reference=str(message.id))
        if fails:
            raise fails.pop()


def publish(*messages: Message, **options: object) -> list[Receipt]:
    return LocalPublisher("default", options).publish(messages)


def booked() -> list[str]:
    return sorted(LedgerEntry.objects.values_list("account", flat=True))


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_every_consumer_of_the_topic_is_called_and_the_message_confirmed(database):
    book("ledger")
    book("mailer")
    messages = [received(), received()]
    assert publish(*messages) == [Receipt(each.id, Outcome.CONFIRMED) for each in messages]
    assert booked() == ["ledger", "ledger", "mailer", "mailer"]


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_published_again_it_is_confirmed_and_handled_by_nobody(database):
    book("ledger")
    message = received()
    publish(message)
    assert publish(message)[0].outcome is Outcome.CONFIRMED
    assert booked() == ["ledger"]


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_a_consumer_that_raises_fails_the_message_and_spares_the_others(database):
    book("ledger", fails=[Broken(SECRET)])
    book("mailer")
    message, neighbour = received(), received()
    receipts = publish(message, neighbour)
    assert receipts[0] == Receipt(
        message.id, Outcome.FAILED, f"consumer 'ledger': {Broken.__module__}.Broken"
    )
    assert receipts[1].outcome is Outcome.CONFIRMED
    assert booked() == ["ledger", "mailer", "mailer"]
    # At the next attempt only the one that failed has something to do.
    assert publish(message)[0].outcome is Outcome.CONFIRMED
    assert booked() == ["ledger", "ledger", "mailer", "mailer"]


def test_a_topic_that_nobody_takes_is_rejected_with_what_to_do(database):
    book("ledger")
    (receipt,) = publish(received(topic="order.placed"))
    assert receipt.outcome is Outcome.REJECTED
    assert "consumers.py" in receipt.reason


def test_a_topic_that_nobody_takes_may_pass_by_choice(database):
    (receipt,) = publish(received(topic="order.placed"), WITHOUT_CONSUMER="confirm")
    assert receipt.outcome is Outcome.CONFIRMED


def test_a_consumer_can_reject_a_message(database):
    book("ledger", fails=[RejectMessage("no such account")])
    (receipt,) = publish(received())
    assert receipt.outcome is Outcome.REJECTED
    assert receipt.reason == "consumer 'ledger': no such account"


def test_two_consumers_that_share_a_name_get_nothing(database):
    def first(message: Message) -> None:
        LedgerEntry.objects.create(account="first")

    def second(message: Message) -> None:
        LedgerEntry.objects.create(account="second")

    consumer("invoice.*", name="ledger")(first)
    consumer("invoice.*", name="ledger")(second)
    (receipt,) = publish(received())
    assert receipt.outcome is Outcome.REJECTED
    assert "more than once" in receipt.reason
    assert booked() == []


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_database_that_is_away_counts_as_the_broker(database):
    book("ledger")
    with database_away():
        (receipt,) = publish(received())
    assert receipt.outcome is Outcome.BROKER_DOWN


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_connection_of_a_handler_that_broke_is_replaced_whatever_its_alias(database):
    sessions = []

    @consumer("invoice.*", name="reader")
    def handle(message: Message) -> None:
        with connections["postgresql"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            sessions.extend(cursor.fetchone())

    assert publish(received())[0].outcome is Outcome.CONFIRMED
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", sessions)
    first, second = publish(received(), received())
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.CONFIRMED)
    assert sessions[0] != sessions[1]


def test_its_only_option_is_checked():
    check = LocalPublisher.check
    assert check("default", {}) == []
    assert check("default", {"WITHOUT_CONSUMER": "confirm"}) == []
    assert len(check("default", {"WITHOUT_CONSUMER": "drop", "URL": "x"})) == 2
    with pytest.raises(ImproperlyConfiguredOutbox, match="WITHOUT_CONSUMER"):
        LocalPublisher("default", {"WITHOUT_CONSUMER": "drop"})


def test_it_is_always_there():
    publisher = LocalPublisher("default", {})
    assert publisher.probe() == ""
    publisher.close()
    assert publisher.probe() == ""
