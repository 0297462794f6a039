"""Observers see messages pass and disturb nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from django_outbox import observers
from django_outbox.observers import Consuming, Observer, Publishing
from tests.support.publishing import make_message


@pytest.fixture
def watch() -> Iterator[Any]:
    added: list[Observer] = []

    def add(observer: Observer) -> Observer:
        added.append(observer)
        observers.add_observer(observer)
        return observer

    yield add
    for observer in added:
        observers.remove_observer(observer)


class Diary(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def publishing(self, publishing: Publishing) -> Iterator[None]:
        self.lines.append(f"begins {publishing.publisher}")
        try:
            yield
        finally:
            self.lines.append(f"ends with {len(publishing.receipts)}")


class Broken(Observer):
    """Fails in every way there is."""

    def headers_for(self, *about: Any) -> Any:
        raise ValueError("a secret value")

    @contextmanager
    def publishing(self, publishing: Publishing) -> Iterator[None]:
        yield
        raise ValueError("a secret value")

    def consuming(self, consuming: Consuming) -> Any:
        raise ValueError("a secret value")


def test_nobody_watches_unless_somebody_was_added() -> None:
    assert not observers.is_observed()


def test_an_observer_is_there_before_and_after(watch: Any) -> None:
    diary = watch(Diary())
    round_ = Publishing("default", [make_message()])
    with observers.publishing(round_):
        round_.receipts = ["a receipt"]  # type: ignore[list-item]
    assert diary.lines == ["begins default", "ends with 1"]


def test_an_observer_that_is_added_twice_is_asked_once(watch: Any) -> None:
    diary = watch(watch(Diary()))
    with observers.publishing(Publishing("default", [])):
        pass
    assert len(diary.lines) == 2


def test_an_observer_that_fails_disturbs_nobody_and_its_text_is_not_logged(
    watch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch(Broken())
    diary = watch(Diary())
    assert observers.carried_headers("invoice.issued", uuid4(), {"a": 1}) == {"a": 1}
    with observers.publishing(Publishing("default", [])):
        pass
    with observers.consuming(Consuming("ledger", [])):
        pass
    assert len(diary.lines) == 2
    assert len(caplog.records) == 3
    assert "secret" not in caplog.text


def test_what_the_work_raises_is_raised_on_and_not_the_observers_fault(
    watch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    diary = watch(Diary())
    with pytest.raises(KeyError), observers.publishing(Publishing("default", [])):
        raise KeyError
    assert diary.lines == ["begins default", "ends with 0"]
    assert not caplog.records


def test_a_header_that_the_caller_gave_is_kept(watch: Any) -> None:
    class Carrier(Observer):
        def headers_for(self, *about: Any) -> dict[str, str]:
            return {"traceparent": "new", "tracestate": "new"}

    watch(Carrier())
    carried = observers.carried_headers("invoice.issued", uuid4(), {"traceparent": "given"})
    assert carried == {"traceparent": "given", "tracestate": "new"}


@pytest.mark.parametrize("header", ["x" * 70_000, "a\0b"])
def test_a_header_that_could_not_travel_is_left_out_and_the_event_goes(
    watch: Any, header: str
) -> None:
    class Carrier(Observer):
        def headers_for(self, *about: Any) -> dict[str, str]:
            return {"baggage": header}

    watch(Carrier())
    assert observers.carried_headers("invoice.issued", uuid4(), {"a": 1}) == {"a": 1}
