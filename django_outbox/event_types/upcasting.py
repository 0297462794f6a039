"""Upcasters: a consumer written for a newer version takes older payloads, one version at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django_outbox.event_types.registry import (
    InvalidEventType,
    find_event_type,
    latest_version,
)

#: Takes a payload of one version and returns it in the next.
Upcaster = Callable[[Any], Any]
Function = TypeVar("Function", bound=Upcaster)

_upcasters: dict[tuple[str, int], Upcaster] = {}


class NoUpcaster(Exception):
    """A payload's version is not registered, and no upcaster leads on to one that is."""

    def __init__(self, topic: str, version: int) -> None:
        super().__init__(f"{topic!r}: no upcaster from version {version} to {version + 1}.")
        self.version = version


def upcasts(topic: str, version: int) -> Callable[[Function], Function]:
    """Register the step from ``version`` to ``version + 1`` of a topic.

    The function gets the payload, opened as far as the consumer may open it, and returns the payload
    of the next version; it may change what it is given. Raises ``InvalidEventType`` for a second
    upcaster of the same step.
    """

    def register(function: Function) -> Function:
        known = _upcasters.get((topic, version))
        if known is not None and _path(known) != _path(function):
            raise InvalidEventType(topic, version, f"already has an upcaster, {_path(known)}.")
        _upcasters[topic, version] = function
        return function

    return register


def upcast(topic: str, version: int, payload: Any) -> tuple[int, Any]:
    """The payload in the newest registered version, and that version.

    Goes as far as upcasters lead: a registered version without one is handed over as it is, for
    handlers that tell versions apart themselves. A topic that nobody registered comes back as it is.
    Raises ``NoUpcaster`` where the version is not registered and no step leads on; what an upcaster
    raises is passed on.
    """
    __traceback_hide__ = True
    newest = latest_version(topic)
    if newest is None:
        return version, payload
    while version < newest:
        step = _upcasters.get((topic, version))
        if step is None:
            if find_event_type(topic, version) is None:
                raise NoUpcaster(topic, version)
            break
        payload = step(payload)
        version += 1
    return version, payload


def forget_upcaster(topic: str, version: int) -> None:
    """Take a registration back: for tests that register upcasters of their own."""
    _upcasters.pop((topic, version), None)


def _path(function: Upcaster) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
