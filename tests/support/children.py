"""Work in a process of its own, on the database of the test: to be killed without warning.

A child is a function ``work(say, *arguments)``. What it says is a line that the parent waits for, so a
test kills it at a known point and not after some time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Say: TypeAlias = Callable[[str], None]

PATIENCE = 60


class Child:
    """A running child. Use it in a ``with``: it is killed at the end if it still lives."""

    def __init__(self, work: Callable[..., None], *arguments: str) -> None:
        from django.db import connections

        connection = connections["default"]
        connection.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, f"{work.__module__}:{work.__name__}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
                "CHILD_DATABASE": json.dumps(connection.settings_dict, default=str),
            },
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def wait_to_hear(self, word: str) -> None:
        """Return when the child has said it."""
        while self.hear() != word:
            pass

    def hear(self) -> str:
        """The next thing that the child says."""
        guard = threading.Timer(PATIENCE, self._process.kill)
        guard.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            raise AssertionError("the child ended, or was silent for too long")
        return line.strip()

    def kill(self) -> None:
        """SIGKILL: it can neither roll back nor clean up."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def signal(self, number: int) -> None:
        """Send it a signal that it may answer in its own way."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code of a child that ends by itself."""
        return self._process.wait(PATIENCE)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None


def stand_still() -> None:
    """Until killed, or until the parent is long gone."""
    threading.Event().wait(10 * PATIENCE)
    os._exit(1)


def _main(work: str, *arguments: str) -> None:
    import django

    django.setup()
    from django.db import connections

    database: dict[str, Any] = json.loads(os.environ["CHILD_DATABASE"])
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = database
    module, name = work.split(":")
    getattr(import_module(module), name)(_say, *arguments)


def _say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
