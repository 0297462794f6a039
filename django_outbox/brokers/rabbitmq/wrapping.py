"""A connection whose client never reads the properties of what it receives: see wire/amqp_frames.py."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from pika.adapters.utils.nbio_interface import (
    AbstractIOReference,
    AbstractStreamProtocol,
    AbstractStreamTransport,
)

from django_outbox.brokers.rabbitmq.transport import GatheringServices
from django_outbox.wire.amqp_frames import PropertiesWrapper


class WrappingServices(GatheringServices):
    """I/O services for a connection that receives."""

    def create_streaming_connection(
        self,
        protocol_factory: Callable[[], AbstractStreamProtocol],
        sock: socket.socket,
        on_done: Callable[[Any], None],
        ssl_context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> AbstractIOReference:
        """As the parent's, with the wrapper between the socket and pika."""

        def done(result: Any) -> None:
            if isinstance(result, tuple):
                transport, protocol = result
                result = (transport, protocol.inner)
            on_done(result)

        return super().create_streaming_connection(
            lambda: _Wrapping(protocol_factory()), sock, done, ssl_context, server_hostname
        )


class _Wrapping(AbstractStreamProtocol):  # type: ignore[misc] # pika has no types
    def __init__(self, inner: AbstractStreamProtocol) -> None:
        self.inner = inner
        self._wrapper = PropertiesWrapper()

    def connection_made(self, transport: AbstractStreamTransport) -> None:
        self.inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self.inner.connection_lost(error)

    def eof_received(self) -> bool | None:
        keep: bool | None = self.inner.eof_received()
        return keep

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(self._wrapper(data))
