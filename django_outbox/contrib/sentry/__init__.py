"""Sentry's traces from the producer's transaction to the consumer's, through the table and the broker.

``INSTALLED_APPS = [..., "django_outbox.contrib.sentry"]`` turns it on, or ``install()``. It does nothing
until ``sentry_sdk.init()`` was called.
"""

from __future__ import annotations

from django_outbox.contrib.sentry.tracing import SentryObserver
from django_outbox.observers import add_observer, remove_observer

__all__ = ["SentryObserver", "install", "uninstall"]

_observer = SentryObserver()


def install() -> None:
    """Carry Sentry's traces along from here on."""
    add_observer(_observer)


def uninstall() -> None:
    """Carry them no more."""
    remove_observer(_observer)
