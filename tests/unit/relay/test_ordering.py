from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from django_outbox.batches import Claimed
from django_outbox.messages import Message
from django_outbox.relay.ordering import queue_of, rounds
from django_outbox.routing import Ordering

ORDERINGS = {"strict": Ordering.STRICT, "relaxed": Ordering.RELAXED, "none": Ordering.NONE}


def claimed(row_id, topic="strict", aggregate="a"):
    message = Message(
        id=uuid4(),
        topic=topic,
        body="{}",
        aggregate_type="t" if aggregate else "",
        aggregate_id=aggregate,
    )
    return Claimed(row_id, 1, 10, message)


BATCHES = st.lists(
    st.tuples(st.sampled_from(sorted(ORDERINGS)), st.sampled_from(["", "a", "b", "c"])), max_size=40
).map(lambda kinds: [claimed(row, *kind) for row, kind in enumerate(kinds)])


def numbered(batch):
    found = {}
    for number, round_ in enumerate(rounds(batch, ORDERINGS.__getitem__)):
        for each in round_:
            found[each.row_id] = number
    return found


@given(BATCHES)
def test_every_message_goes_out_once(batch):
    sent = [each.row_id for round_ in rounds(batch, ORDERINGS.__getitem__) for each in round_]
    assert sorted(sent) == [each.row_id for each in batch]


@given(BATCHES)
def test_a_strict_message_follows_its_aggregates_earlier_ones_by_a_round(batch):
    number = numbered(batch)
    for position, each in enumerate(batch):
        queue = queue_of(each, ORDERINGS.__getitem__)
        earlier = [
            e for e in batch[:position] if queue and queue_of(e, ORDERINGS.__getitem__) == queue
        ]
        for other in earlier:
            if each.message.topic == "strict":
                assert number[other.row_id] < number[each.row_id]
            else:
                assert number[other.row_id] <= number[each.row_id]


@given(BATCHES)
def test_within_a_round_messages_keep_their_order(batch):
    for round_ in rounds(batch, ORDERINGS.__getitem__):
        assert [each.row_id for each in round_] == sorted(each.row_id for each in round_)


@given(BATCHES)
def test_what_nothing_holds_back_goes_out_at_once(batch):
    number = numbered(batch)
    for each in batch:
        if queue_of(each, ORDERINGS.__getitem__) is None:
            assert number[each.row_id] == 0


def test_messages_of_one_aggregate_take_a_round_each_and_others_do_not_wait():
    batch = [claimed(1), claimed(2, aggregate="b"), claimed(3), claimed(4)]
    assert numbered(batch) == {1: 0, 2: 0, 3: 1, 4: 2}
