"""One connection to RabbitMQ with an I/O thread of its own: it connects, serves, and ends once.

The thread serves heartbeats while nothing is sent. Every step has a bound; whatever happens in the
thread, ``ended`` is called at its end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import pika
from pika import exceptions
from pika.adapters.select_connection import IOLoop

from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.errors import connection_trouble, reply
from django_outbox.brokers.rabbitmq.rounds import End, Ending
from django_outbox.brokers.rabbitmq.transport import GatheringServices
from django_outbox.logs import class_name, where_raised

logger = logging.getLogger("django_outbox.brokers.rabbitmq")

#: For a goodbye in good order; then the connection is cut.
CLOSE_TIMEOUT: Final = 3.0
CUT_TIMEOUT: Final = 1.0
#: Codes that close a connection over what was sent on it (AMQP 0-9-1, 1.1), not for the broker's sake.
_FAULTS: Final = frozenset({501, 502, 503, 504, 505, 540, 541})
_CLOSED: Final = Ending(End.CLOSED, "closed by this process")


class LinkListener(Protocol):
    """Who uses a link. All methods are called in its I/O thread."""

    def opened(self, connection: Any) -> None:
        """The connection (a ``pika.SelectConnection``) can be used."""

    def blocked(self, reason: str) -> None:
        """The broker has stopped to read from the connection."""

    def unblocked(self) -> None:
        """The broker reads again."""

    def ended(self, ending: Ending) -> None:
        """The link is over and will call no more."""


class Link:
    """One connection and its thread."""

    def __init__(
        self,
        options: ConnectionOptions,
        name: str,
        listener: LinkListener,
        services: Callable[[IOLoop], GatheringServices] = GatheringServices,
    ) -> None:
        """Raises ``OSError`` or ``ssl.SSLError`` where a TLS file cannot be used."""
        self._untried = deque(options.parameters(name))
        self._connect_timeout = sum(parameters.stack_timeout for parameters in self._untried)
        self._listener = listener
        self._loop = IOLoop()
        self._services = services(self._loop)
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_over = False
        self._is_closing = False
        self._ending_of_cut: Ending | None = None
        self._connection: Any = None
        self._was_open = False
        self.ending: Ending | None = None
        """How the link ended; None while it lives."""
        self._thread = threading.Thread(target=self._run, name=f"outbox {name}", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether the link has ended: a new one is needed."""
        return self.ending is not None

    @property
    def backlog(self) -> int:
        """Bytes that wait for the socket to take them."""
        return self._services.backlog

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def call(self, function: Callable[[], None]) -> bool:
        """Have the I/O thread call the function. False: the link is over, it will not be called."""
        with self._lock:
            if self._is_over:
                return False
            self._calls.append(function)
        self._loop.add_callback_threadsafe(self._make_calls)
        return True

    def close(self, *, wait: bool = True) -> None:
        """Say goodbye and end. At most a few seconds; ``wait=False``: leave it to the thread."""
        if self.call(self._close) and wait and threading.current_thread() is not self._thread:
            self._thread.join(2 * CLOSE_TIMEOUT)

    # From here on: in the I/O thread only.

    def call_later(self, seconds: float, function: Callable[[], None]) -> object:
        """Call the function after that long; the handle is for ``cancel``."""
        return self._loop.call_later(seconds, function)

    def cancel(self, handle: object) -> None:
        """Do not make a call that was ordered by ``call_later``."""
        self._loop.remove_timeout(handle)

    def cut(self, ending: Ending) -> None:
        """End at once, without goodbye."""
        if self._ending_of_cut is None:
            self._ending_of_cut = ending
            self._loop.call_later(CUT_TIMEOUT, lambda: self._end(ending))
            self._services.cut()

    def _run(self) -> None:
        try:
            # pika has its own timers for each step except the name look-up.
            self._loop.call_later(self._connect_timeout + 0.5, self._give_up_connecting)
            self._connect()
            self._loop.start()
        except Exception as error:
            logger.error(
                "The I/O thread of a RabbitMQ connection failed: %s.\n%s",
                class_name(error),
                where_raised(error),
                extra={"event": "unforeseen", "error": class_name(error)},
            )
            self._end(Ending(End.LOST, f"the I/O thread failed: {type(error).__name__}"))
        finally:
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            self._is_over = True
        ending = self.ending = self.ending or Ending(End.LOST, "the connection ended")
        reason = ending.reason or ending.end.name
        logger.info(
            "The connection to RabbitMQ ended: %s",
            reason,
            extra={"event": "connection_ended", "reason": reason},
        )
        try:
            self._listener.ended(ending)
        finally:
            self._make_calls()  # what came in too late finds the link over
            self._loop.close()

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _connect(self) -> None:
        parameters = self._untried.popleft()
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
            custom_ioloop=self._services,
        )

    def _on_open(self, connection: Any) -> None:
        self._was_open = True
        logger.info(
            "Connected to RabbitMQ at %s:%s",
            connection.params.host,
            connection.params.port,
            extra={"event": "connection_made", "host": connection.params.host},
        )
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._listener.opened(connection)

    def _on_open_error(self, connection: Any, error: BaseException) -> None:
        where = f"{connection.params.host}:{connection.params.port}"
        reason = f"{where}: {connection_trouble(error)}"
        if self._ending_of_cut or self._is_closing:
            self._end(self._ending_of_cut or _CLOSED)
        elif self._untried:
            logger.info(
                "Trying the next host, because of %s",
                reason,
                extra={"event": "connection_failed", "reason": reason},
            )
            self._loop.call_later(0, self._connect)
        else:
            self._end(Ending(End.LOST, reason))

    def _give_up_connecting(self) -> None:
        if self._was_open or self.is_over:
            return
        self._untried.clear()
        self._ending_of_cut = Ending(End.LOST, f"no connection within {self._connect_timeout:g} s")
        self._loop.call_later(CUT_TIMEOUT, lambda: self._end(self._ending_of_cut))
        with suppress(exceptions.ConnectionWrongStateError):
            self._connection.close()

    def _on_close(self, connection: Any, error: BaseException) -> None:
        if self._ending_of_cut or self._is_closing:
            self._end(self._ending_of_cut or _CLOSED)
        elif isinstance(error, exceptions.ConnectionClosedByBroker) and error.reply_code in _FAULTS:
            self._end(Ending(End.CONNECTION_REFUSED, reply(error), error.reply_code))
        else:
            self._end(Ending(End.LOST, connection_trouble(error)))

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        self._listener.blocked(str(frame.method.reason))

    def _on_unblocked(self, connection: Any, frame: Any) -> None:
        self._listener.unblocked()

    def _close(self) -> None:
        if self.is_over:
            return
        self._is_closing = True
        self._loop.call_later(CLOSE_TIMEOUT, lambda: self.cut(_CLOSED))
        with suppress(exceptions.ConnectionWrongStateError):
            self._connection.close()

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            self._loop.stop()
