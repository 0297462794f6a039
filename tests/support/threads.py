"""Real threads with database connections of their own, and waiting for what happens in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from django.db import connections

T = TypeVar("T")

#: Seconds until a wait counts as lost. Generous: the machine may be busy.
PATIENCE = 60


class Worker(Generic[T]):
    """A thread that runs one function and keeps what it returned or raised."""

    def __init__(self, work: Callable[..., T], *args: Any) -> None:
        self._work = work
        self._args = args
        self._returned: list[T] = []
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """What the function returned; raises what it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the thread did not end"
        if self._raised is not None:
            raise self._raised
        return self._returned[0]

    @property
    def is_at_work(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._returned.append(self._work(*self._args))
        except BaseException as error:
            self._raised = error
        finally:
            connections.close_all()


def wait_until(condition: Callable[[], object], what: str, every: float = 0.01) -> None:
    """Ask every so many seconds until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(every)


def wait_for(event: threading.Event, what: str) -> None:
    """Wait for something that another thread does."""
    assert event.wait(PATIENCE), f"waited in vain until {what}"


def elsewhere(work: Callable[[], T]) -> Future[T]:
    """Run it in a thread, and close what the thread has opened."""

    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future
