"""pika's transport with fewer system calls: what is written in one turn of the loop goes out together.

pika sends every frame by itself, three for a small message. Here frames are gathered and handed to
pika's own transport (plain or TLS) in pieces of about 64 KiB. See docs/decisions/0004-gathered-writes.md.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.nbio_interface import (
    AbstractIOReference,
    AbstractStreamProtocol,
    AbstractStreamTransport,
)
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter

#: pika's transport copies the rest of a piece after each partial send: pieces must stay small.
PIECE_BYTES: Final = 64 * 1024


class GatheringServices(SelectorIOServicesAdapter):  # type: ignore[misc] # pika has no types
    """I/O services for a ``SelectConnection`` whose transport gathers what is written."""

    def __init__(self, loop: IOLoop) -> None:
        super().__init__(loop)
        self.transport: GatheringTransport | None = None
        """The transport of the newest connection."""
        self.is_cut = False

    @property
    def backlog(self) -> int:
        """Bytes that wait for the socket to take them."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """Cut the newest connection, without goodbye; pika tells of it as of any lost connection."""
        if self.transport is not None:
            self.is_cut = True
            self.transport.abort()

    def create_streaming_connection(
        self,
        protocol_factory: Callable[[], AbstractStreamProtocol],
        sock: socket.socket,
        on_done: Callable[[Any], None],
        ssl_context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> AbstractIOReference:
        """As pika's own, with a gathering transport between the protocol and the real one."""

        def done(result: Any) -> None:
            if isinstance(result, tuple):
                transport, protocol = result
                result = (transport, protocol.inner)
            on_done(result)

        return super().create_streaming_connection(
            lambda: _Introducer(protocol_factory(), self), sock, done, ssl_context, server_hostname
        )


class GatheringTransport(AbstractStreamTransport):  # type: ignore[misc] # pika has no types
    """Keeps what is written until the loop's next turn, or until it makes a whole piece."""

    def __init__(self, inner: AbstractStreamTransport, services: GatheringServices) -> None:
        self._inner = inner
        self._services = services
        self._gathered: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take data to be sent."""
        if not self._gathered:
            self._services.call_later(0, self.flush)
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what was gathered to the real transport."""
        if self._gathered:
            piece = b"".join(self._gathered)
            self._gathered.clear()
            self._size = 0
            self._inner.write(piece)

    def get_write_buffer_size(self) -> int:
        """Bytes written and not yet taken by the socket."""
        waiting: int = self._inner.get_write_buffer_size()
        return self._size + waiting

    def get_protocol(self) -> AbstractStreamProtocol:
        """The protocol that reads from this transport."""
        return self._inner.get_protocol()

    def abort(self) -> None:
        """Cut the connection; what was gathered is dropped."""
        self._gathered.clear()
        self._size = 0
        self._inner.abort()


class _Introducer(AbstractStreamProtocol):  # type: ignore[misc] # pika has no types
    """Stands before a protocol so as to give it a gathering transport."""

    def __init__(self, inner: AbstractStreamProtocol, services: GatheringServices) -> None:
        self.inner = inner
        self._services = services

    def connection_made(self, transport: AbstractStreamTransport) -> None:
        gathering = GatheringTransport(transport, self._services)
        self._services.transport = gathering
        self.inner.connection_made(gathering)

    def connection_lost(self, error: BaseException | None) -> None:
        if error is None and self._services.is_cut:
            # pika takes None for an end of its own making, and asserts that it knows the reason.
            error = ConnectionAbortedError("cut by this process")
        self.inner.connection_lost(error)

    def eof_received(self) -> bool | None:
        keep: bool | None = self.inner.eof_received()
        return keep

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
