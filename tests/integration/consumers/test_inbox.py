from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from django.test import TestCase

from django_outbox.consumers import Consumer, Processed, consumer, process_once
from django_outbox.context import current_context
from django_outbox.exceptions import (
    ImproperlyConfiguredOutbox,
    MalformedMessage,
    UnknownConsumer,
)
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage, ProcessedMessage
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.testapp.models import Balance, LedgerEntry

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Broken(Exception):
    pass


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id), amount=1)


def book_then_raise(message: Message) -> None:
    book(message)
    raise Broken


LEDGER = Consumer(name="ledger", handler=book)


def entries() -> int:
    return LedgerEntry.objects.count()


def inbox() -> list[tuple[str, UUID]]:
    return list(ProcessedMessage.objects.values_list("consumer", "message_id"))


def test_a_message_takes_effect_once_however_often_it_comes(database):
    message = received()
    happened = [process_once(LEDGER, message) for _ in range(3)]
    assert happened == [Processed.HANDLED, Processed.DUPLICATE, Processed.DUPLICATE]
    assert entries() == 1
    assert inbox() == [("ledger", message.id)]


def test_the_inbox_row_tells_what_was_processed(database):
    message = received(aggregate_type="shop.invoice", aggregate_id="7", sequence=3)
    process_once(LEDGER, message)
    row = ProcessedMessage.objects.get()
    assert (row.topic, row.aggregate_type, row.aggregate_id, row.sequence) == (
        "invoice.issued",
        "shop.invoice",
        "7",
        3,
    )
    assert row.processed_at is not None


def test_two_consumers_of_one_message_each_take_it(database):
    message = received()
    process_once(LEDGER, message)
    assert process_once(replace(LEDGER, name="mailer"), message) is Processed.HANDLED
    assert entries() == 2


def test_what_a_handler_raises_rolls_back_effect_and_inbox_row(database):
    message = received()
    with pytest.raises(Broken):
        process_once(LEDGER, message, book_then_raise)
    assert (entries(), inbox()) == (0, [])
    assert process_once(LEDGER, message) is Processed.HANDLED


def test_inside_a_transaction_everything_belongs_to_it(database):
    message = received()
    with transaction.atomic():
        assert process_once(LEDGER, message) is Processed.HANDLED
        transaction.set_rollback(True)
    assert (entries(), inbox()) == (0, [])


def test_a_duplicate_leaves_the_callers_transaction_usable(database):
    message = received()
    process_once(LEDGER, message)
    with transaction.atomic():
        assert process_once(LEDGER, message) is Processed.DUPLICATE
        Balance.objects.create(account="after", amount=1)
    assert Balance.objects.filter(account="after").exists()


def test_an_exception_leaves_the_callers_transaction_usable(database):
    message = received()
    with transaction.atomic():
        Balance.objects.create(account="before")
        with pytest.raises(Broken):
            process_once(LEDGER, message, book_then_raise)
        Balance.objects.create(account="after")
    assert Balance.objects.count() == 2
    assert (entries(), inbox()) == (0, [])


def test_an_integrity_error_leaves_the_callers_transaction_usable(database):
    Balance.objects.create(account="taken")
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            process_once(LEDGER, received(), lambda m: Balance.objects.create(account="taken"))
        Balance.objects.create(account="after")
    assert Balance.objects.count() == 2
    assert inbox() == []


def test_an_integrity_error_that_the_handler_deals_with_costs_nothing(database):
    Balance.objects.create(account="taken")

    def careful(message: Message) -> None:
        try:
            with transaction.atomic():
                Balance.objects.create(account="taken")
        except IntegrityError:
            book(message)

    assert process_once(LEDGER, received(), careful) is Processed.HANDLED
    assert entries() == 1


def test_the_handler_runs_in_the_context_of_its_message(database):
    seen = []
    message = received(correlation_id="order-4711")
    process_once(LEDGER, message, lambda m: seen.append(current_context()))
    (context,) = seen
    assert context.correlation_id == "order-4711"
    assert context.causation_id == str(message.id)
    assert context.consumer == "ledger"
    assert current_context().consumer == ""


def test_a_message_without_a_correlation_id_begins_a_chain(database):
    seen = []
    message = received()
    process_once(LEDGER, message, lambda m: seen.append(current_context().correlation_id))
    assert seen == [str(message.id)]


def test_what_the_handler_enqueues_names_its_cause_and_commits_with_it(database):
    from django_outbox import enqueue

    def answer(message: Message) -> None:
        enqueue("invoice.booked", {"n": 1})

    def answer_then_raise(message: Message) -> None:
        answer(message)
        raise Broken

    message = received(correlation_id="order-4711")
    with pytest.raises(Broken):
        process_once(LEDGER, message, answer_then_raise)
    assert not OutboxMessage.objects.exists()
    process_once(LEDGER, message, answer)
    process_once(LEDGER, message, answer)
    row = OutboxMessage.objects.get()
    assert (row.correlation_id, row.causation_id) == ("order-4711", str(message.id))


def test_a_declared_consumer_goes_by_its_name(database):
    consumer("invoice.issued", name="declared")(book)
    assert process_once("declared", received()) is Processed.HANDLED
    assert entries() == 1


def test_any_name_will_do_for_a_handler_that_is_given(database):
    message = received()
    assert process_once("ad hoc", message, book) is Processed.HANDLED
    assert process_once("ad hoc", message, book) is Processed.DUPLICATE


def test_a_name_without_a_handler_is_refused_and_nothing_recorded(database):
    with pytest.raises(UnknownConsumer, match="'nobody'"):
        process_once("nobody", received())
    assert inbox() == []


def test_a_name_that_is_too_long_for_the_inbox_is_refused(database):
    with pytest.raises(ImproperlyConfiguredOutbox, match="1 to 100"):
        process_once("x" * 101, received(), book)


def test_the_nil_uuid_is_no_identity(database):
    with pytest.raises(MalformedMessage, match="nil UUID"):
        process_once(LEDGER, received(id=UUID(int=0)))
    assert (entries(), inbox()) == (0, [])


@pytest.mark.parametrize(
    ("field", "bound"), [("topic", 255), ("aggregate_type", 100), ("aggregate_id", 255)]
)
def test_an_identifier_fits_its_column_or_is_refused(database, field, bound):
    assert process_once(LEDGER, received(**{field: "ü" * bound})) is Processed.HANDLED
    with pytest.raises(MalformedMessage) as refused:
        process_once(LEDGER, received(**{field: "ü" * (bound + 1)}))
    assert field in str(refused.value)
    assert "ü" not in str(refused.value)


def test_a_handler_that_turns_out_to_be_async_is_not_taken_for_done(database):
    async def later(message: Message) -> None:
        book(message)

    message = received()
    with pytest.raises(ImproperlyConfiguredOutbox, match="async"):
        process_once(LEDGER, message, lambda m: later(m))
    assert inbox() == []


def test_each_handler_has_a_payload_of_its_own(database):
    seen = []

    def spoil(message: Message) -> None:
        seen.append(message.payload["n"])
        message.payload["n"] = "spoilt"

    message = received()
    for name in ("one", "two"):
        process_once(name, message, spoil)
    assert seen == [1, 1]


def test_a_consumer_that_takes_lists_gets_a_list_of_one(database):
    got = []
    message = received()
    process_once(replace(LEDGER, batch=100, handler=got.append), message)
    assert got == [[message]]


def test_a_consumer_may_have_its_inbox_in_another_database(database):
    # 'default' is one of these aliases; the consumer names the alias itself.
    alias = database.connection.vendor
    message = received()
    elsewhere = replace(LEDGER, database=alias, handler=lambda m: None)
    assert process_once(elsewhere, message) is Processed.HANDLED
    assert ProcessedMessage.objects.using(alias).get().message_id == message.id


def test_old_rows_can_be_told_from_new_ones(database):
    from datetime import timedelta

    from django.db.models import F

    old, new = received(), received()
    process_once(LEDGER, old)
    process_once(LEDGER, new)
    ProcessedMessage.objects.filter(message_id=old.id).update(
        processed_at=F("processed_at") - timedelta(days=8)
    )
    rows = ProcessedMessage.objects.older_than(timedelta(days=7))
    assert [row.message_id for row in rows] == [old.id]


def test_it_works_inside_the_transaction_of_a_test_case(database):
    class Inside(TestCase):
        databases = {"default"}

        def test(self) -> None:
            message = received(id=uuid4())
            with pytest.raises(Broken):
                process_once(LEDGER, message, book_then_raise)
            assert process_once(LEDGER, message) is Processed.HANDLED
            assert process_once(LEDGER, message) is Processed.DUPLICATE

    result = Inside("test").run()
    assert result is not None
    assert result.wasSuccessful(), result.errors + result.failures
