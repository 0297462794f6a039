from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.consumers import Consumer, Processed
from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.verdicts import Failed, Failure
from django_outbox.context import current_context
from django_outbox.messages import Message
from django_outbox.models import AggregateCursor, ProcessedMessage
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.testapp.models import LedgerEntry

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Bad(Exception):
    pass


def book_all(messages: list[Message]) -> None:
    LedgerEntry.objects.bulk_create(
        [LedgerEntry(account="sales", reference=str(message.id)) for message in messages]
    )


def refusing(*bad: Message, calls: list[int] | None = None) -> Callable[..., None]:
    """Books a list, and raises at the end where one of the bad messages is in it."""

    def handle(messages: list[Message]) -> None:
        if calls is not None:
            calls.append(len(messages))
        book_all(messages)
        if {message.id for message in messages} & {message.id for message in bad}:
            raise Bad

    return handle


def ledger(handler: Callable[..., None] = book_all, **options: object) -> Consumer:
    return Consumer(**{"name": "ledger", "batch": 500, "handler": handler, **options})


def run(consumer: Consumer, messages: list[Message]) -> list[Processed | Failed]:
    return process_batch(consumer, messages, lambda message, error, failed: None)


def booked() -> set[str]:
    return set(LedgerEntry.objects.values_list("reference", flat=True))


def test_a_batch_is_handled_in_one_call_and_one_transaction(database):
    calls: list[int] = []
    messages = [received() for _ in range(20)]
    with CaptureQueriesContext(connections["default"]) as queries:
        happened = run(ledger(refusing(calls=calls)), messages)
    assert happened == [Processed.HANDLED] * 20
    assert calls == [20]
    assert booked() == {str(message.id) for message in messages}
    inserts = [q["sql"] for q in queries if "INSERT" in q["sql"].upper()]
    assert len(inserts) == 2  # the inbox rows, and the effect


def test_the_handler_gets_only_what_is_new_in_the_order_it_came(database):
    messages = [received() for _ in range(10)]
    run(ledger(), messages[3:6])
    got: list[list[Message]] = []
    happened = run(ledger(got.append), messages)
    assert got == [messages[:3] + messages[6:]]
    assert happened == [Processed.HANDLED] * 3 + [Processed.DUPLICATE] * 3 + [Processed.HANDLED] * 4


def test_a_message_that_stands_twice_in_a_batch_is_handled_once(database):
    message = received()
    got: list[list[Message]] = []
    happened = run(ledger(got.append), [message, received(), message])
    assert happened == [Processed.HANDLED, Processed.HANDLED, Processed.DUPLICATE]
    assert len(got[0]) == 2


def test_a_batch_of_known_messages_does_not_call_the_handler(database):
    messages = [received() for _ in range(3)]
    run(ledger(), messages)
    got: list[list[Message]] = []
    assert run(ledger(got.append), messages) == [Processed.DUPLICATE] * 3
    assert got == []


@pytest.mark.parametrize("bad_at", [0, 7, 15])
def test_only_the_bad_message_is_charged(database, bad_at):
    messages = [received() for _ in range(16)]
    bad = messages[bad_at]
    told: list[tuple[Message, Exception, Failed]] = []
    happened = process_batch(ledger(refusing(bad)), messages, lambda *args: told.append(args))
    assert happened[bad_at] == Failed(Failure.RAISED, f"{Bad.__module__}.Bad")
    assert happened.count(Processed.HANDLED) == 15
    assert booked() == {str(message.id) for message in messages if message is not bad}
    assert not ProcessedMessage.objects.filter(message_id=bad.id).exists()
    assert ProcessedMessage.objects.count() == 15
    ((message, error, failed),) = told
    assert message is bad
    assert isinstance(error, Bad)
    assert failed == happened[bad_at]


def test_a_bad_message_is_found_by_halves(database):
    calls: list[int] = []
    messages = [received() for _ in range(64)]
    run(ledger(refusing(messages[40], calls=calls)), messages)
    assert len(calls) == 1 + 2 * 6
    assert calls[0] == 64


def test_several_bad_messages_are_each_charged(database):
    messages = [received() for _ in range(16)]
    happened = run(ledger(refusing(messages[2], messages[3], messages[11])), messages)
    assert [index for index, each in enumerate(happened) if isinstance(each, Failed)] == [2, 3, 11]
    assert len(booked()) == 13


def test_a_batch_of_bad_messages_only_leaves_nothing(database):
    messages = [received() for _ in range(4)]
    happened = run(ledger(refusing(*messages)), messages)
    assert all(isinstance(each, Failed) for each in happened)
    assert not LedgerEntry.objects.exists()
    assert not ProcessedMessage.objects.exists()


def test_a_bad_message_succeeds_when_it_comes_again(database):
    messages = [received() for _ in range(4)]
    run(ledger(refusing(messages[1])), messages)
    assert run(ledger(), messages) == [
        Processed.DUPLICATE,
        Processed.HANDLED,
        Processed.DUPLICATE,
        Processed.DUPLICATE,
    ]
    assert len(booked()) == 4


def test_a_message_without_identity_does_not_stop_its_neighbours(database):
    from uuid import UUID

    messages = [received(), received(id=UUID(int=0)), received()]
    happened = run(ledger(), messages)
    assert [type(each) for each in happened] == [Processed, Failed, Processed]
    assert happened[1].failure is Failure.MALFORMED
    assert len(booked()) == 2


def test_more_messages_than_the_batch_size_are_several_batches(database):
    calls: list[int] = []
    happened = run(ledger(refusing(calls=calls), batch=4), [received() for _ in range(10)])
    assert calls == [4, 4, 2]
    assert happened == [Processed.HANDLED] * 10


def test_stale_messages_are_kept_from_the_handler(database):
    def of(sequence: int) -> Message:
        return received(aggregate_type="shop.invoice", aggregate_id="7", sequence=sequence)

    got: list[list[Message]] = []
    messages = [of(1), of(3), of(2), of(4)]
    happened = run(ledger(got.append, drop_stale=True), messages)
    assert happened == [
        Processed.HANDLED,
        Processed.HANDLED,
        Processed.STALE,
        Processed.HANDLED,
    ]
    assert got == [[messages[0], messages[1], messages[3]]]
    assert AggregateCursor.objects.get().sequence == 4
    assert ProcessedMessage.objects.count() == 4


def test_an_integrity_error_in_a_batch_leaves_the_callers_transaction_usable(database):
    LedgerEntry.objects.create(id=1, account="taken")

    def handle(messages: list[Message]) -> None:
        LedgerEntry.objects.bulk_create(
            [LedgerEntry(id=message.payload["n"], account="sales") for message in messages]
        )

    messages = [received(body=f'{{"n": {n}}}') for n in (2, 1, 3)]
    with transaction.atomic():
        happened = run(ledger(handle), messages)
        LedgerEntry.objects.create(account="after")
    assert [type(each) for each in happened] == [Processed, Failed, Processed]
    assert happened[1].reason.endswith(IntegrityError.__name__)
    assert LedgerEntry.objects.filter(account="after").exists()


def test_a_batch_has_a_consumer_and_a_single_message_a_cause(database):
    contexts = []
    consumer = ledger(lambda messages: contexts.append(current_context()))
    run(consumer, [received(), received()])
    alone = received(correlation_id="order-4711")
    run(consumer, [alone])
    assert [each.consumer for each in contexts] == ["ledger", "ledger"]
    assert contexts[0].causation_id == ""
    assert (contexts[1].correlation_id, contexts[1].causation_id) == ("order-4711", str(alone.id))


def test_a_half_that_is_tried_again_has_payloads_that_nobody_changed(database):
    seen = []

    def spoil(messages: list[Message]) -> None:
        for message in messages:
            seen.append(message.payload["n"])
            message.payload["n"] = "spoilt"
        if len(messages) > 1:
            raise Bad

    happened = run(ledger(spoil), [received(), received()])
    assert happened == [Processed.HANDLED] * 2
    assert seen == [1] * 4


def test_no_messages_are_no_work(database):
    with CaptureQueriesContext(connections["default"]) as queries:
        assert run(ledger(), []) == []
    assert len(queries) == 0
