"""A TCP proxy that can cut, stall and refuse: a broker's bad days without touching the broker."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by RST, whatever is in the buffers
_CHUNK = 64 * 1024


@dataclass(eq=False)
class _End:
    """One side of a connection, and what waits to be written to it."""

    sock: socket.socket
    is_client: bool
    pending: bytearray = field(default_factory=bytearray)
    other: _End | None = None


class TcpProxy:
    """Forwards a local port to one address. All methods may be called from any thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._ends: set[_End] = set()
        self._is_stalled = False
        self._cut_after: int | None = None
        self._pause = 0.0
        self.forwarded = 0
        """Bytes that clients have sent through."""
        self.accepted = 0
        """Connections taken."""
        self._wake_r, self._wake_w = socket.socketpair()
        self._selector.register(self._wake_r, selectors.EVENT_READ, None)
        self._listener: socket.socket | None = None
        self.port = 0
        self._is_running = True
        self.accept()
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Reset every connection that goes through; new ones are taken."""
        with self._lock:
            for end in list(self._ends):
                self._drop(end)

    def cut_after(self, count: int) -> None:
        """Reset every connection once clients have sent this many more bytes through."""
        with self._lock:
            self._cut_after = self.forwarded + count

    def stall(self) -> None:
        """Keep connections open and take new ones, but forward nothing more."""
        with self._lock:
            self._is_stalled = True
            self._update_all()

    def flow(self) -> None:
        """Forward again."""
        with self._lock:
            self._is_stalled = False
            self._update_all()

    def slow_down(self, pause: float) -> None:
        """Take this many seconds for each 64 KiB that clients send. Zero: full speed."""
        self._pause = pause

    def refuse(self) -> None:
        """Reset every connection and refuse new ones: the broker is stopped."""
        with self._lock:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
            self.cut()

    def accept(self) -> None:
        """Take connections (again), on the same port."""
        with self._lock:
            if self._listener is not None:
                return
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            listener.listen(50)
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            self._selector.register(listener, selectors.EVENT_READ, None)
            self._listener = listener
            self._wake()

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self.refuse()
            self._is_running = False
            self._wake()
        self._thread.join(10)
        self._selector.close()
        self._wake_r.close()
        self._wake_w.close()

    def _run(self) -> None:
        while self._is_running:
            for key, events in self._selector.select():
                with self._lock:
                    if key.fileobj is self._wake_r:
                        self._wake_r.recv(4096)
                    elif key.fileobj is self._listener:
                        self._take()
                    elif isinstance(key.data, _End) and key.data in self._ends:
                        self._serve(key.data, events)

    def _take(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        try:
            broker = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        self.accepted += 1
        near, far = _End(client, is_client=True), _End(broker, is_client=False)
        near.other, far.other = far, near
        for end in (near, far):
            end.sock.setblocking(False)
            self._ends.add(end)
            self._update(end)

    def _serve(self, end: _End, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._read(end)
            if end in self._ends and events & selectors.EVENT_WRITE and end.pending:
                sent = end.sock.send(end.pending)
                del end.pending[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(end)
        for touched in (end, end.other):
            if touched in self._ends:
                self._update(touched)

    def _read(self, end: _End) -> None:
        assert end.other is not None
        data = end.sock.recv(_CHUNK)
        if not data:
            self._drop(end)
            return
        if end.is_client:
            if self._cut_after is not None and self.forwarded + len(data) >= self._cut_after:
                end.other.sock.send(data[: self._cut_after - self.forwarded])
                self._cut_after = None
                self.cut()
                return
            self.forwarded += len(data)
            time.sleep(self._pause)
        end.other.pending += data

    def _update_all(self) -> None:
        for end in self._ends:
            self._update(end)
        self._wake()

    def _update(self, end: _End) -> None:
        assert end.other is not None
        events = 0
        if not self._is_stalled:
            # What the other side has not taken holds the reading back, as in a real network.
            events |= selectors.EVENT_READ if len(end.other.pending) < _CHUNK else 0
            events |= selectors.EVENT_WRITE if end.pending else 0
        registered = end.sock in self._selector.get_map()
        if events and registered:
            self._selector.modify(end.sock, events, end)
        elif events:
            self._selector.register(end.sock, events, end)
        elif registered:
            self._selector.unregister(end.sock)

    def _drop(self, end: _End) -> None:
        for dropped in (end, end.other):
            if dropped is None or dropped not in self._ends:
                continue
            self._ends.discard(dropped)
            if dropped.sock in self._selector.get_map():
                self._selector.unregister(dropped.sock)
            dropped.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            dropped.sock.close()
        self._wake()

    def _wake(self) -> None:
        self._wake_w.send(b"x")
