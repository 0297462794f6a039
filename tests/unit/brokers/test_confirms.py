from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.brokers.rabbitmq.confirms import ConfirmWindow
from django_outbox.publishers.base import Outcome


def window(count, first_tag=1):
    made = ConfirmWindow(first_tag)
    ids = [uuid4() for _ in range(count)]
    for message_id in ids:
        made.sent(message_id)
    return made, ids


def outcomes(made):
    return {receipt.message_id: receipt.outcome for receipt in made.receipts}


def test_an_ack_confirms_one_message():
    made, ids = window(3)
    made.settled(2, multiple=False, acked=True)
    assert outcomes(made) == {ids[1]: Outcome.CONFIRMED}
    assert made.unsettled() == [ids[0], ids[2]]
    assert made.waiting == 2


def test_a_multiple_ack_confirms_everything_up_to_its_tag():
    made, ids = window(4)
    made.settled(3, multiple=True, acked=True)
    assert outcomes(made) == dict.fromkeys(ids[:3], Outcome.CONFIRMED)


def test_a_nack_fails_only_its_own_messages():
    made, ids = window(3)
    made.settled(1, multiple=False, acked=True)
    made.settled(2, multiple=True, acked=False)
    made.settled(3, multiple=True, acked=True)
    assert outcomes(made) == {
        ids[0]: Outcome.CONFIRMED,
        ids[1]: Outcome.FAILED,
        ids[2]: Outcome.CONFIRMED,
    }


def test_a_returned_message_is_rejected_although_it_is_acked():
    made, ids = window(3)
    made.returned(ids[1], "unroutable")
    made.settled(3, multiple=True, acked=True)
    assert outcomes(made) == {
        ids[0]: Outcome.CONFIRMED,
        ids[1]: Outcome.REJECTED,
        ids[2]: Outcome.CONFIRMED,
    }
    assert made.receipts[1].reason == "unroutable"


def test_a_message_that_cannot_be_encoded_takes_no_tag():
    made = ConfirmWindow(5)
    ids = [uuid4() for _ in range(3)]
    made.sent(ids[0])
    made.refused(ids[1], "too long")
    made.sent(ids[2])
    assert made.next_tag == 7
    made.settled(6, multiple=False, acked=True)
    assert outcomes(made) == {ids[1]: Outcome.REJECTED, ids[2]: Outcome.CONFIRMED}


def test_confirms_of_other_rounds_are_passed_over():
    made, ids = window(2, first_tag=10)
    made.settled(9, multiple=True, acked=True)
    made.settled(9, multiple=False, acked=True)
    made.settled(12, multiple=False, acked=True)
    assert made.receipts == []
    made.settled(15, multiple=True, acked=True)
    assert outcomes(made) == dict.fromkeys(ids, Outcome.CONFIRMED)


@pytest.mark.parametrize("multiple", [True, False])
def test_a_repeated_confirm_changes_nothing(multiple):
    made, ids = window(2)
    made.settled(1, multiple=multiple, acked=True)
    made.settled(1, multiple=multiple, acked=False)
    assert outcomes(made) == {ids[0]: Outcome.CONFIRMED}


@given(st.data())
def test_every_message_gets_exactly_one_receipt_whatever_the_broker_says(data):
    """Against a plain model: a dict of what is outstanding."""
    count = data.draw(st.integers(1, 30))
    first = data.draw(st.integers(1, 100))
    made, ids = window(count, first)
    outstanding = dict(zip(range(first, first + count), ids, strict=True))
    returned = data.draw(st.sets(st.sampled_from(ids)))
    for message_id in returned:
        made.returned(message_id, "unroutable")
    expected = {}
    frames = st.tuples(st.integers(0, first + count + 3), st.booleans(), st.booleans())
    for tag, multiple, acked in data.draw(st.lists(frames, max_size=40)):
        made.settled(tag, multiple=multiple, acked=acked)
        for settled in [t for t in outstanding if t == tag or (multiple and t < tag)]:
            message_id = outstanding.pop(settled)
            confirmed = Outcome.CONFIRMED if acked else Outcome.FAILED
            expected[message_id] = Outcome.REJECTED if message_id in returned else confirmed
    assert outcomes(made) == expected
    assert len(made.receipts) == len(expected)
    assert made.unsettled() == list(outstanding.values())
    assert made.waiting == len(outstanding)
