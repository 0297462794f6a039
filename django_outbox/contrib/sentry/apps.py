"""The app that carries Sentry's traces along."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SentryConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox.contrib.sentry", …]``."""

    name = "django_outbox.contrib.sentry"
    label = "django_outbox_sentry"
    verbose_name = _("Transactional outbox: Sentry")

    def ready(self) -> None:
        """Whether or not ``sentry_sdk.init()`` was called yet."""
        from django_outbox.contrib.sentry import install

        install()
