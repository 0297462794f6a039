"""Turn the metrics on and off, by registry."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry

from django_outbox.contrib.prometheus.collector import OutboxCollector
from django_outbox.contrib.prometheus.counters import ProcessMetrics

_installed: dict[CollectorRegistry, tuple[ProcessMetrics, OutboxCollector | None]] = {}


def install(registry: CollectorRegistry = REGISTRY, *, database: bool = True) -> bool:
    """Count what this process does, and with ``database`` show the table's state at each scrape.

    Returns whether this call turned them on: a second one for the same registry changes nothing.
    """
    if registry in _installed:
        return False
    metrics = ProcessMetrics(registry)
    collector = OutboxCollector() if database else None
    if collector is not None:
        registry.register(collector)
    metrics.connect()
    _installed[registry] = (metrics, collector)
    return True


def uninstall(registry: CollectorRegistry = REGISTRY) -> None:
    """Count no more, and take the metrics out of the registry."""
    if registry not in _installed:
        return
    metrics, collector = _installed.pop(registry)
    metrics.disconnect()
    metrics.unregister()
    if collector is not None:
        registry.unregister(collector)
