"""The app that turns the metrics on."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PrometheusConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox.contrib.prometheus", …]``."""

    name = "django_outbox.contrib.prometheus"
    label = "django_outbox_prometheus"
    verbose_name = _("Transactional outbox: metrics")

    def ready(self) -> None:
        """Into the default registry."""
        from django_outbox.contrib.prometheus import install

        install()
