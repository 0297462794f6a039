"""Metrics for Prometheus, in the registry that ``prometheus_client`` and django-prometheus serve.

``INSTALLED_APPS = [..., "django_outbox.contrib.prometheus"]`` turns them on, or ``install()``. All of them
are listed in docs/reference/metrics.md.

The names are imported on first use (PEP 562): they need the models, and Django imports this package as an
app before there are any.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox.contrib.prometheus.collector import OutboxCollector
    from django_outbox.contrib.prometheus.counters import ProcessMetrics
    from django_outbox.contrib.prometheus.registering import install, uninstall

__all__ = ["OutboxCollector", "ProcessMetrics", "install", "uninstall"]

_HOMES = {
    "OutboxCollector": "django_outbox.contrib.prometheus.collector",
    "ProcessMetrics": "django_outbox.contrib.prometheus.counters",
    "install": "django_outbox.contrib.prometheus.registering",
    "uninstall": "django_outbox.contrib.prometheus.registering",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
