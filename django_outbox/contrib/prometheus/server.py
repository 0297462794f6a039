"""A port of the process's own, for relays and consumers: nothing else in them speaks HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY, start_http_server

from django_outbox.contrib.prometheus import install


@contextmanager
def metrics_server(host: str, port: int) -> Iterator[int]:
    """Serve ``/metrics`` while the block lasts; yields the port, chosen by the system for 0.

    Raises ``OSError`` where the address is taken.
    """
    install()
    server, thread = start_http_server(port, host, REGISTRY)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
