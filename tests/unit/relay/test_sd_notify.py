"""sd_notify(3), against a socket that a service manager would make."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from django_outbox.relay.sd_notify import ServiceManager
from django_outbox.relay.vitals import Condition

TURN = timedelta(seconds=60)


class Systemd:
    """The other end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(10)

    def hear(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def hears_nothing(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(10)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(str(tmp_path / "s") if request.param == "path" else f"@outbox-{uuid4()}")
    yield made
    made.close()


def manager(systemd: Systemd, **environment: str) -> ServiceManager:
    found = ServiceManager.from_environment({"NOTIFY_SOCKET": systemd.address, **environment}, TURN)
    assert found is not None
    return found


def test_it_is_ready_at_its_first_turn_and_says_what_it_waits_for(systemd: Systemd) -> None:
    tell = manager(systemd)
    tell(Condition())
    assert systemd.hear() == ["READY=1", "STATUS=At work."]
    tell(Condition())
    assert systemd.hears_nothing()
    tell(Condition(database_answers=False))
    assert systemd.hear() == ["STATUS=Waiting for the database."]
    tell(Condition(is_stopping=True))
    assert systemd.hear() == ["STOPPING=1", "STATUS=Stopping."]


def test_every_turn_feeds_the_watchdog(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_outbox.relay.sd_notify.TOUCH_INTERVAL", 0)
    tell = manager(systemd, WATCHDOG_USEC="120000000", WATCHDOG_PID=str(os.getpid()))
    tell(Condition())
    assert systemd.hear() == ["READY=1", "STATUS=At work.", "WATCHDOG=1"]
    tell(Condition())
    assert systemd.hear() == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_watches_nobody_or_somebody_else_is_not_fed(
    systemd: Systemd, environment: dict[str, str]
) -> None:
    manager(systemd, **environment)(Condition())
    assert "WATCHDOG=1" not in systemd.hear()


def test_a_watchdog_shorter_than_a_turn_is_warned_of(
    systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    manager(systemd, WATCHDOG_USEC="30000000")
    assert "WatchdogSec is 30 s, but a turn of the relay may take 60 s" in caplog.text
    caplog.clear()
    manager(systemd, WATCHDOG_USEC="120000000")
    assert not caplog.records


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_socket_that_it_knows_nobody_is_told(environment: dict[str, str]) -> None:
    assert ServiceManager.from_environment(environment, TURN) is None


def test_a_socket_that_is_gone_stops_no_relay(
    systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    tell = manager(systemd)
    systemd.close()
    tell(Condition())
    tell(Condition(database_answers=False))
    assert len(caplog.records) == 1
