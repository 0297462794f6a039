"""The search for the message that closes the channel, on a channel that is simulated."""

from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.brokers.rabbitmq.confirms import ConfirmWindow
from django_outbox.brokers.rabbitmq.culprits import find_culprits, judge
from django_outbox.brokers.rabbitmq.rounds import EncodedProperties, End, Ending, Outgoing, Round
from django_outbox.publishers.base import Outcome

CLOSED = Ending(End.CHANNEL_CLOSED, "406 PRECONDITION_FAILED", 406)


def outgoing(count):
    return [Outgoing(uuid4(), "a.b", EncodedProperties(b""), b"") for _ in range(count)]


class Channel:
    """Closes at a bad message; ``confirms`` says whether earlier ones were confirmed by then."""

    def __init__(self, bad, confirms=lambda: True, closes=CLOSED):
        self.bad, self.confirms, self.closes = bad, confirms, closes
        self.attempts = 0

    def __call__(self, chunk):
        self.attempts += 1
        round_ = Round(chunk, 1)
        round_.window = ConfirmWindow(1)
        ending = Ending(End.SETTLED)
        for message in chunk:
            round_.next += 1
            round_.window.sent(message.message_id)
            if message.message_id in self.bad:
                ending = self.closes
                break
            if self.confirms():
                tag = round_.window.next_tag - 1
                round_.window.settled(tag, multiple=False, acked=True)
        if ending.end is End.SETTLED:
            round_.window.settled(round_.window.next_tag, multiple=True, acked=True)
        round_.finish(ending)
        return round_, ending


def found(suspects, channel, has_time=lambda: True):
    receipts = find_culprits(suspects, channel, has_time)
    assert Counter(r.message_id for r in receipts) == Counter(o.message_id for o in suspects)
    return {receipt.message_id: receipt.outcome for receipt in receipts}


@given(st.data())
def test_only_the_culprits_are_charged_however_many_and_wherever_they_are(data):
    suspects = outgoing(data.draw(st.integers(1, 60)))
    bad = data.draw(st.sets(st.sampled_from([o.message_id for o in suspects])))
    choices = data.draw(st.randoms(use_true_random=False))
    outcomes = found(suspects, Channel(bad, confirms=lambda: choices.random() < 0.5))
    for message_id, outcome in outcomes.items():
        assert outcome is (Outcome.REJECTED if message_id in bad else Outcome.CONFIRMED)


def test_one_culprit_in_a_batch_is_found_in_few_attempts():
    suspects = outgoing(500)
    channel = Channel({suspects[377].message_id}, confirms=lambda: False)
    outcomes = found(suspects, channel)
    assert outcomes[suspects[377].message_id] is Outcome.REJECTED
    assert channel.attempts <= 20


def test_what_time_did_not_allow_to_try_is_not_charged():
    suspects = outgoing(8)
    channel = Channel({suspects[0].message_id}, confirms=lambda: False)
    outcomes = found(suspects, channel, has_time=lambda: channel.attempts < 2)
    assert set(outcomes.values()) == {Outcome.NOT_SENT}


@pytest.mark.parametrize("end", [End.LOST, End.BLOCKED])
def test_a_broker_that_goes_away_meanwhile_charges_nobody(end):
    suspects = outgoing(8)
    channel = Channel({suspects[0].message_id}, closes=Ending(end, "gone"))
    assert set(found(suspects, channel).values()) == {Outcome.BROKER_DOWN}


def test_the_broker_s_own_fault_is_a_failed_attempt_not_a_rejection():
    (only,) = outgoing(1)
    channel = Channel({only.message_id}, closes=Ending(End.CHANNEL_CLOSED, "541", 541))
    assert found([only], channel) == {only.message_id: Outcome.FAILED}


def ended(ending, sent, unsent):
    round_ = Round(outgoing(sent + unsent), 1)
    round_.window = ConfirmWindow(1)
    for message in round_.outgoing[:sent]:
        round_.window.sent(message.message_id)
    round_.next = sent
    receipts, suspects = judge(round_, ending)
    return Counter(receipt.outcome for receipt in receipts), len(suspects)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending(End.CHANNEL_CLOSED, "404 NOT_FOUND - no exchange 'x'"), {Outcome.REJECTED: 5}),
        (
            Ending(End.CHANNEL_CLOSED, "403 ACCESS_REFUSED - access to exchange 'x' refused"),
            {Outcome.REJECTED: 5},
        ),
        (Ending(End.TIMED_OUT), {Outcome.FAILED: 3, Outcome.NOT_SENT: 2}),
        (Ending(End.TOO_SLOW), {Outcome.NOT_SENT: 5}),
        (Ending(End.CLOSED), {Outcome.NOT_SENT: 5}),
        (Ending(End.LOST), {Outcome.BROKER_DOWN: 5}),
        (Ending(End.BLOCKED), {Outcome.BROKER_DOWN: 5}),
    ],
)
def test_what_the_end_of_a_round_means_to_its_messages(ending, expected):
    assert ended(ending, sent=3, unsent=2) == (expected, 0)


@pytest.mark.parametrize(
    "ending",
    [
        Ending(End.CHANNEL_CLOSED, "406", 406),
        Ending(End.CHANNEL_CLOSED, "403 ACCESS_REFUSED - write access to topic 'a.b'", 403),
        Ending(End.CONNECTION_REFUSED, "501", 501),
    ],
)
def test_a_channel_closed_over_a_message_makes_all_its_messages_suspects(ending):
    assert ended(ending, sent=3, unsent=2) == ({}, 5)
