"""What is wrong with ``OUTBOX["ARCHIVE"]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error

from django_outbox.conf import settings_problems
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.operations.archive import configured_archive


def check_archive(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """What pruning hands messages to can be made."""
    if settings_problems():
        return []
    try:
        configured_archive()
    except ImproperlyConfiguredOutbox as error:
        return [unusable_archive(str(error))]
    return []


def unusable_archive(problem: str) -> Error:
    return Error(
        problem,
        hint="A callable that takes a list of ArchivedMessage, or a class of such: until then pruning"
        " deletes nothing.",
        id="django_outbox.E007",
    )
