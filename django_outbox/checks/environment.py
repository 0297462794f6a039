"""What else is installed that does not go together with this package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error

#: On PyPI since 2015, another project; its files go to the same directory as ours.
_NAMESAKE = "django-outbox"


def check_environment(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """No other distribution overwrites this package's files."""
    try:
        distribution(_NAMESAKE)
    except PackageNotFoundError:
        return []
    return [name_clash()]


def name_clash() -> Error:
    return Error(
        "The distribution django-outbox is installed. It is another project, and puts its files into"
        " the package django_outbox, over those of django-transactional-outbox.",
        hint="Run: pip uninstall django-outbox"
        " && pip install --force-reinstall --no-deps django-transactional-outbox",
        id="django_outbox.E020",
    )
