"""Events from RabbitMQ received inside a Celery worker, beside its tasks.

The worker starts ``outbox_consume`` as a process of its own, starts it again when it ends, and takes it
along when it stops. Why a process and no thread: docs/decisions/0015-receiving-in-a-celery-worker.md.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from celery import Celery, bootsteps
from celery.worker import state
from django.conf import settings

from django_outbox.backoff import retry_delay
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.policies import RetryPolicy

__all__ = ["install"]

logger = logging.getLogger(__name__)

_worker: Any = state
"""What the worker's signal handlers write to."""
#: Seconds between two looks at the receiver.
_LOOK_EVERY: Final = 1.0
#: How long to wait before a receiver that has ended is started again.
_PAUSE: Final = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=30))
#: A receiver that has lived for so many seconds began well: the next pause is short again.
_LIVED_WELL: Final = 60.0


def install(
    app: Celery, *, queues: Sequence[str], consumers: Sequence[str] = (), prefetch: int = 100
) -> None:
    """Have every worker of the app receive events from the queues, for the named consumers or for all.

    Call it in the module of the app, after the app is made; several calls are several receivers. The
    parameters are the options of ``outbox_consume``, and so is what happens to a delivery. They are
    looked at when a worker starts; it ends with ``ImproperlyConfiguredOutbox`` where they are wrong.
    """
    if isinstance(queues, str) or not queues:
        raise ImproperlyConfiguredOutbox('install(): queues must be a list of names: ["ledger"].')
    if isinstance(consumers, str):
        raise ImproperlyConfiguredOutbox('install(): consumers must be a list: ["ledger"].')

    # Celery knows a step by its name: the same call twice is one receiver.
    for_whom = ", ".join(consumers) or "all consumers"

    class Receiving(_Receiving):
        name = f"django_outbox receiving from {', '.join(queues)} for {for_whom}"
        options = (tuple(queues), tuple(consumers), prefetch)

    app.steps["worker"].add(Receiving)


class _Receiving(bootsteps.StartStopStep):
    """Keeps one receiver running from the worker's start to its stop."""

    requires = ("celery.worker.components:Timer",)
    options: tuple[tuple[str, ...], tuple[str, ...], int]

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._process: subprocess.Popen[bytes] | None = None
        self._looks: Any = None
        self._failures = 0
        self._started_at = self._restart_at = 0.0

    def start(self, worker: Any) -> None:
        """Start the receiver, and look after it from now on."""
        _check(*self.options)
        self._launch()
        self._looks = worker.timer.call_repeatedly(_LOOK_EVERY, self._look)

    def close(self, worker: Any) -> None:
        """Have it finish the message at work, while the worker finishes its tasks."""
        if self._looks is not None:
            self._looks.cancel()
        if self._is_running():
            self._running.terminate()

    def stop(self, worker: Any) -> None:
        """Wait for its end, as the worker waits for its tasks: until told to stop the hard way."""
        while self._is_running():
            if _worker.should_terminate:
                self.terminate(worker)
            time.sleep(0.05)

    def terminate(self, worker: Any) -> None:
        """End it at once: what it had at work is rolled back and delivered again."""
        if self._is_running():
            self._running.kill()
            self._running.wait()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # noqa: S101 - asked for only where _is_running()
        return self._process

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _launch(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            _command(*self.options), env=_environment(), stdin=subprocess.DEVNULL
        )
        self._started_at, self._restart_at = time.monotonic(), 0.0
        logger.info(
            "The receiver %d is started: %s.",
            self._process.pid,
            self.name,
            extra={"event": "receiver_started", "receiver": self._process.pid},
        )

    def _look(self) -> None:
        """Start it again where it has ended, after a pause that grows while that does not help."""
        if self._is_running():
            return
        now = time.monotonic()
        if self._restart_at:
            if now >= self._restart_at:
                self._launch()
            return
        self._failures = 1 if now - self._started_at > _LIVED_WELL else self._failures + 1
        delay = retry_delay(self._failures, _PAUSE).total_seconds()
        self._restart_at = now + delay
        logger.error(
            "The receiver %d has ended with %s; it is started again in %.1f s.",
            self._running.pid,
            self._running.returncode,
            delay,
            extra={"event": "receiver_ended", "receiver": self._running.pid},
        )


def _check(queues: Sequence[str], consumers: Sequence[str], prefetch: int) -> None:
    # Models stand behind it, and the module of a Celery app is loaded before Django's apps.
    from django_outbox.consumers.intake import read_intake

    read_intake(queues, consumers, prefetch)


def _command(queues: Sequence[str], consumers: Sequence[str], prefetch: int) -> list[str]:
    names = [argument for queue in queues for argument in ("--queue", queue)]
    return [
        sys.executable,
        *("-m", "django", "outbox_consume"),
        *names,
        *("--consumers", ",".join(consumers)),
        *("--prefetch", str(prefetch)),
        *("--parent", str(os.getpid())),
    ]


def _environment() -> dict[str, str]:
    module = settings.SETTINGS_MODULE
    if not module:
        raise ImproperlyConfiguredOutbox(
            "install(): the receiver is a process of its own and has to find the settings. Set"
            " DJANGO_SETTINGS_MODULE instead of calling settings.configure()."
        )
    path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - as Python writes it
    return {**os.environ, "DJANGO_SETTINGS_MODULE": module, "PYTHONPATH": os.pathsep.join(path)}
