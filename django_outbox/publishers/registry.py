"""One publisher an alias and process, made at first use and closed when the settings change."""

from __future__ import annotations

import threading
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_outbox.conf import outbox_settings
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.base import Publisher

_publishers: dict[str, Publisher] = {}
_lock = threading.Lock()


def publisher_for(alias: str) -> Publisher:
    """The publisher of this alias. Raises ``ImproperlyConfiguredOutbox`` where it cannot be made."""
    with _lock:
        if alias not in _publishers:
            _publishers[alias] = _make(alias)
        return _publishers[alias]


def close_publishers() -> None:
    """Close every publisher of this process; the next use makes new ones."""
    with _lock:
        while _publishers:
            _publishers.popitem()[1].close()


def publisher_class(backend: str) -> type[Publisher]:
    """The class behind a BACKEND path. Raises ``ImportError`` where there is none."""
    found: type[Publisher] = import_string(backend)
    return found


def _make(alias: str) -> Publisher:
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


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == "OUTBOX":
        close_publishers()


setting_changed.connect(_reset, dispatch_uid="django_outbox.publishers")
