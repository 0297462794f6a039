"""The contract of every publisher. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Protocol, runtime_checkable

from django_outbox.messages import Message
from django_outbox.receipts import Outcome, Receipt

__all__ = ["Bounded", "Outcome", "Publisher", "Receipt"]


@runtime_checkable
class Bounded(Protocol):
    """A publisher that knows how long it takes at most; the relay holds it against the lease."""

    @property
    def longest_publish(self) -> timedelta:
        """After how long ``publish`` has returned, whatever the broker does."""
        ...


class Publisher(Protocol):
    """The adapter to one broker.

    A class is made with ``(alias, options)`` from ``OUTBOX["PUBLISHERS"]``; it reads no settings and
    opens no connection before the first publish or probe.
    """

    supports_concurrent_publish: ClassVar[bool]
    """Whether ``publish`` may run in several threads at once, none of them the caller's own.
    False: the relay calls it in its own thread, one round at a time."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None: ...

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Send one round and wait for the broker's word on each message.

        Returns exactly one receipt for each message, in any order, and CONFIRMED only for what the
        broker has taken responsibility for. Raises nothing: an outage is a receipt too. It returns
        within the configured confirm timeout plus the time a connection takes; a publisher that
        can name that bound is ``Bounded``.
        """
        ...

    def probe(self) -> str:
        """Ask the broker itself whether it would take messages. Empty: yes; else the reason."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. The publisher can be used again afterwards."""
        ...

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What is wrong with these options, as (problem, hint), for the system checks.

        A problem names its place: ``OUTBOX['PUBLISHERS'][alias]`` and the option.
        """
        ...
