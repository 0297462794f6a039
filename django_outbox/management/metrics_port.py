"""``--metrics-port`` and ``--metrics-host``: the same for every command that serves its metrics."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django.core.management.base import CommandError


def add_metrics_arguments(parser: ArgumentParser) -> None:
    """The two options."""
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve Prometheus metrics on this port"
    )
    parser.add_argument(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="the address to serve them on; 0.0.0.0 for every interface. Default: 127.0.0.1",
    )


@contextmanager
def metrics_port(options: Mapping[str, Any]) -> Iterator[None]:
    """Serve the process's metrics while the block lasts, where a port was given."""
    port, host = options["metrics_port"], options["metrics_host"]
    if port is None:
        yield
        return
    try:
        from django_outbox.contrib.prometheus.server import metrics_server
    except ImportError as error:
        raise CommandError(
            f"--metrics-port needs prometheus_client ({error}):"
            " pip install 'django-transactional-outbox[prometheus]'."
        ) from error
    with ExitStack() as stack:
        try:
            stack.enter_context(metrics_server(host, port))
        except (OSError, OverflowError) as error:
            raise CommandError(f"Metrics cannot be served on {host}:{port}: {error}.") from error
        yield
