"""Few acks, and none that says too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_outbox.brokers.rabbitmq.acks import AckWindow


def window(*tags: int) -> AckWindow:
    made = AckWindow()
    for tag in tags:
        made.received(tag)
    return made


def test_what_was_done_in_order_is_one_ack() -> None:
    acks = window(1, 2, 3, 4)
    for tag in (1, 2, 3):
        acks.done(tag)
    assert acks.take() == [(3, True)]
    assert len(acks) == 1


def test_one_delivery_alone_needs_no_multiple() -> None:
    acks = window(1, 2)
    acks.done(1)
    assert acks.take() == [(1, False)]


def test_what_was_done_out_of_turn_is_acked_by_itself() -> None:
    acks = window(1, 2, 3)
    acks.done(3)
    assert acks.take() == [(3, False)]
    acks.done(1)
    acks.done(2)
    assert acks.take() == [(2, True)]


def test_a_delivery_that_went_back_holds_no_ack_up_and_gets_none() -> None:
    acks = window(1, 2)
    acks.gone(1)
    acks.done(2)
    acks.done(1)
    assert acks.take() == [(2, False)]
    assert acks.take() == []


@given(st.data())
def test_exactly_what_is_done_is_acked_each_once(data: st.DataObject) -> None:
    """Against a broker that keeps the set of what it has delivered."""
    acks, unacked, at_work, next_tag = AckWindow(), set(), [], 1
    for step in data.draw(st.lists(st.sampled_from("rrrddgt"), max_size=60)):
        if step == "r":
            acks.received(next_tag)
            unacked.add(next_tag)
            at_work.append(next_tag)
            next_tag += 1
        elif step == "t" or not at_work:
            for tag, multiple in acks.take():
                covered = {t for t in unacked if t <= tag} if multiple else {tag}
                assert tag in covered <= unacked
                assert covered.isdisjoint(at_work)
                unacked -= covered
            assert unacked == set(at_work)
        else:
            tag = at_work.pop(data.draw(st.integers(0, len(at_work) - 1)))
            if step == "d":
                acks.done(tag)
            else:
                acks.gone(tag)
                unacked.discard(tag)  # the reject goes out at once
        assert len(acks) >= len(at_work)
