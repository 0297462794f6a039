"""Every error that django_outbox raises on purpose: one class a cause.

Their texts name the setting, the field or the topic that is wrong and say what to do. None holds a
value from a payload.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID


class OutboxError(Exception):
    """The root of all errors of this package."""


class ImproperlyConfiguredOutbox(OutboxError):
    """A setting is wrong; nothing was started. The text names the key and what it should be."""


class NotInTransaction(OutboxError):
    """``enqueue`` was called where no transaction is open. Nothing was written.

    The row must be written in the transaction of the business change, or one of the two can exist
    without the other.
    """

    def __init__(self, topic: str, alias: str, *, in_on_commit: bool) -> None:
        where = (
            "from an on_commit callback: the business transaction has already ended there, so a"
            " crash between the two would lose the event. Call enqueue before the block ends"
            if in_on_commit
            else "in autocommit mode. Wrap the business change and enqueue in one transaction.atomic()"
        )
        super().__init__(f"{topic!r} was enqueued on database {alias!r} {where}.")


class RefusedMessage(OutboxError):
    """A message that can never be delivered as it is. Nothing was written, the transaction is intact."""

    def __init__(self, topic: str, field: str, reason: str) -> None:
        super().__init__(f"{topic!r}: {field}: {reason}")
        self.topic = topic
        self.field = field


class UnknownTopic(RefusedMessage):
    """``REQUIRE_EVENT_TYPES`` is on and nobody registered this topic in this version."""


class NoRoute(RefusedMessage):
    """No pattern in ``OUTBOX["ROUTES"]`` matches the topic."""


class InvalidTopic(RefusedMessage):
    """The topic is empty, too long for AMQP, or is not words separated by dots."""


class InvalidIdentifier(RefusedMessage):
    """An aggregate, correlation or causation id that does not fit its column or AMQP."""


class InvalidSchemaVersion(RefusedMessage):
    """The schema version is no whole number from 1 to 32,767."""


class InvalidSequence(RefusedMessage):
    """The sequence is no whole number from 0 to 2^63 - 1."""


class InvalidMessageId(RefusedMessage):
    """The message id is no UUID, or is the nil UUID."""


class DuplicateMessageId(RefusedMessage):
    """This message id is already in the outbox. Nothing was written, the transaction is intact."""

    def __init__(self, topic: str, message_id: UUID) -> None:
        super().__init__(
            topic,
            "message_id",
            f"{message_id} is already in the outbox. A message id names one event for ever; pass"
            ' on_conflict="ignore" where enqueueing the same event again is expected.',
        )
        self.message_id = message_id


class InvalidPayload(RefusedMessage):
    """The payload is not JSON, or does not fit its schema. The text never holds a value."""


class InvalidHeader(RefusedMessage):
    """A header that AMQP cannot carry, or whose name belongs to the wire format."""


class InvalidSchedule(RefusedMessage):
    """``available_at`` or ``delay`` is not a usable due time."""


class MessageTooLarge(RefusedMessage):
    """The message would not fit through the broker. Nothing was written."""

    def __init__(self, topic: str, size: int, limit: int) -> None:
        super().__init__(
            topic,
            "payload",
            f"{size:,} bytes, at most {limit:,} may travel. Store the document elsewhere and send"
            " its address, or raise OUTBOX['MAX_MESSAGE_BYTES'].",
        )
        self.size = size
        self.limit = limit


class MalformedMessage(OutboxError):
    """A received message that cannot be read: it was not handled, and no retry will help.

    The text names the part that is wrong (an attribute, a property, the body), never its value.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"{part} {problem}")
        self.part = part


class UnknownSchemaVersion(MalformedMessage):
    """A received message in a version that nothing here can read: it was not handled."""

    def __init__(self, topic: str, version: int, newest: int) -> None:
        super().__init__(
            f"schema version {version} of {topic!r}",
            f"is not known here, where version {newest} is the newest, and no upcaster leads on"
            " from it",
        )


class InvalidReceivedPayload(MalformedMessage):
    """A received payload that breaks its schema, or whose sealed members do not open.

    It was not handled. The text names paths, keywords and keys, never a value.
    """

    def __init__(self, topic: str, version: int, reason: str) -> None:
        super().__init__(f"payload of {topic!r} version {version}:", reason)


class UnknownConsumer(OutboxError):
    """Nobody declared a consumer of this name. Nothing was handled."""

    def __init__(self, name: str, known: list[str]) -> None:
        declared = ", ".join(map(repr, known)) or "none"
        super().__init__(
            f"There is no consumer {name!r}. Declared: {declared}. Consumers are found in the"
            " consumers.py of installed apps."
        )


class RejectMessage(OutboxError):
    """Raise it in a handler when no retry will help: the message goes to the dead-letter queue.

    The effect is rolled back. The reason travels with the message and is logged: name the rule
    that was broken, never a value.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PostponeMessage(OutboxError):
    """Raise it in a handler when it is too early: the message comes again after ``delay``.

    The effect is rolled back and no attempt is charged, so it is for what is sure to end. The
    reason is logged: never a value.
    """

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(reason)
        self.delay = delay
        self.reason = reason


class UnsendableMessage(OutboxError):
    """A message that this transport's encoding cannot hold: nothing of it was sent.

    The text names the part that is wrong, never its value.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"{part} {problem}")
        self.part = part


class InTransaction(OutboxError):
    """A reservation was asked for where a transaction is open. Nothing was written or called.

    It must be committed before the work begins: or a crash would leave no trace of a call to another
    system, and a second HTTP request would not see that the first is in progress.
    """

    def __init__(self, alias: str, remedy: str) -> None:
        super().__init__(f"Called inside a transaction on database {alias!r}. {remedy}")


class CallRefused(OutboxError):
    """Raise it inside a call made by ``once_outside`` when the call certainly had no effect.

    The next delivery makes the call again. Any other exception leaves the outcome unknown. The
    text is not stored.
    """


class CallInProgress(PostponeMessage):
    """Another worker is making this call just now. Nothing was called; the message comes again."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(delay, "the call to the other system is in progress elsewhere")


class OutcomeUnknown(RejectMessage):
    """A call was started and nobody knows whether it took effect. It was not made again.

    Pass ``look_up`` to ``once_outside``, or ``same_key_again`` where the other system honours the
    Idempotency-Key.
    """

    def __init__(self) -> None:
        super().__init__("a call to another system was started and its outcome is unknown")


class ResponseNotStorable(OutboxError):
    """A view under ``@idempotent_request`` returned what cannot be given again. It was rolled back."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"An idempotent view returned a {kind}, which streams and can be read only once. Return"
            " an HttpResponse, or leave @idempotent_request away."
        )


class NoQueueOfConsumer(OutboxError):
    """It is not known where one consumer alone can be sent messages. Nothing was sent."""


class ReplayStopped(OutboxError):
    """A message that is replayed to one consumer was not confirmed. What came before it was sent."""

    def __init__(self, sent: int, message_id: UUID, reason: str, since: datetime) -> None:
        super().__init__(
            f"Stopped after {sent:,} messages: {message_id} was not confirmed ({reason}). Go on from"
            f" there with --since {since.isoformat()}; what its consumer has processed it skips."
        )


class ArchiveFailed(OutboxError):
    """The archive did not take a batch of messages. None of that batch was deleted."""

    def __init__(self, archive: str, count: int, error: Exception) -> None:
        super().__init__(
            f"The archive {archive!r} raised {type(error).__name__} for {count:,} messages. They were not"
            " deleted; the next pruning tries again."
        )
