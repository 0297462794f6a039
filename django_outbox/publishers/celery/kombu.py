"""Task messages to whatever broker a Celery app has, through kombu. RabbitMQ has amqp.py."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from celery import Celery
from kombu import Connection, Producer

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.celery.routing import Address
from django_outbox.wire.amqp import PERSISTENT
from django_outbox.wire.celery import to_celery

#: Seconds until a connection that is not made counts as failed.
_CONNECT_TIMEOUT: Final = 4


class KombuTaskSender:
    """Sends task messages one after the other; a send that returned is the broker's word.

    Redis and its like have no confirms beyond that, and lose with their memory what they did not
    write to disk: docs/howto/celery.md.
    """

    def __init__(self, app: Celery, timeout: float) -> None:
        self._app = app
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._pid = 0

    def publish(self, calls: Sequence[tuple[Message, Address]]) -> list[Receipt]:
        """Send the messages. After an outage the rest is not tried."""
        receipts: list[Receipt] = []
        with self._lock:
            for message, address in calls:
                receipts.append(self._send(message, address))
                if receipts[-1].outcome is Outcome.BROKER_DOWN:
                    break
        left = [message for message, _ in calls[len(receipts) :]]
        return receipts + [
            Receipt(message.id, Outcome.BROKER_DOWN, receipts[-1].reason) for message in left
        ]

    def probe(self) -> str:
        """Ask the broker whether it answers. Empty: yes; else the reason."""
        with self._lock:
            self._drop()
            try:
                self._open()
            except Exception as error:  # each transport has errors of its own
                return _trouble(error)
            finally:
                self._drop()
        return ""

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._drop()

    def _send(self, message: Message, address: Address) -> Receipt:
        call = to_celery(message, address.task)
        try:
            connection = self._open()
        except Exception as error:
            return Receipt(message.id, Outcome.BROKER_DOWN, _trouble(error))
        try:
            Producer(connection.default_channel, auto_declare=False).publish(
                call.body,
                exchange=address.exchange,
                routing_key=address.routing_key,
                declare=[address.queue] if address.queue is not None else [],
                headers=dict(call.headers),
                content_type=call.content_type,
                content_encoding=call.content_encoding,
                correlation_id=call.correlation_id,
                delivery_mode=PERSISTENT,
                retry=False,
            )
        except Exception as error:  # each transport has errors of its own
            self._drop()
            down: Any = (*connection.connection_errors, OSError)
            if isinstance(error, down):
                return Receipt(message.id, Outcome.BROKER_DOWN, _trouble(error))
            return Receipt(message.id, Outcome.FAILED, f"kombu raised {type(error).__name__}")
        return Receipt(message.id, Outcome.CONFIRMED)

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            self._connection = None  # after a fork it is the parent's
        if self._connection is None:
            timeouts = {
                "socket_timeout": self._timeout,
                "socket_connect_timeout": _CONNECT_TIMEOUT,
                "max_retries": 1,
            }
            connection = self._app.connection_for_write(
                connect_timeout=_CONNECT_TIMEOUT, transport_options=timeouts
            )
            connection.ensure_connection(max_retries=1, timeout=_CONNECT_TIMEOUT)
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(Exception):
                connection.release()


def _trouble(error: Exception) -> str:
    # No text of theirs: some transports quote the URL with its password.
    return f"the broker cannot be reached: {type(error.__cause__ or error).__name__}"
