"""Encrypted model fields with blind indexes, and sealed members of payloads.

A Django app of its own (label ``django_outbox_encryption``): it imports nothing else of
django_outbox and can be used alone. The path of the fields here enters users' migrations and is
final. Names are imported on first use (PEP 562), since Django loads this package before any model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox.encryption.blind_index import BlindIndexField
    from django_outbox.encryption.conf import keyring, reload_keyrings
    from django_outbox.encryption.field_types import (
        EncryptedBinaryField,
        EncryptedBooleanField,
        EncryptedCharField,
        EncryptedDateField,
        EncryptedDateTimeField,
        EncryptedDecimalField,
        EncryptedEmailField,
        EncryptedIntegerField,
        EncryptedJSONField,
        EncryptedTextField,
    )
    from django_outbox.encryption.keyrings import parse_keyring
    from django_outbox.encryption.masking import mask, masked
    from django_outbox.encryption.stored import Undecryptable, stored_values

_HOMES = {
    "BlindIndexField": "blind_index",
    "EncryptedBinaryField": "field_types",
    "EncryptedBooleanField": "field_types",
    "EncryptedCharField": "field_types",
    "EncryptedDateField": "field_types",
    "EncryptedDateTimeField": "field_types",
    "EncryptedDecimalField": "field_types",
    "EncryptedEmailField": "field_types",
    "EncryptedIntegerField": "field_types",
    "EncryptedJSONField": "field_types",
    "EncryptedTextField": "field_types",
    "Undecryptable": "stored",
    "keyring": "conf",
    "mask": "masking",
    "masked": "masking",
    "parse_keyring": "keyrings",
    "reload_keyrings": "conf",
    "stored_values": "stored",
}

__all__ = [
    "BlindIndexField",
    "EncryptedBinaryField",
    "EncryptedBooleanField",
    "EncryptedCharField",
    "EncryptedDateField",
    "EncryptedDateTimeField",
    "EncryptedDecimalField",
    "EncryptedEmailField",
    "EncryptedIntegerField",
    "EncryptedJSONField",
    "EncryptedTextField",
    "Undecryptable",
    "keyring",
    "mask",
    "masked",
    "parse_keyring",
    "reload_keyrings",
    "stored_values",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
