"""The app: registers checks and finds the projects' event types and consumers."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox", …]``."""

    name = "django_outbox"
    label = "django_outbox"
    verbose_name = _("Transactional outbox")
    default_auto_field = "django.db.models.BigAutoField"
