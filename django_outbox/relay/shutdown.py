"""SIGTERM or SIGINT: stop in good order; a second one: at once."""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The exit status after a second signal.
EXIT_AT_ONCE = 130
#: Seconds between two looks at whether the parent still lives.
_LOOK_EVERY = 1.0


class Stop:
    """Whether the relay should stop, and something to sleep on until it should.

    No lock is taken in ``set``: it may run in a signal handler that interrupts ``wait``.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Who asked for the stop; empty: nobody yet."""
        self._read_fd, self._write_fd = os.pipe()

    @property
    def is_set(self) -> bool:
        """Whether somebody asked for the stop."""
        return self.reason != ""

    def set(self, reason: str = "stop") -> None:
        """Ask for the stop. Safe in a signal handler and from any thread."""
        if not self.reason:
            self.reason = reason
            os.write(self._write_fd, b"x")

    def wait(self, seconds: float) -> bool:
        """Sleep that long, or until the stop. True: stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            return bool(selector.select(max(seconds, 0.0)))

    def fileno(self) -> int:
        """A descriptor that is readable once the stop is set."""
        return self._read_fd

    def close(self) -> None:
        """Let go of the descriptors."""
        os.close(self._read_fd)
        os.close(self._write_fd)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that SIGTERM and SIGINT set while the block lasts; a second signal ends the process.

    Outside of the main thread, which alone may listen to signals, nothing sets it.
    """
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set:
            os._exit(EXIT_AT_ONCE)
        stop.set(signal.Signals(number).name)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        stop.close()


@contextmanager
def stop_with_parent(pid: int) -> Iterator[Stop]:
    """A Stop for a process that belongs to another one: set by SIGTERM, and when the parent has ended.

    A process manager may send SIGTERM to a whole group and the parent may send another, so a second
    one changes nothing. SIGINT, by which a terminal interrupts the group, is left to the parent.
    To be used in the main thread.
    """
    stop = Stop()

    def watch() -> None:
        while not stop.wait(_LOOK_EVERY):
            if os.getppid() != pid:
                stop.set("the parent process has ended")

    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: stop.set("SIGTERM")),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    watching = threading.Thread(target=watch, name="django_outbox parent", daemon=True)
    watching.start()
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        stop.set()
        watching.join()
        stop.close()
