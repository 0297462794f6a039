"""Whether a value is taken: asked of the blind index, told on the field that people fill in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import IntegrityError, models, router

from django_outbox.encryption.conf import INDEX, encryption_settings, keyring


class Unsaved:
    """A value on its way from ``pre_save`` to the database, with the instance it belongs to."""

    __slots__ = ("instance", "value")

    def __init__(self, value: Any, instance: models.Model) -> None:
        self.value = value
        self.instance = instance


def is_taken(field: Any, value: Any, instance: models.Model, using: str | None = None) -> bool:
    """Whether another row has this value where the model says that it must be unique."""
    __traceback_hide__ = True
    model = field.model
    alias = using or instance._state.db or router.db_for_read(model, instance=instance)
    pk = instance._get_pk_val(model._meta)
    for others in _unique_together_with(field):
        beside = {other.attname: getattr(instance, other.attname) for other in others}
        if None in beside.values():
            continue  # NULL equals nothing, so such rows never collide.
        rows = model._base_manager.using(alias).filter(**{field.name: value}, **beside)
        if (rows if pk is None else rows.exclude(pk=pk)).exists():
            return True
    return False


def database_cannot_tell(field: Any) -> bool:
    """Whether equal values may have different tags, so that the unique index would miss them.

    While index keys rotate, and while the column still holds clear values.
    """
    if not any(True for _ in _unique_together_with(field)):
        return False
    return (
        field.seal_context in encryption_settings().allow_plaintext
        or len(keyring(INDEX).active) > 1
    )


def refuse_taken(field: Any, unsaved: Unsaved, using: str) -> None:
    """Raise ``IntegrityError`` as the unique index would if it could tell."""
    __traceback_hide__ = True
    if is_taken(field, unsaved.value, unsaved.instance, using):
        raise IntegrityError(
            f"UNIQUE of {field.model._meta.label}.{field.blind_index.name}: another row has this"
            " value, under another index key or not sealed yet."
        )


def _unique_together_with(field: Any) -> Iterator[list[Any]]:
    """For each uniqueness over the field's blind index: the other fields that are part of it."""
    index = field.blind_index
    if index is None:
        return
    if index.unique:
        yield []
    meta = field.model._meta
    for constraint in meta.total_unique_constraints:
        if index.name in constraint.fields:
            yield [meta.get_field(name) for name in constraint.fields if name != index.name]
