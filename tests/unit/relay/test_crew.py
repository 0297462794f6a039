"""The threads that publish: as many as there are jobs at once, used again, gone when idle."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from django_outbox.relay import crew as module
from django_outbox.relay.crew import Crew
from tests.support.threads import wait_until

NAME = "a crew under test"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    monkeypatch.setattr(module, "_IDLE", 0.2)
    return Crew(NAME)


def test_jobs_that_are_handed_over_together_are_done_at_the_same_time(crew: Crew) -> None:
    together = threading.Barrier(4)
    for _ in range(3):
        crew.do(lambda: together.wait(30) and None)
    together.wait(30)


def test_a_thread_does_one_job_after_the_other_and_ends_when_none_comes(crew: Crew) -> None:
    done: SimpleQueue[int] = SimpleQueue()
    workers = set()
    for _ in range(20):
        crew.do(lambda: done.put(threading.get_ident()))
        workers.add(done.get(timeout=30))
        wait_until(lambda: crew._free == 1, "the thread is free again", every=0.001)
    assert len(workers) == 1
    wait_until(lambda: threads() == 0, "the thread has ended")
    crew.do(lambda: done.put(0))
    assert done.get(timeout=30) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_that_raises_takes_nothing_but_its_thread_along(crew: Crew) -> None:
    done: SimpleQueue[int] = SimpleQueue()

    def fail() -> None:
        raise ValueError

    crew.do(fail)
    wait_until(lambda: threads() == 0, "its thread has ended")
    crew.do(lambda: done.put(1))
    assert done.get(timeout=30) == 1


def test_jobs_that_come_just_when_a_thread_gives_up_waiting_are_done(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.0005)
    done: SimpleQueue[int] = SimpleQueue()
    for number in range(2000):
        crew.do(lambda number=number: done.put(number))  # type: ignore[misc]
        assert done.get(timeout=30) == number
        threading.Event().wait(0.0005)
