"""What is being handled now, for everything that happens because of it.

The inbox sets it around a handler; ``enqueue`` reads it, so that events caused by an event carry its
correlation id on and name it as their cause; a logging filter shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandlingContext:
    """The ids under which work is done. Empty strings where nothing is known."""

    correlation_id: str = ""
    causation_id: str = ""
    consumer: str = ""


_NOTHING = HandlingContext()
_current: ContextVar[HandlingContext] = ContextVar("django_outbox_context", default=_NOTHING)


def current_context() -> HandlingContext:
    """The context of the code that calls; an empty one outside of any handling."""
    return _current.get()


@contextmanager
def context(
    *, correlation_id: str = "", causation_id: str = "", consumer: str = ""
) -> Iterator[HandlingContext]:
    """Work done inside carries these ids; nested contexts replace the outer one while they last."""
    entered = HandlingContext(correlation_id, causation_id, consumer)
    token = _current.set(entered)
    try:
        yield entered
    finally:
        _current.reset(token)
