"""A port of the process's own, for relays and consumers: nothing else in them speaks HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import REGISTRY, start_http_server

from django_outbox.contrib.prometheus import install, uninstall


@contextmanager
def metrics_server(host: str, port: int) -> Iterator[int]:
    """Serve ``/metrics`` while the block lasts; yields the port, chosen by the system for 0.

    The metrics are turned on for as long, where they were not on before. Raises ``OSError`` where
    the address cannot be had.
    """
    with ExitStack() as stack:
        if install():
            stack.callback(uninstall)
        server, thread = start_http_server(port, host, REGISTRY)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
