"""Those who watch messages pass, to trace and to time them.

An observer is asked at three places: where a message is made, where a round is handed to a publisher,
and where a consumer takes messages. It disturbs none of them: what it raises is logged and forgotten.
Without observers each place costs one look at an empty tuple.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from django_outbox.messages import HeaderValue, Message
from django_outbox.wire.amqp import headers_problem

if TYPE_CHECKING:
    from django_outbox.consumers.verdicts import Processed
    from django_outbox.publishers.base import Receipt

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Publishing:
    """One round on its way to a publisher."""

    publisher: str
    """Its alias."""
    messages: Sequence[Message]
    """What is handed over. An observer may put copies with more headers in their place, when it enters."""
    receipts: Sequence[Receipt] = ()
    """What came back; there when the observer leaves, unless the publisher raised."""


@dataclass(slots=True)
class Consuming:
    """Messages on their way through one consumer, in one transaction."""

    consumer: str
    messages: Sequence[Message]
    processed: Sequence[Processed] = ()
    """What became of each; there when the observer leaves, unless the consumer raised."""


class Observer:
    """Watches messages pass. Every method may be overridden; as it stands, none does anything.

    Called in the thread that does the work, which waits for it.
    """

    def headers_for(
        self, topic: str, message_id: UUID, given: Mapping[str, HeaderValue]
    ) -> Mapping[str, str]:
        """Headers for a new message, in its producer's transaction. ``given``: what it has already.

        A header of the same name that the caller gave is kept.
        """
        return {}

    def publishing(self, publishing: Publishing) -> AbstractContextManager[object]:
        """Around one call of a publisher."""
        return nullcontext()

    def consuming(self, consuming: Consuming) -> AbstractContextManager[object]:
        """Around one transaction of a consumer, its commit included."""
        return nullcontext()


_observers: tuple[Observer, ...] = ()
_NOBODY = nullcontext()
_Ask: TypeAlias = Callable[[], AbstractContextManager[object]]


def add_observer(observer: Observer) -> None:
    """From here on the observer is asked. A second time changes nothing."""
    global _observers
    if observer not in _observers:
        _observers = (*_observers, observer)


def remove_observer(observer: Observer) -> None:
    """The observer is asked no more."""
    global _observers
    _observers = tuple(each for each in _observers if each is not observer)


def is_observed() -> bool:
    """Whether anybody watches."""
    return bool(_observers)


def carried_headers(
    topic: str, message_id: UUID, given: Mapping[str, HeaderValue] | None
) -> Mapping[str, HeaderValue]:
    """The headers of a new message: the caller's own, and what observers want it to carry.

    What would not travel is left out: an event is not refused for the sake of its trace.
    """
    headers: dict[str, HeaderValue] = dict(given or {})
    for observer in _observers:
        try:
            more = {**observer.headers_for(topic, message_id, headers), **headers}
            if headers_problem(more) is None:
                headers = more
        except Exception as error:
            _log(observer, error)
    return headers


def publishing(round_: Publishing) -> AbstractContextManager[object]:
    """Around the call that publishes this round."""
    if not _observers:
        return _NOBODY
    return _around([(each, partial(each.publishing, round_)) for each in _observers])


def consuming(work: Consuming) -> AbstractContextManager[object]:
    """Around the transaction in which a consumer takes these messages."""
    if not _observers:
        return _NOBODY
    return _around([(each, partial(each.consuming, work)) for each in _observers])


@contextmanager
def _around(entries: Sequence[tuple[Observer, _Ask]]) -> Iterator[None]:
    with ExitStack() as stack:
        for observer, ask in entries:
            stack.enter_context(_Harmless(observer, ask))
        yield


class _Harmless:
    """An observer's context without its errors."""

    def __init__(self, observer: Observer, ask: _Ask) -> None:
        self._observer, self._ask = observer, ask
        self._entered: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            context = self._ask()
            context.__enter__()
            self._entered = context
        except Exception as error:
            _log(self._observer, error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._entered is None:
            return
        try:
            self._entered.__exit__(kind, raised, traceback)
        except Exception as error:
            if error is not raised:
                _log(self._observer, error)


def _log(observer: Observer, error: Exception) -> None:
    # The class alone: an error's text may hold values of the message.
    logger.error(
        "%s raised %s; the message passes without it.",
        type(observer).__qualname__,
        type(error).__qualname__,
        extra={"event": "observer_failed", "error": type(error).__qualname__},
    )
