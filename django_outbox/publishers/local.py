"""Hand messages to the consumers of this process: the default where no broker is configured.

The only publisher that looks at consumers. Each consumer takes a message once, however often it is
published: its inbox remembers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, assert_never

from django_outbox.consumers.delivery import attempt
from django_outbox.consumers.registry import consumers_for
from django_outbox.consumers.verdicts import Failed, Failure
from django_outbox.databases.connecting import refresh_all
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt

_OPTION = "WITHOUT_CONSUMER"
_CHOICES = ("reject", "confirm")


class LocalPublisher:
    """Calls every consumer of the topic and confirms when all of them are done with the message.

    A topic that nobody takes is REJECTED, as an unroutable message is by a broker: it is retried and
    then kept as dead, so that a misspelt pattern loses nothing. ``{"WITHOUT_CONSUMER": "confirm"}``
    lets such messages pass.
    """

    #: Handlers use the database connection of the thread they run in, and SQLite has one writer.
    supports_concurrent_publish: ClassVar[bool] = False

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self._unheard = options.get(_OPTION, "reject")
        if self._unheard not in _CHOICES:
            raise ImproperlyConfiguredOutbox(" ".join(_wrong_choice(alias)))

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Call the consumers of each message in turn, one transaction for each of them."""
        return [self._receipt(message) for message in messages]

    def probe(self) -> str:
        """This process is always there."""
        return ""

    def close(self) -> None:
        """Nothing to let go of."""

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The one option, and nothing else."""
        where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
        problems = [
            (f"{where}[{name!r}] is not an option of LocalPublisher.", f"It has {_OPTION!r} only.")
            for name in options
            if name != _OPTION
        ]
        if options.get(_OPTION, "reject") not in _CHOICES:
            problems.append(_wrong_choice(alias))
        return problems

    def _receipt(self, message: Message) -> Receipt:
        # No request ends here: a handler's connection that broke would stay broken.
        refresh_all()
        try:
            consumers = consumers_for(message.topic)
        except ImproperlyConfiguredOutbox as error:
            return Receipt(message.id, Outcome.REJECTED, str(error))
        if not consumers:
            return self._without_consumer(message)
        # Every consumer has its turn; those that are done already pass it over the next time.
        results = [(consumer.name, attempt(consumer, message)) for consumer in consumers]
        failures = [(name, what) for name, what in results if isinstance(what, Failed)]
        if not failures:
            return Receipt(message.id, Outcome.CONFIRMED)
        outcomes = [_outcome(failed.failure) for _, failed in failures]
        worst = max(outcomes, key=_PRECEDENCE.index)
        reason = "; ".join(f"consumer {name!r}: {failed.reason}" for name, failed in failures)
        return Receipt(message.id, worst, reason)

    def _without_consumer(self, message: Message) -> Receipt:
        if self._unheard == "confirm":
            return Receipt(message.id, Outcome.CONFIRMED)
        return Receipt(
            message.id,
            Outcome.REJECTED,
            "no consumer of this process takes the topic: declare one in consumers.py, or set"
            f" OUTBOX['PUBLISHERS'][{self.alias!r}][{_OPTION!r}] to 'confirm'",
        )


#: Where consumers fail in different ways, the later one is the receipt.
_PRECEDENCE = [Outcome.REJECTED, Outcome.FAILED, Outcome.BROKER_DOWN]


def _wrong_choice(alias: str) -> tuple[str, str]:
    return (
        f"OUTBOX['PUBLISHERS'][{alias!r}][{_OPTION!r}] must be 'reject' or 'confirm'.",
        "'reject' keeps a message that no consumer takes; 'confirm' lets it pass.",
    )


def _outcome(failure: Failure) -> Outcome:
    match failure:
        case Failure.UNAVAILABLE:
            return Outcome.BROKER_DOWN
        case Failure.RAISED | Failure.POSTPONED:
            return Outcome.FAILED
        case (
            Failure.REJECTED
            | Failure.MALFORMED
            | Failure.UNKNOWN_TOPIC
            | Failure.UNKNOWN_VERSION
            | Failure.INVALID
        ):
            return Outcome.REJECTED
        case _ as never:
            assert_never(never)
