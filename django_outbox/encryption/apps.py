"""The app: its table of fingerprints and its checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class EncryptionConfig(AppConfig):
    """``INSTALLED_APPS = ["django_outbox.encryption", …]``."""

    name = "django_outbox.encryption"
    label = "django_outbox_encryption"
    verbose_name = _("Encryption")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and record the keys' fingerprints after each migrate."""
        # Imported here: models are not ready when Django reads this module.
        from django_outbox.encryption import checks, fingerprints

        checks.register()
        post_migrate.connect(
            fingerprints.record_after_migrate,
            sender=self,
            dispatch_uid="django_outbox.encryption.fingerprints",
        )
