"""System checks: keys, models and admin classes, before anything is read or written.

Ids are ``django_outbox_encryption.E001`` and so on, never used again; each has its paragraph in
docs/reference/encryption.md.
"""

from __future__ import annotations

from django.core import checks

from django_outbox.encryption.checks.admin import check_admin
from django_outbox.encryption.checks.keys import check_fingerprints, check_keyrings
from django_outbox.encryption.checks.models import check_models


def register() -> None:
    """Called once, when the app is ready."""
    checks.register(check_keyrings, checks.Tags.security)
    checks.register(check_fingerprints, checks.Tags.database)
    checks.register(check_models, checks.Tags.models)
    checks.register(check_admin, checks.Tags.admin)
