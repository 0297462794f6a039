"""Blind indexes: find a sealed value by equality without opening any.

The tag stands inside the stored value, ``<index kid>:<32 hex>|ob1.g.…``, and ``BlindIndexField`` is
the generated column over that beginning. Whatever writes the value writes the tag with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Case, F, Value, When
from django.db.models.functions import StrIndex, Substr
from django.db.models.lookups import GreaterThan
from django.db.models.query_utils import DeferredAttribute

from django_outbox.encryption import tokens
from django_outbox.encryption.conf import INDEX, keyring
from django_outbox.encryption.derivation import blind_tag
from django_outbox.encryption.fingerprints import verify_for_searching, verify_for_writing
from django_outbox.encryption.keyrings import Key
from django_outbox.encryption.normalisers import normalise, pinned

#: What follows a tag in a stored value.
_MARK = f"{tokens.BAR}{tokens.VERSION}."


class _TagOfSavedRow(DeferredAttribute):
    """None before the row is saved: Django reads unique fields of unsaved rows in ``full_clean``."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is not None and instance._state.adding:
            return instance.__dict__.get(self.field.attname)
        return super().__get__(instance, cls)


class BlindIndexField(models.GeneratedField):
    """The column that look-ups on an encrypted field of the same model use.

    ``BlindIndexField("tax_id", normalisers=["digits"], unique=True)``. It is computed by the
    database, never set. ``unique=True`` makes equal values collide (equal as the normalisers see
    them); without it the column gets a plain index.
    """

    descriptor_class = _TagOfSavedRow

    def __init__(self, source: str, *, normalisers: Iterable[str] = (), **kwargs: Any) -> None:
        names = [normalisers] if isinstance(normalisers, str) else normalisers
        self.source_name = source
        self.normalisers = tuple(pinned(name) for name in names)
        if not kwargs.get("unique"):
            kwargs.setdefault("db_index", True)
        super().__init__(
            expression=_beginning_of(source),
            output_field=models.CharField(max_length=tokens.TAG_LENGTH),
            db_persist=True,
            serialize=False,
            **kwargs,
        )

    def deconstruct(self) -> Any:
        """The path that migrations name for ever, and what the field was made with."""
        name, path, args, kwargs = super().deconstruct()
        for derived in ("expression", "output_field", "db_persist", "serialize"):
            kwargs.pop(derived, None)
        # True is this field's default, where it is not unique.
        if not kwargs.get("unique") and not kwargs.pop("db_index", False):
            kwargs["db_index"] = False
        if self.normalisers:
            kwargs["normalisers"] = list(self.normalisers)
        if path == f"{__name__}.BlindIndexField":
            path = "django_outbox.encryption.BlindIndexField"
        return name, path, [self.source_name, *args], kwargs

    def db_type(self, connection: Any) -> Any:
        """The column's type, spelled so that PostgreSQL gets no second index for LIKE."""
        db_type = super().db_type(connection)
        if connection.vendor == "postgresql" and db_type:
            return db_type.replace("varchar", "character varying", 1)
        return db_type

    def generated_sql(self, connection: Any) -> Any:
        """The column's expression, for a source that is a sealed column by then.

        ``makemigrations`` makes the index before it alters the field where both come at once, and
        PostgreSQL alters no column that another one is generated from.
        """
        if not hasattr(self.model._meta.get_field(self.source_name), "seal_context"):
            raise FieldError(
                f"{self.model._meta.label}.{self.name}: {self.source_name!r} is not encrypted yet at"
                " this point of the migration. Put the AlterField of the one before the AddField of"
                " the other."
            )
        return super().generated_sql(connection)

    def tag(self, text: str, using: str) -> str:
        """The tag to store beside this value (in its text form) on this database."""
        __traceback_hide__ = True
        return tag_of(text, context=self._context, normalisers=self.normalisers, using=using)

    def tags(self, text: str, using: str) -> list[str]:
        """The tags under which this value may be found on this database."""
        __traceback_hide__ = True
        return tags_of(text, context=self._context, normalisers=self.normalisers, using=using)

    @cached_property
    def _context(self) -> str:
        source: Any = self.model._meta.get_field(self.source_name)
        context: str = source.seal_context
        return context


def tag_of(value: str, *, context: str, normalisers: Iterable[str] = (), using: str) -> str:
    """The value's tag under the primary index key, as it is stored: ``<index kid>:<32 hex>``.

    ``context`` says what the value is (``crm.customer.tax_id``, or any name of the caller's that
    belongs to nothing else); equal values have equal tags within one context only. ``using`` is the
    database it will be written to, where the key's fingerprint is compared first.
    """
    __traceback_hide__ = True
    key = verify_for_writing(keyring(INDEX), using)
    return _tag(key, context, normalise(value, normalisers))


def tags_of(value: str, *, context: str, normalisers: Iterable[str] = (), using: str) -> list[str]:
    """The value's tags under every active index key: what a look-up has to ask for."""
    __traceback_hide__ = True
    text = normalise(value, normalisers)
    return [_tag(key, context, text) for key in verify_for_searching(keyring(INDEX), using)]


def _tag(key: Key, context: str, normalised: str) -> str:
    __traceback_hide__ = True
    return f"{key.kid}:{blind_tag(key.secret, context, normalised)}"


# Django takes SQLite's CREATE TABLE apart at ", " and trips over the arguments of functions there.
class _Substr(Substr):
    arg_joiner = ","


class _StrIndex(StrIndex):
    arg_joiner = ","


def _beginning_of(source: str) -> Case:
    """The tag in a stored value; NULL for a value without one (NULL, clear, not yet indexed)."""
    head = _Substr(F(source), 1, tokens.TAG_LENGTH + len(_MARK))
    bar = _StrIndex(head, Value(_MARK))
    return Case(When(GreaterThan(bar, Value(1)), then=_Substr(head, Value(1), bar - Value(1))))
