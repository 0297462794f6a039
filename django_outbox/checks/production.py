"""With ``--deploy``: settings that are good on a laptop and go wrong where the service runs for long."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage

from django_outbox.conf import outbox_settings, settings_problems
from django_outbox.exceptions import ImproperlyConfiguredOutbox

#: Caches that belong to one process, or forget at once.
_NOT_SHARED = (
    "django.core.cache.backends.locmem.LocMemCache",
    "django.core.cache.backends.dummy.DummyCache",
)
_DEAD_LETTERS = "x-dead-letter-exchange"


def check_retention(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """What grows with every message is pruned some day."""
    if settings_problems():
        return []
    retention = outbox_settings().retention
    kept = [name for name in ("published", "processed") if getattr(retention, name) is None]
    return [kept_for_ever(kept)] if kept else []


def check_seen_in_cache(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The cache that remembers what consumers have seen is one that all of them share."""
    if settings_problems():
        return []
    consumers = outbox_settings().consumers
    if consumers.seen_in != "cache":
        return []
    backend = django_settings.CACHES.get(consumers.cache, {}).get("BACKEND", "")
    return [cache_not_shared(consumers.cache, backend)] if backend in _NOT_SHARED else []


def check_dead_letters(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """What a consumer rejects is kept: its queue has a dead-letter exchange.

    Looks at ``OUTBOX["TOPOLOGY"]`` and at the queues of the Celery app, where one is loaded; the broker is
    not asked. ``outbox_consume`` asks it whenever it starts.
    """
    if settings_problems():
        return []
    # Imported at use: whoever only enqueues loads no broker's library.
    from django_outbox.brokers.rabbitmq.topology import Queue
    from django_outbox.brokers.rabbitmq.topology_options import topology

    try:
        planned = topology()
    except ImproperlyConfiguredOutbox:
        return []  # outbox_topology and outbox_consume say what is wrong
    names = {name for queue in planned.queues for name in queue.names}
    found: list[CheckMessage] = [
        no_dead_letters(f"OUTBOX['TOPOLOGY'] gives the queue {item.name!r}")
        for item in planned.items()
        if isinstance(item, Queue) and item.name in names and not item.arguments[_DEAD_LETTERS]
    ]
    if "celery" in sys.modules:
        from django_outbox.consumers.celery.queues import queues_of_tasks

        found += [
            no_dead_letters(f"The consumer task {task!r} reads the queue {queue!r}, which has")
            for task, queue, arguments in queues_of_tasks()
            if queue not in names and not arguments.get(_DEAD_LETTERS)
        ]
    return found


def kept_for_ever(kept: Sequence[str]) -> checks.Warning:
    return checks.Warning(
        f"OUTBOX['RETENTION'] keeps for ever what is {' and '.join(kept)}: the tables grow without end.",
        hint="Give a duration, and run outbox_prune now and then.",
        id="django_outbox.W024",
    )


def no_dead_letters(whose: str) -> checks.Warning:
    return checks.Warning(
        f"{whose} no dead-letter exchange: RabbitMQ throws away what is rejected.",
        hint="Describe the queue in OUTBOX['TOPOLOGY'] and make it by outbox_topology, or give it"
        f" the argument {_DEAD_LETTERS!r}.",
        id="django_outbox.W025",
    )


def cache_not_shared(alias: str, backend: str) -> checks.Warning:
    return checks.Warning(
        f"OUTBOX['CONSUMERS']['SEEN_IN'] is 'cache', and the cache {alias!r} is a"
        f" {backend.rsplit('.', 1)[1]}: every process remembers for itself, or nothing at all.",
        hint="Name a cache that all consumers share, or keep it in the 'table'.",
        id="django_outbox.W026",
    )
