"""Celery tasks as consumers: an event's effect takes place once, and no message is lost on the way.

``ConsumerTask`` is the base of such a task, ``ConsumerMixin`` what makes a task class of your own
one. The task takes a ``Message``. It acknowledges after its commit; when it raises it is tried again
with jittered backoff, and in the end its message is rejected, to the queue's dead-letter exchange.
A queue without one has its rejected messages dropped by the broker: see docs/howto/celery.md.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
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
from celery.worker import state
from celery.worker.request import Request
from kombu import Connection, Exchange, Queue
from kombu.pools import connections

from django_outbox.brokers.rabbitmq.topology_options import topology
from django_outbox.conf import RetryPolicy, outbox_settings
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
from django_outbox.wire.amqp import is_brokers
from django_outbox.wire.celery import from_celery

logger = logging.getLogger(__name__)

#: How long a task waits in place for its database before it gives its process to another message.
OUTAGE_PATIENCE = timedelta(minutes=1)

#: What may not be changed without losing messages, and what would happen.
_SAFE_OPTIONS = {
    "acks_late": (True, "the message would be acknowledged before its effect is committed"),
    "reject_on_worker_lost": (True, "the message of a killed process would be acknowledged"),
    "acks_on_failure": (False, "a message whose handler raises would be acknowledged"),
    "acks_on_timeout": (False, "a message that ran out of time would be acknowledged"),
    "acks_on_failure_or_timeout": (False, "a message that fails would be acknowledged"),
}


class ConsumerRequest(Request):
    """The worker's view of one delivery: what kills its process does not come back for ever.

    Celery requeues the message of a lost process or of a hard time limit, at once and without end.
    Here it is rejected, to the dead-letter exchange, when its deliveries are used up: as a quorum
    queue counts them; a classic queue only tells a second delivery from a first.
    """

    _process_died = False

    def on_timeout(self, soft: bool, timeout: float) -> None:
        with self._charging(not soft):
            super().on_timeout(soft, timeout)

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        with self._charging(True):
            return super().on_failure(exc_info, *args, **kwargs)

    def reject(self, requeue: bool = False) -> None:
        """Reject the delivery; ``requeue`` is granted while deliveries are left."""
        if self.acknowledged:
            return  # Celery rejects a hard time limit twice
        if requeue and self._process_died and not state.should_terminate:
            requeue = not self._is_used_up()
        super().reject(requeue=requeue)

    @contextlib.contextmanager
    def _charging(self, died: bool) -> Iterator[None]:
        self._process_died = died
        try:
            yield
        finally:
            self._process_died = False

    def _is_used_up(self) -> bool:
        task: Any = self.task
        headers: dict[str, Any] = self.request_dict
        deliveries = headers.get("x-delivery-count")
        limit = task.retry_policy.max_attempts
        if isinstance(deliveries, int):
            used_up = int(headers.get("retries") or 0) + deliveries + 1 >= limit
        else:
            used_up = bool(self.delivery_info.get("redelivered")) or limit == 1
        if used_up:
            logger.error(
                "%s: message %s ended its worker process again and is rejected to the"
                " dead-letter exchange.",
                task.name,
                self.id,
                extra={
                    "event": "delivery_set_aside",
                    "consumer": task.name,
                    "message_id": str(self.id),
                },
            )
        return bool(used_up)


class ConsumerMixin:
    """Makes a Celery task class a consumer: ``class BookInvoice(ConsumerMixin, Task)``.

    ``run(self, message)`` is the handler. What it returns is ignored; the task's result is
    ``"handled"``, ``"duplicate"`` or ``"stale"``. ``self.retry``, ``autoretry_for`` and time limits
    work as in any task, and what they interrupt is rolled back. Raise ``RejectMessage`` or
    ``PostponeMessage`` to decide yourself.

    The attributes may be given to the decorator: ``@shared_task(base=ConsumerTask, topics=[…])``.
    """

    Request: ClassVar[Any] = "django_outbox.consumers.celery:ConsumerRequest"
    acks_late = True
    reject_on_worker_lost = True
    acks_on_failure = False
    acks_on_timeout = False
    #: What Celery below 5.7 reads in place of the two above.
    acks_on_failure_or_timeout = False

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

    def __call__(self, argument: object = None, *args: Any, **kwargs: Any) -> str:
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
                    logger.error(
                        "%s: message %s is given up: %s",
                        self.declared.name,
                        self._id(),
                        reason,
                        extra=self._extra("delivery_set_aside", reason),
                    )
                    raise error or RejectMessage(reason)
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
        """Refuse options under which messages would be lost. Called by Celery."""
        for option, (safe, danger) in _SAFE_OPTIONS.items():
            if getattr(cls, option) is not safe:
                raise ImproperlyConfiguredOutbox(
                    f"Task {getattr(cls, 'name', cls.__name__)!r}: {option}={not safe} is not for a"
                    f" consumer: {danger}. Leave the option out."
                )
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
        kwargs.setdefault("headers", _clean(self._request.headers))
        try:
            with self._sending(kwargs) as options:
                return parent.retry(*args, **options)
        except Reject as error:
            raise Reject("the message could not be sent again", requeue=True) from error
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
        if args or kwargs:
            raise MalformedMessage("task", "has more than one argument: a consumer takes the event")
        request: Any = self._request
        return from_celery(
            argument,
            headers=request.headers,
            task_id=request.id or "",
            task=self.declared.name,
            attempt=self._attempt_number(),
        )

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
        task: Any = self
        countdown = delay.total_seconds()
        if charged or self._request.called_directly or self._request.is_eager:
            raise self.retry(countdown=countdown)
        given = {"countdown": countdown, "headers": _clean(self._request.headers)}
        with self._sending(given) as options:
            signature = task.signature_from_request(retries=self._request.retries, **options)
            try:
                signature.apply_async()
            except Exception as error:
                raise Reject("the message could not be sent again", requeue=True) from error
        raise Retry(f"Postponed for {countdown:.1f} s", sig=signature)

    def _wait(self, delay: timedelta) -> None:
        try:
            time.sleep(delay.total_seconds())
        except SoftTimeLimitExceeded:
            self._send_again(delay, charged=False)

    @contextlib.contextmanager
    def _sending(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The options of a call that sends this message again, with all that its broker can do."""
        task: Any = self
        if self._request.called_directly or self._request.is_eager:
            yield options
            return
        confirming: Connection = task.app.connection_for_write(
            transport_options={"confirm_publish": True}
        )
        if confirming.transport.driver_type != "amqp":
            yield options
            return
        with connections[confirming].acquire(block=True) as connection:
            yield {
                "connection": connection,
                "mandatory": True,
                **options,
                **self._wait_options(options.get("countdown")),
            }

    def _wait_options(self, countdown: float | None) -> dict[str, Any]:
        delivery = self._request.delivery_info or {}
        if not countdown or delivery.get("exchange") or not delivery.get("routing_key"):
            return {}
        work_queue = topology().queue_of(delivery["routing_key"])
        if work_queue is None or not work_queue.wait_queues:
            return {}
        name, milliseconds = work_queue.wait_queue(timedelta(seconds=countdown))
        return {
            "queue": Queue(name, Exchange(""), routing_key=name, no_declare=True),
            "exchange": "",
            "routing_key": name,
            "expiration": milliseconds / 1000,
            "countdown": 0,
        }


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


def _clean(headers: dict[str, Any] | None) -> dict[str, Any]:
    """Without what brokers write: RabbitMQ drops a message whose x-death looks like a cycle."""
    return {name: value for name, value in (headers or {}).items() if not is_brokers(name)}
