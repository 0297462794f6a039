"""Workers and relays as real processes, on the database and the broker of the test.

What handlers do they write into a diary, which tests wait for: see tests/transports/behaviour.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from tests.support.threads import PATIENCE, wait_until

_ROOT = Path(__file__).parents[2]


class Diary:
    """What the handlers of all processes of a test wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, what: str = "", message_id: UUID | str | None = None) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [
            entry
            for entry in found
            if what in ("", entry["what"]) and message_id in (None, entry["id"], UUID(entry["id"]))
        ]

    def wait_for(self, what: str, message_id: UUID | str | None = None, times: int = 1) -> None:
        wait_until(
            lambda: len(self.entries(what, message_id)) >= times,
            f"{what!r} is in the diary {times} times",
            every=0.05,
        )


class Process:
    """One process, killed at the end of the test if it still lives."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        self._arguments, self._environment = arguments, environment
        self._file = log.open("ab")
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._arguments,
            cwd=_ROOT,
            env=self._environment,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def restart(self) -> None:
        """Start it again after its end."""
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """SIGKILL to it alone: what it has started ends with it, or not, as in life."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: int) -> None:
        """Send it a signal that it may answer in its own way."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End it and everything it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        self._file.close()

    def wait(self) -> int:
        """The exit code of a process that ends by itself or was told to."""
        return self._process.wait(PATIENCE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_line(self, text: str) -> None:
        """Return when its log holds the text."""
        wait_until(lambda: text in self.text, f"{text!r} is in {self.log.name}", every=0.05)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Workers:
    """Starts processes for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.diary = Diary(folder / "diary")
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        if self.diary.path.exists():
            print(self.diary.path.read_text()[-8000:])

    def outbox_consume(self, outbox: dict[str, Any], *arguments: str, **more: Any) -> Process:
        return self.manage(outbox, "outbox_consume", *arguments, **more)

    def outbox_relay(self, outbox: dict[str, Any], *arguments: str, **more: Any) -> Process:
        return self.manage(outbox, "outbox_relay", *arguments, **more)

    def manage(self, outbox: dict[str, Any], *arguments: str, **more: Any) -> Process:
        """``manage.py`` with these arguments."""
        return self._run(["-m", "django", *arguments], outbox, **more)

    def celery(
        self,
        outbox: dict[str, Any],
        broker: str,
        queue: str,
        *arguments: str,
        app: str = "tests.transports.celeryapp",
        ready: str = " ready.",
        **more: Any,
    ) -> Process:
        """A Celery worker with two processes, unless the arguments say otherwise.

        Returns when its log says ``ready``.
        """
        given = ["--concurrency", "2", "--loglevel", "INFO", "--without-gossip"]
        given += ["--without-mingle", "--hostname", f"worker{self._count}@%h"]
        worker = self._run(
            ["-m", "celery", "--app", app, "worker", *given, *arguments],
            outbox,
            CHILD_BROKER=broker,
            CHILD_QUEUE=queue,
            **more,
        )
        worker.wait_for_line(ready)
        return worker

    def _run(
        self,
        arguments: list[str],
        outbox: dict[str, Any],
        database: dict[str, Any] | None = None,
        **environment: str,
    ) -> Process:
        self._count += 1
        connection = connections["default"]
        settings = {**connection.settings_dict, **(database or {})}
        process = Process(
            [sys.executable, "-W", "ignore::UserWarning", *arguments],
            {
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.transports.settings",
                "CHILD_DATABASE": json.dumps(settings, default=str),
                "CHILD_OUTBOX": json.dumps(outbox),
                "CHILD_DIARY": str(self.diary.path),
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": str(_ROOT),
                "C_FORCE_ROOT": "1",
                **environment,
            },
            self.folder / f"{self._count}.log",
        )
        self._stack.callback(process.close)
        return process


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Processes of this test."""
    with Workers(tmp_path) as made:
        yield made
    for log in sorted(tmp_path.glob("*.log")):
        print(
            f"----- {log.name}\n{log.read_text(errors='replace')[-8000:]}"
        )  # where the test failed
