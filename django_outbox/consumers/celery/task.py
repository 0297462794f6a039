"""ConsumerMixin and ConsumerTask: the task as a consumer of the inbox."""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, assert_never

from celery import Celery, Task
from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
)

from django_outbox.conf import outbox_settings
from django_outbox.consumers.celery.sending import (
    SetAside,
    is_delivery,
    own_headers,
    send_again,
    sending,
    set_aside,
)
from django_outbox.consumers.delivery import tell_failure
from django_outbox.consumers.failures import failure_of
from django_outbox.consumers.inbox import inbox_alias, process_once
from django_outbox.consumers.registry import Consumer, Mode
from django_outbox.consumers.verdicts import (
    Ack,
    DeadLetter,
    Failed,
    Failure,
    Processed,
    RetryLater,
    verdict,
)
from django_outbox.exceptions import ImproperlyConfiguredOutbox, MalformedMessage, RejectMessage
from django_outbox.messages import Message
from django_outbox.policies import RetryPolicy
from django_outbox.wire.celery import from_celery

logger = logging.getLogger("django_outbox.consumers.celery")

#: How long a task waits in place for its database before it gives its process to another message.
OUTAGE_PATIENCE = timedelta(minutes=1)
#: How long a task holds a message that the broker did not take: put back, it comes again at once.
PUT_BACK_AFTER = timedelta(seconds=1)

#: What may not be changed without losing messages, and what would happen.
_SAFE_OPTIONS = {
    "acks_late": (True, "the message would be acknowledged before its effect is committed"),
    "reject_on_worker_lost": (True, "the message of a killed process would be acknowledged"),
    "acks_on_failure": (False, "a message whose handler raises would be acknowledged"),
    "acks_on_timeout": (False, "a message that ran out of time would be acknowledged"),
    "acks_on_failure_or_timeout": (False, "a message that fails would be acknowledged"),
    "retry_on_worker_lost": (False, "what kills its process would come again without a count"),
}
_REJECT_UNDECODABLE = "django_outbox.consumers.celery.receiving:RejectUndecodable"
_MISSING = object()


class ConsumerMixin:
    """Makes a Celery task class a consumer: ``class BookInvoice(ConsumerMixin, Task)``.

    ``run(self, message)`` is the handler. What it returns is ignored; the task's result is
    ``"handled"``, ``"duplicate"`` or ``"stale"``. ``self.retry``, ``autoretry_for`` and time limits
    work as in any task, and what they interrupt is rolled back. Raise ``RejectMessage`` or
    ``PostponeMessage`` to decide yourself.

    The attributes may be given to the decorator: ``@shared_task(base=ConsumerTask, topics=[…])``.
    """

    # By their names: only workers load them.
    Request: ClassVar[Any] = "django_outbox.consumers.celery.request:ConsumerRequest"
    Strategy: ClassVar[Any] = "django_outbox.consumers.celery.receiving:strategy"
    #: What a message that is given up ends with: a line in the worker's log, without a traceback.
    throws = (RejectMessage,)
    acks_late = True
    reject_on_worker_lost = True
    acks_on_failure = False
    acks_on_timeout = False
    #: What Celery below 5.7 reads in place of the two above.
    acks_on_failure_or_timeout = False
    retry_on_worker_lost = False

    #: The name in the inbox: keep it when the task moves. Empty: the task's name.
    consumer_name: str = ""
    #: Topic patterns that the task takes; a message of another topic is dead-lettered. Empty: all.
    topics: tuple[str, ...] | list[str] = ()
    mode: Mode | str = Mode.TRANSACTIONAL
    drop_stale: bool = False
    #: Attempts before the dead-letter exchange; None: ``max_retries + 1`` where the task has that
    #: option, else ``OUTBOX["CONSUMERS"]["MAX_ATTEMPTS"]``.
    max_attempts: int | None = None
    #: The alias that inbox row and effect are written to; None: what the routers say.
    database: str | None = None

    def __call__(self, argument: object = _MISSING, *args: Any, **kwargs: Any) -> str:
        """Handle the event once. Celery calls this with the event, tests may with a ``Message``."""
        if isinstance(argument, Message):
            return _word(process_once(self.declared, argument))
        waited_since = time.monotonic()
        while True:
            happened, error = self._attempt(argument, args, kwargs)
            match verdict(happened, self._attempt_number(), self.retry_policy):
                case Ack(processed):
                    return _word(processed)
                case DeadLetter(reason):
                    raise self._give_up(reason, error)
                case RetryLater(delay, reason) if _is_outage(happened, waited_since):
                    logger.warning(
                        "%s: waiting: %s",
                        self.declared.name,
                        reason,
                        extra=self._extra("delivery_waits", reason),
                    )
                    self._wait(delay)
                case RetryLater(delay, reason, charged):
                    logger.warning(
                        "%s: message %s comes again in %.1f s: %s",
                        self.declared.name,
                        self._id(),
                        delay.total_seconds(),
                        reason,
                        extra=self._extra("delivery_retried", reason),
                    )
                    self._send_again(delay, charged=charged)
                case _ as never:
                    assert_never(never)

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Refuse options under which messages would be lost, and have the app's workers lose none.

        Called by Celery.
        """
        for option, (safe, danger) in _SAFE_OPTIONS.items():
            if getattr(cls, option) is not safe:
                raise ImproperlyConfiguredOutbox(
                    f"Task {getattr(cls, 'name', cls.__name__)!r}: {option}={not safe} is not for a"
                    f" consumer: {danger}. Leave the option out."
                )
        app.steps["consumer"].add(_REJECT_UNDECODABLE)
        parent: Any = super()
        parent.on_bound(app)

    @cached_property
    def declared(self) -> Consumer:
        """This task as a consumer of the inbox."""
        task: Any = self
        return Consumer(
            name=self.consumer_name or task.name,
            patterns=tuple(self.topics),
            handler=task.run,
            mode=Mode(self.mode),
            drop_stale=self.drop_stale,
            max_attempts=self.max_attempts,
            database=self.database,
        )

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how long apart the task is tried."""
        configured = outbox_settings().consumers.retry
        limit = self.max_attempts
        option = getattr(type(self), "max_retries", None)
        if limit is None and isinstance(option, int):
            limit = option + 1
        return RetryPolicy(configured.base, configured.cap, limit or configured.max_attempts)

    @property
    def max_retries(self) -> int:
        """What ``self.retry`` and ``autoretry_for`` hold to, too. A task may set a number instead."""
        return self.retry_policy.max_attempts - 1

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's ``retry``, with the new message confirmed by the broker before this one is done.

        Where ``OUTBOX["TOPOLOGY"]`` has the queue, the message waits in a wait queue instead of in
        this worker's memory. Where it could not be sent, the delivery is put back, not given up.
        """
        parent: Any = super()
        kwargs.setdefault("headers", own_headers(self._request))
        try:
            with sending(self, kwargs) as options:
                return parent.retry(*args, **options)
        except Reject as error:
            raise self._put_back() from error
        except (Retry, Ignore):
            raise
        except MaxRetriesExceededError:
            # Its text holds the arguments, so the payload.
            raise RejectMessage("no retries are left") from None
        except Exception:
            # The handler's own error: no retries left, or called outside of a worker.
            self._request.outbox_gave_up = True
            raise

    def _attempt(
        self, argument: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Processed | Failed, Exception | None]:
        message: Message | None = None
        try:
            message = self._message(argument, args, kwargs)
            if self.topics and not self.declared.takes(message.topic):
                return Failed(Failure.UNKNOWN_TOPIC, "the task does not take its topic"), None
            return process_once(self.declared, message), None
        except (Retry, Reject, Ignore):
            raise
        except Exception as error:
            failed = failure_of(error, inbox_alias(self.declared))
            if getattr(self._request, "outbox_gave_up", False):
                failed = Failed(Failure.REJECTED, f"{failed.reason}, no retries are left")
            if message is not None:
                tell_failure(self.declared, message, error, failed)
            return failed, error

    def _message(self, argument: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
        if argument is _MISSING or args or kwargs:
            raise MalformedMessage("task", "is not called with one argument, the event")
        request: Any = self._request
        message = from_celery(
            argument,
            headers=request.headers,
            task_id=request.id or "",
            task=self.declared.name,
            attempt=self._attempt_number(),
        )
        size, largest = len(message.body.encode()), outbox_settings().max_message_bytes
        if size > largest:
            raise MalformedMessage(
                "body", f"has {size:,} bytes; OUTBOX['MAX_MESSAGE_BYTES'] allows {largest:,}"
            )
        return message

    @property
    def _request(self) -> Any:
        task: Any = self
        return task.request

    def _extra(self, event: str, reason: str) -> dict[str, Any]:
        return {
            "event": event,
            "consumer": self.declared.name,
            "message_id": self._id(),
            "attempt": self._attempt_number(),
            "reason": reason,
        }

    def _id(self) -> str:
        return str(self._request.id)

    def _attempt_number(self) -> int:
        deliveries = (self._request.headers or {}).get("x-delivery-count")
        killed = deliveries if isinstance(deliveries, int) and deliveries > 0 else 0
        return int(self._request.retries or 0) + killed + 1

    def _send_again(self, delay: timedelta, *, charged: bool) -> None:
        """Send the message again and end this delivery: raises ``Retry``."""
        countdown = delay.total_seconds()
        if charged or not is_delivery(self._request):
            raise self.retry(countdown=countdown)
        try:
            signature = send_again(self, countdown)
        except Exception as error:
            raise self._put_back() from error
        raise Retry(f"Postponed for {countdown:.1f} s", sig=signature)

    def _give_up(self, reason: str, error: Exception | None) -> Exception:
        """What to raise for a message that is not to be tried again."""
        logger.error(
            "%s: message %s is given up: %s",
            self.declared.name,
            self._id(),
            reason,
            extra=self._extra("delivery_set_aside", reason),
        )
        if not is_delivery(self._request):
            return error or RejectMessage(reason)
        try:
            is_set_aside = set_aside(self, reason)
        except Exception as trouble:  # each transport has errors of its own
            logger.warning(
                "%s: message %s is rejected, without the reason in its headers: %s",
                self.declared.name,
                self._id(),
                type(trouble).__name__,
                extra=self._extra("delivery_rejected", reason),
            )
            is_set_aside = False
        # The handler's own error is not raised: Celery would log its text, which may hold values.
        return SetAside(reason) if is_set_aside else RejectMessage(reason)

    def _put_back(self) -> Reject:
        """What to raise where the broker did not take the message; after a moment, for it comes at once."""
        with contextlib.suppress(SoftTimeLimitExceeded):
            time.sleep(PUT_BACK_AFTER.total_seconds())
        return Reject("the message could not be sent again", requeue=True)

    def _wait(self, delay: timedelta) -> None:
        try:
            time.sleep(delay.total_seconds())
        except SoftTimeLimitExceeded:
            self._send_again(delay, charged=False)


class ConsumerTask(ConsumerMixin, Task):  # type: ignore[misc, type-arg] # generic in the stubs only
    """The base of a consumer: ``@shared_task(base=ConsumerTask, bind=True, name="ledger.book")``."""

    abstract = True


def _word(processed: Processed) -> str:
    return processed.name.lower()


def _is_outage(happened: Processed | Failed, waited_since: float) -> bool:
    """Whether to wait in place: every message that is fetched meanwhile would fail as well."""
    return (
        isinstance(happened, Failed)
        and happened.failure is Failure.UNAVAILABLE
        and time.monotonic() - waited_since < OUTAGE_PATIENCE.total_seconds()
    )
