"""Traces from the producer's transaction to the consumer's, through the table and the broker.

``INSTALLED_APPS = [..., "django_outbox.contrib.opentelemetry"]`` turns it on, or ``install()``. Only the
API of OpenTelemetry is needed; without an SDK in the process no span is made.
"""

from __future__ import annotations

from opentelemetry.trace import TracerProvider

from django_outbox.contrib.opentelemetry.tracing import TracingObserver
from django_outbox.observers import add_observer, remove_observer

__all__ = ["TracingObserver", "install", "uninstall"]

_installed: list[TracingObserver] = []


def install(tracer_provider: TracerProvider | None = None) -> None:
    """Trace from here on. None: the global provider, also one that is set later.

    A second call replaces the first.
    """
    uninstall()
    observer = TracingObserver(tracer_provider)
    _installed.append(observer)
    add_observer(observer)


def uninstall() -> None:
    """Trace no more."""
    while _installed:
        remove_observer(_installed.pop())
