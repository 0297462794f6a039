"""KeyFingerprint: which key was known under which id, without the key."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class KeyFingerprint(models.Model):
    """One key of one ring as it was when it first sealed something.

    Written in the transaction of that first value. ``canary`` is a constant sealed (or tagged)
    under the key: what opens it opens the values too.
    """

    id = models.BigAutoField(primary_key=True)
    ring = models.CharField(_("keyring"), max_length=20)
    kid = models.CharField(_("key id"), max_length=32)
    fingerprint = models.CharField(_("fingerprint"), max_length=16)
    canary = models.TextField(_("canary"))
    first_used_at = models.DateTimeField(_("first used at"), db_default=Now())
    destroyed_at = models.DateTimeField(_("destroyed at"), null=True, blank=True)

    class Meta:
        app_label = "django_outbox_encryption"
        verbose_name = _("key fingerprint")
        verbose_name_plural = _("key fingerprints")
        constraints = [
            models.UniqueConstraint(name="django_outbox_encryption_kid", fields=["ring", "kid"]),
        ]

    def __str__(self) -> str:
        return f"{self.ring} {self.kid} {self.fingerprint}"
