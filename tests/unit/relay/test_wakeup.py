"""How long an idle relay sleeps, with a listener that only writes down what it is asked."""

import random
import threading
from datetime import timedelta

import pytest

from django_outbox.relay.shutdown import Stop
from django_outbox.relay.wakeup import Wakeup


class Listener:
    def __init__(self, can_announce=True):
        self.can_announce = can_announce
        self.waits = []
        self.cancelled = 0

    def prepare(self):
        return self.can_announce

    def wait(self, seconds, wake_fd=None):
        self.waits.append(seconds)
        return False

    def cancel(self):
        self.cancelled += 1

    def close(self):
        pass


class Highest(random.Random):
    def uniform(self, a, b):
        return b


class Lowest(random.Random):
    def uniform(self, a, b):
        return a


def interval(shortest, longest):
    return timedelta(seconds=shortest), timedelta(seconds=longest)


@pytest.fixture
def stop():
    made = Stop()
    yield made
    made.close()


def never():
    return None


def test_polls_grow_rarer_while_nothing_comes_and_frequent_again_after_work():
    wakeup = Wakeup(interval(0.2, 1), rng=Highest())
    assert [wakeup.next_wait() for _ in range(5)] == [0.2, 0.4, 0.8, 1, 1]
    wakeup.had_work()
    assert wakeup.next_wait() == 0.2


def test_a_poll_comes_no_sooner_than_the_shortest_wait():
    wakeup = Wakeup(interval(0.2, 1), rng=Lowest())
    assert [wakeup.next_wait() for _ in range(5)] == [0.2, 0.2, 0.4, 0.5, 0.5]


def test_a_listener_that_announced_the_sleep_is_waited_on_for_the_longest_wait(stop):
    listener = Listener()
    Wakeup(interval(0.2, 30), listener).sleep(stop, never)
    assert listener.waits == [30]


def test_a_listener_that_could_not_announce_it_polls(stop):
    listener = Listener(can_announce=False)
    Wakeup(interval(0.2, 30), listener, Highest()).sleep(stop, never)
    assert listener.waits == [0.2]


def test_a_scheduled_row_ends_the_sleep(stop):
    listener = Listener()
    Wakeup(interval(5, 30), listener).sleep(stop, lambda: 0.3)
    assert listener.waits == [0.3]


def test_without_a_listener_a_scheduled_row_ends_a_long_sleep(stop):
    asked = []

    def seconds_until_due():
        asked.append(True)
        return 0.01

    wakeup = Wakeup(interval(1000, 1000))
    wakeup.sleep(stop, seconds_until_due)
    assert asked, "or this test would have slept for a quarter of an hour"


def test_work_that_came_before_the_sleep_was_announced_is_not_slept_through(stop):
    listener = Listener()
    Wakeup(interval(0.2, 30), listener).sleep(stop, lambda: 0)
    assert (listener.waits, listener.cancelled) == ([], 1)


def test_work_that_somebody_else_has_locked_is_polled_for_and_not_raced_for(stop):
    listener = Listener()
    wakeup = Wakeup(interval(0.2, 30), listener, Highest())
    for _ in range(3):
        wakeup.sleep(stop, lambda: 0)
    assert listener.waits == [0.4, 0.8]
    wakeup.sleep(stop, never)
    wakeup.sleep(stop, lambda: 0)
    assert listener.waits == [0.4, 0.8, 30], "something new is looked at once again"


def test_a_broker_that_is_to_be_asked_ends_the_sleep(stop):
    listener = Listener()
    Wakeup(interval(0.2, 30), listener).sleep(stop, never, at_most=0.5)
    assert listener.waits == [0.5]


def test_a_stop_ends_the_sleep(stop):
    threading.Timer(0.05, stop.set).start()
    Wakeup(interval(1000, 1000)).sleep(stop, never)
    assert stop.is_set
