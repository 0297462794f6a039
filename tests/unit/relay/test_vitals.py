"""Liveness and readiness files: what they say, and that they harm nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_outbox.relay.vitals import Condition, LivenessFile, ReadinessFile
from tests.support.threads import wait_until

GOOD = Condition()


class Broker:
    """Answers probes as it is told to."""

    def __init__(self, answer: str = "") -> None:
        self.answer = answer

    def probe(self) -> str:
        if self.answer == "raise":
            raise OSError
        return self.answer


def readiness(path: Path, **brokers: Any) -> ReadinessFile:
    return ReadinessFile(path, brokers)


def wait_until_ready(ready: ReadinessFile, path: Path) -> None:
    def is_ready() -> bool:
        ready(GOOD)
        return path.exists()

    wait_until(is_ready, "it is ready")


@pytest.mark.parametrize(
    "condition", [GOOD, Condition(database_answers=False), Condition(brokers_down=("default",))]
)
def test_a_relay_that_waits_for_others_is_alive(tmp_path: Path, condition: Condition) -> None:
    path = tmp_path / "alive"
    liveness = LivenessFile(path)
    liveness(condition)
    assert path.exists()
    liveness.close()
    assert not path.exists()


def test_it_is_ready_once_every_broker_has_answered(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    path.touch()  # left by one that was killed
    ready = readiness(path, default=Broker(), audit=Broker())
    assert not path.exists()
    wait_until_ready(ready, path)
    ready.close()
    assert not path.exists()


@pytest.mark.parametrize("answer", ["connection refused", "raise"])
def test_a_broker_that_is_not_there_at_the_start_keeps_it_from_being_ready(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, broker = tmp_path / "ready", Broker(answer)
    monkeypatch.setattr("django_outbox.relay.vitals.PROBE_INTERVAL", 0)
    ready = readiness(path, default=broker)
    ready(GOOD)
    assert ready._asking is not None
    ready._asking.join()
    ready(GOOD)
    assert not path.exists()
    broker.answer = ""
    wait_until_ready(ready, path)


@pytest.mark.parametrize(
    "condition",
    [
        Condition(database_answers=False),
        Condition(brokers_down=("default",)),
        Condition(is_stopping=True),
    ],
)
def test_what_keeps_messages_back_takes_it_away_and_it_comes_again(
    tmp_path: Path, condition: Condition
) -> None:
    path = tmp_path / "ready"
    ready = readiness(path, default=Broker())
    wait_until_ready(ready, path)
    ready(condition)
    assert not path.exists()
    ready(GOOD)
    assert path.exists()


def test_a_path_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_outbox.relay.vitals.TOUCH_INTERVAL", 0)
    liveness = LivenessFile(tmp_path / "no such directory" / "alive")
    liveness(GOOD)
    liveness(GOOD)
    liveness.close()
    assert len(caplog.records) == 1


def test_a_condition_says_what_is_waited_for() -> None:
    assert str(GOOD) == "At work."
    assert str(Condition(database_answers=False)) == "Waiting for the database."
    assert str(Condition(brokers_down=("a", "b"))) == "Waiting for the broker of 'a', 'b'."
    assert str(Condition(is_stopping=True)) == "Stopping."
