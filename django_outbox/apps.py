"""The app: registers checks and finds the projects' event types and consumers."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox", …]``."""

    name = "django_outbox"
    label = "django_outbox"
    verbose_name = _("Transactional outbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import ``events.py`` and ``consumers.py`` of every installed app, as the admin does its own."""
        from django_outbox.checks import register_checks  # needs the models

        register_checks()
        autodiscover_modules("events", "consumers")
        if apps.is_installed("django_outbox.encryption"):
            from django_outbox.encryption.rotation import register_source
            from django_outbox.operations.reencryption import PayloadSource

            register_source(PayloadSource())
