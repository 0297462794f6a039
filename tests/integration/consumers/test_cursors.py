from __future__ import annotations

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.consumers import Consumer, Processed, cursors, process_once
from django_outbox.messages import Message
from django_outbox.models import AggregateCursor, ProcessedMessage
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Broken(Exception):
    pass


def of(sequence: int | None, aggregate: tuple[str, str] = ("shop.invoice", "7")) -> Message:
    kind, identifier = aggregate
    return received(aggregate_type=kind, aggregate_id=identifier, sequence=sequence)


def view(handled: list[int | None]) -> Consumer:
    return Consumer(
        name="view", drop_stale=True, handler=lambda message: handled.append(message.sequence)
    )


def test_what_arrives_late_is_recorded_and_passed_over(database):
    handled: list[int | None] = []
    late = of(2)
    assert process_once(view(handled), of(1)) is Processed.HANDLED
    assert process_once(view(handled), of(3)) is Processed.HANDLED
    assert process_once(view(handled), late) is Processed.STALE
    assert process_once(view(handled), late) is Processed.DUPLICATE
    assert handled == [1, 3]
    assert ProcessedMessage.objects.count() == 3
    assert AggregateCursor.objects.get().sequence == 3


def test_the_same_sequence_again_is_stale(database):
    handled: list[int | None] = []
    process_once(view(handled), of(3))
    assert process_once(view(handled), of(3)) is Processed.STALE


def test_gaps_are_no_reason_to_wait(database):
    handled: list[int | None] = []
    for sequence in (1, 1000, 2**63 - 1):
        assert process_once(view(handled), of(sequence)) is Processed.HANDLED
    assert AggregateCursor.objects.get().sequence == 2**63 - 1


@pytest.mark.parametrize("sequence", [0, -1])
def test_an_aggregate_may_begin_to_count_anywhere(database, sequence):
    assert process_once(view([]), of(sequence)) is Processed.HANDLED


def test_a_message_without_a_sequence_passes(database):
    handled: list[int | None] = []
    process_once(view(handled), of(5))
    assert process_once(view(handled), of(None)) is Processed.HANDLED
    assert process_once(view(handled), of(1, ("", ""))) is Processed.HANDLED
    assert AggregateCursor.objects.get().sequence == 5


def test_aggregates_and_consumers_are_counted_apart(database):
    process_once(view([]), of(5))
    assert process_once(view([]), of(1, ("shop.invoice", "8"))) is Processed.HANDLED
    assert process_once(view([]), of(1, ("shop.order", "7"))) is Processed.HANDLED
    other = Consumer(name="search", drop_stale=True, handler=lambda message: None)
    assert process_once(other, of(1)) is Processed.HANDLED


def test_the_cursor_moves_only_with_the_effect(database):
    def fail(message: Message) -> None:
        raise Broken

    with pytest.raises(Broken):
        process_once(Consumer(name="view", drop_stale=True, handler=fail), of(5))
    assert not AggregateCursor.objects.exists()
    assert process_once(view([]), of(4)) is Processed.HANDLED


def test_only_consumers_that_drop_stale_messages_keep_a_cursor(database):
    process_once(Consumer(name="ledger", handler=lambda message: None), of(5))
    assert (
        process_once(Consumer(name="ledger", handler=lambda message: None), of(4))
        is Processed.HANDLED
    )
    assert not AggregateCursor.objects.exists()


def test_a_known_aggregate_costs_one_statement(database):
    process_once(view([]), of(1))
    with CaptureQueriesContext(connections["default"]) as queries, transaction.atomic():
        assert cursors.advance("default", "view", of(2))
    statements = [q["sql"] for q in queries if q["sql"].upper().startswith(("UPDATE", "INSERT"))]
    assert len(statements) == 1


def test_many_messages_at_once_are_judged_as_one_by_one(database):
    process_once(view([]), of(5))
    messages = [
        of(4),
        of(6),
        of(6),
        of(None),
        of(1, ("shop.invoice", "8")),
        of(3, ("shop.invoice", "8")),
        of(2, ("shop.invoice", "8")),
        of(1, ("shop.order", "7")),
        of(8),
    ]
    with transaction.atomic():
        passed = cursors.advance_all("default", "view", messages)
    assert passed == [False, True, False, True, True, True, False, True, True]
    assert dict(
        AggregateCursor.objects.values_list("aggregate_id", "sequence").filter(
            aggregate_type="shop.invoice"
        )
    ) == {"7": 8, "8": 3}


def test_many_messages_without_a_sequence_ask_the_database_nothing(database):
    with CaptureQueriesContext(connections["default"]) as queries:
        assert cursors.advance_all("default", "view", [of(None)] * 3) == [True] * 3
    assert len(queries) == 0
