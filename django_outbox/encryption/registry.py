"""Which models hold encrypted fields and blind indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Model

from django_outbox.encryption.blind_index import BlindIndexField
from django_outbox.encryption.fields import EncryptedField


def encrypted_fields(models: Iterable[type[Model]]) -> Iterator[EncryptedField]:
    """Every encrypted field of these models, each with the model that has its column."""
    return _fields(models, EncryptedField)


def blind_indexes(models: Iterable[type[Model]]) -> Iterator[BlindIndexField]:
    """Every blind index of these models."""
    return _fields(models, BlindIndexField)


def _fields(models: Iterable[type[Model]], kind: type[Any]) -> Iterator[Any]:
    for model in models:
        if not model._meta.proxy and not model._meta.swapped:
            yield from (field for field in model._meta.local_fields if isinstance(field, kind))
