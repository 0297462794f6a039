"""What the killed process of tests/integration/encryption/test_rotation.py was doing."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test import override_settings

from django_outbox.encryption import rotation
from django_outbox.encryption.field_source import FieldSource
from tests.encryptionapp.models import Customer
from tests.support.children import Say, stand_still


def reencrypt_and_stand_still(say: Say, default: str, index: str, after_updates: str) -> None:
    """Stops for good in the middle of a batch, its transaction open."""
    updates = 0

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal updates
        result = execute(sql, params, many, context)
        updates += sql.startswith("UPDATE")
        if updates == int(after_updates):
            say("in the middle")
            stand_still()
        return result

    rings = {"KEYRINGS": {"default": default, "index": index}}
    with override_settings(OUTBOX_ENCRYPTION=rings), connection.execute_wrapper(watch):
        source = FieldSource(Customer._meta.get_field("tax_id"))
        rotation.reencrypt(source, rotation.Task(index=True, limit=10))
