"""One publisher an alias and process, made at first use and closed when the settings change."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.base import Bounded, Publisher

_publishers: dict[str, Publisher] = {}
_lock = threading.Lock()


def publisher_for(alias: str) -> Publisher:
    """The publisher of this alias. Raises ``ImproperlyConfiguredOutbox`` where it cannot be made."""
    with _lock:
        if alias not in _publishers:
            _publishers[alias] = make_publisher(alias)
        return _publishers[alias]


def make_publisher(alias: str) -> Publisher:
    """A publisher of this alias that nobody else uses; it opens no connection before it is used.

    Raises ``ImproperlyConfiguredOutbox`` where it cannot be made.
    """
    settings = outbox_settings()
    config = settings.publishers.get(alias)
    if config is None:
        raise ImproperlyConfiguredOutbox(f"OUTBOX['PUBLISHERS'] has no {alias!r}.")
    try:
        backend = publisher_class(config.backend)
    except ImportError as error:
        raise ImproperlyConfiguredOutbox(
            f"OUTBOX['PUBLISHERS'][{alias!r}]['BACKEND'] cannot be imported: {error}"
        ) from error
    return backend(alias, {"CONFIRM_TIMEOUT": settings.confirm_timeout, **config.options})


def lease_problems(
    settings: OutboxSettings, publishers: Mapping[str, Publisher]
) -> list[tuple[str, str]]:
    """Publishers that may take longer than the lease leaves them, as (problem, hint).

    A round may be begun until half of the lease is spent, so the other half has to be enough for it.
    """
    found = []
    for alias, publisher in publishers.items():
        if isinstance(publisher, Bounded) and publisher.longest_publish > settings.lease / 2:
            longest = publisher.longest_publish.total_seconds()
            problem = (
                f"OUTBOX['LEASE'] is {settings.lease.total_seconds():g} s, and publishing through"
                f" {alias!r} may take {longest:g} s of it: a second relay may send the same messages."
            )
            hint = (
                f"Messages are handed over until half of the lease is spent: make LEASE {2 * longest:g}"
                " s or more, or the publisher's time-outs shorter."
            )
            found.append((problem, hint))
    return found


def close_publishers() -> None:
    """Close every publisher of this process; the next use makes new ones."""
    with _lock:
        while _publishers:
            _publishers.popitem()[1].close()


def publisher_class(backend: str) -> type[Publisher]:
    """The class behind a BACKEND path. Raises ``ImportError`` where there is none."""
    found: type[Publisher] = import_string(backend)
    return found


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == "OUTBOX":
        close_publishers()


setting_changed.connect(_reset, dispatch_uid="django_outbox.publishers")
