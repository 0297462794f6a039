"""The app that turns tracing on."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OpenTelemetryConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox.contrib.opentelemetry", …]``."""

    name = "django_outbox.contrib.opentelemetry"
    label = "django_outbox_opentelemetry"
    verbose_name = _("Transactional outbox: traces")

    def ready(self) -> None:
        """Trace with the global tracer provider."""
        from django_outbox.contrib.opentelemetry import install

        install()
