"""Threads that work one job after another: to start one for every batch costs more than to send it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

Job: TypeAlias = Callable[[], None]

#: Seconds after which a thread ends that has had nothing to do.
_IDLE = 5.0


class Crew:
    """As many threads as there are jobs at once. Daemons: a job that never ends keeps no process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Threads that wait, less the jobs that wait for them."""

    def do(self, job: Job) -> None:
        """Have a thread do the job, which begins at once."""
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if self._free:
                        self._free -= 1
                        return
                continue  # a job is on its way
            job()
            del job  # and what it holds on to
            with self._lock:
                self._free += 1
