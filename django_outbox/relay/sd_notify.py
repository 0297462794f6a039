"""Tell systemd how the relay is: ready, alive, stopping. For units of ``Type=notify``.

The protocol of sd_notify(3): one datagram of ``NAME=value`` lines to the socket in ``NOTIFY_SOCKET``.
Without that variable, so outside of systemd, nobody is told.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic

from django_outbox.relay.vitals import TOUCH_INTERVAL, Condition

logger = logging.getLogger(__name__)


class ServiceManager:
    """The service manager's socket. Says nothing twice, but that the loop goes round."""

    def __init__(self, address: str, watchdog: timedelta | None = None) -> None:
        # '@' stands for the NUL byte that an abstract address begins with.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._said = ""
        self._is_stopping = False
        self._has_failed = False
        self._next_ping = 0.0
        self._has_watchdog = watchdog is not None

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], longest_turn: timedelta
    ) -> ServiceManager | None:
        """The manager that started this process, if one wants to be told.

        Warns where its watchdog would end a relay that is only waiting: a turn may take ``longest_turn``.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return None
        watchdog = _watchdog(environment)
        if watchdog is not None and watchdog <= longest_turn:
            logger.warning(
                "WatchdogSec is %g s, but a turn of the relay may take %g s: make it longer, or"
                " systemd ends a relay that only waits.",
                watchdog.total_seconds(),
                longest_turn.total_seconds(),
                extra={"event": "watchdog_too_short", "seconds": watchdog.total_seconds()},
            )
        return cls(address, watchdog)

    def __call__(self, condition: Condition) -> None:
        """The loop went round."""
        lines = []
        if not self._said:
            lines.append("READY=1")
        if condition.is_stopping and not self._is_stopping:
            self._is_stopping = True
            lines.append("STOPPING=1")
        if str(condition) != self._said:
            self._said = str(condition)
            lines.append(f"STATUS={self._said}")
        if self._has_watchdog and (lines or monotonic() >= self._next_ping):
            self._next_ping = monotonic() + TOUCH_INTERVAL
            lines.append("WATCHDOG=1")
        if lines:
            self._send("\n".join(lines))

    def _send(self, state: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    "systemd cannot be told how the relay is: %s.",
                    type(error).__name__,
                    extra={"event": "sd_notify_failed"},
                )
            self._has_failed = True
        else:
            self._has_failed = False


def _watchdog(environment: Mapping[str, str]) -> timedelta | None:
    """How soon the manager ends a silent process; None: never, or it watches another one."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isascii() or not microseconds.isdigit():
        return None
    return timedelta(microseconds=int(microseconds)) or None
