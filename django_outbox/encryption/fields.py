"""EncryptedField: what every encrypted model field does between Python and its text column.

Values are sealed in ``get_db_prep_value`` and opened in ``from_db_value``, nowhere else: not in
``to_python``, forms or serialisers. NULL stays NULL; everything else is sealed, whatever it looks
like.

Django prints the variables of frames on exception pages, except of those that set
``__traceback_hide__``: here, all that hold a clear value.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.encryption import tokens
from django_outbox.encryption.aead import open_stored, seal
from django_outbox.encryption.conf import encryption_settings, keyring
from django_outbox.encryption.exceptions import (
    DecryptionFailed,
    EncryptionError,
    PlaintextFound,
)
from django_outbox.encryption.expressions import EncryptedCol, expression_to_save
from django_outbox.encryption.fingerprints import verify_for_writing
from django_outbox.encryption.forms import masking
from django_outbox.encryption.lookups import lookup_for, refusal
from django_outbox.encryption.masking import MASK
from django_outbox.encryption.stored import StoredValue, Undecryptable, carries_stored
from django_outbox.encryption.uniqueness import (
    Unsaved,
    database_cannot_tell,
    is_taken,
    refuse_taken,
)
from django_outbox.encryption.unreadable import pk_of_row_with

if TYPE_CHECKING:
    from django_outbox.encryption.blind_index import BlindIndexField

    _Field = models.Field[Any, Any]
else:
    _Field = models.Field

logger = logging.getLogger("django_outbox.encryption")


class EncryptedField(_Field):
    """The first base of every encrypted field; the second is Django's field of the same type.

    ``context`` names the column for ever and is part of what is authenticated: ``app.model.field``
    unless given. Give the old one when a field, model or app is renamed.
    """

    is_encrypted = True
    #: Django's own names the value, and texts of errors end in logs.
    default_error_messages = {"invalid_choice": _("The value is not a valid choice.")}
    #: Whether a blind index over values of this type makes sense.
    can_be_indexed = True

    def __init__(self, *args: Any, context: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pinned_context = context
        self.seal_context = context or ""

    def deconstruct(self) -> Any:
        """The path that migrations name for ever, and the context, pinned."""
        name, path, args, kwargs = super().deconstruct()
        if path.startswith("django_outbox.encryption.field_types."):
            path = f"django_outbox.encryption.{type(self).__name__}"
        if self.seal_context:
            kwargs["context"] = self.seal_context
        return name, path, args, kwargs

    def contribute_to_class(
        self, cls: type[models.Model], name: str, *args: Any, **kw: Any
    ) -> None:
        """Take the context from the model, unless it is pinned. Each child of an abstract model has its own."""
        super().contribute_to_class(cls, name, *args, **kw)
        self.__dict__.pop("blind_index", None)
        self.seal_context = self._pinned_context or f"{cls._meta.label_lower}.{name}"

    def get_internal_type(self) -> str:
        """A text column, whatever the Python type."""
        return "TextField"

    @cached_property
    def blind_index(self) -> BlindIndexField | None:
        """The model's blind index over this field, if there is one."""
        for field in self.model._meta.local_fields:
            if getattr(field, "source_name", None) == self.name:
                return field  # type: ignore[return-value]  # only BlindIndexField has the name
        return None

    # What a subclass says of its type.

    def to_plaintext(self, value: Any) -> str | bytes:
        """The value as it is sealed, one text for each value. Raises ``TypeError`` or ``ValueError``."""
        raise TypeError(f"{type(self).__name__} does not say how its values become text.")

    def from_plaintext(self, plaintext: bytes) -> Any:
        """The value again. Raises ``ValueError`` for what no value is sealed as."""
        raise TypeError(f"{type(self).__name__} does not say how text becomes its values.")

    def from_clear(self, text: str) -> Any:
        """The value of a column that is not sealed yet. Raises ``ValidationError`` or ``ValueError``."""
        return super().to_python(text)

    # Into the database.

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Seal the value; None and expressions pass."""
        __traceback_hide__ = True
        if value is None or hasattr(value, "resolve_expression"):
            return value
        if isinstance(value, StoredValue):
            return self._stored(value)
        plaintext = self.plaintext_of(value)
        key = verify_for_writing(keyring(), connection.alias)
        index = self.blind_index
        tag = None if index is None else index.tag(self._text(plaintext), connection.alias)
        return seal(plaintext, key, self.seal_context, tag)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        """The same for INSERT and UPDATE, where expressions are looked at too."""
        __traceback_hide__ = True
        if isinstance(value, Unsaved):
            refuse_taken(self, value, connection.alias)
            value = value.value
        if hasattr(value, "resolve_expression"):
            return expression_to_save(self, value)
        return self.get_db_prep_value(value, connection)

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """The instance's value; on its way to be compared where the unique index cannot tell."""
        __traceback_hide__ = True
        value = super().pre_save(model_instance, add)
        if (
            value is None
            or isinstance(value, StoredValue)
            or hasattr(value, "resolve_expression")
            or not database_cannot_tell(self)
        ):
            return value
        return Unsaved(value, model_instance)

    def index_text(self, value: Any) -> str:
        """The value as the blind index sees it, before its normalisers."""
        __traceback_hide__ = True
        return self._text(self.plaintext_of(value))

    def plaintext_of(self, value: Any) -> bytes:
        """The bytes that are sealed for this value."""
        __traceback_hide__ = True
        try:
            plaintext = self.to_plaintext(value)
        except (TypeError, ValueError) as error:
            # Exception pages print the variables of every frame, and those below hold the value.
            raise error.with_traceback(None) from None
        if isinstance(plaintext, bytes):
            return plaintext
        try:
            return plaintext.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{self.seal_context}: text with lone surrogates is not Unicode."
            ) from None

    @staticmethod
    def _text(plaintext: bytes) -> str:
        return plaintext.decode()

    def _stored(self, value: StoredValue) -> str:
        if value.context != self.seal_context:
            raise DecryptionFailed(
                f"a stored value of {value.context} cannot be written here.",
                place=self.seal_context,
            )
        if not isinstance(value, Undecryptable):
            self._located(value.raw)
        return value.raw

    def _located(self, raw: str) -> bytes:
        """Open a stored value of this column; errors name the column."""
        try:
            return open_stored(raw, keyring(), self.seal_context)
        except EncryptionError as error:
            error.place = self.seal_context
            raise

    # Out of the database.

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Open the value. Raises, or returns ``Undecryptable``, as ``ON_ERROR`` says."""
        if value is None:
            return None
        __traceback_hide__ = True
        if type(value) is not str:
            value = (
                bytes(value).decode("latin-1")
                if isinstance(value, memoryview | bytes)
                else str(value)
            )
        if carries_stored():
            return StoredValue(value, self.seal_context)
        # Outside: without a ring no value is readable, and that is no fault of a row.
        ring = keyring()
        try:
            plaintext = open_stored(value, ring, self.seal_context)
        except EncryptionError as error:
            return self._unreadable(value, error, connection)
        try:
            return self.from_plaintext(plaintext)
        except ValueError:
            reason = f"the value opens, but is none of {type(self).__name__}."
            return self._unreadable(value, DecryptionFailed(reason), connection)

    def _unreadable(self, raw: str, error: EncryptionError, connection: Any) -> Any:
        __traceback_hide__ = True
        settings = encryption_settings()
        if not tokens.looks_sealed(raw):
            error = PlaintextFound(
                "a clear value stands in the encrypted column. While the column is being sealed,"
                ' name it in OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"].'
            )
            if self.seal_context in settings.allow_plaintext:
                try:
                    return self.from_clear(raw)
                except (ValidationError, ValueError, TypeError):
                    error = PlaintextFound(f"a clear value that is none of {type(self).__name__}.")
        error.place = self.seal_context
        if settings.on_error == "sentinel":
            logger.warning(
                "unreadable value: %s",
                error,
                extra={"event": "value_unreadable", "context": self.seal_context},
            )
            return Undecryptable(raw, self.seal_context, str(error))
        error.pk = pk_of_row_with(self, raw, connection)
        try:
            raise error from None
        finally:
            # This frame and the error would keep each other, and a cursor, alive.
            del error

    # In queries.

    def get_lookup(self, lookup_name: str) -> Any:
        """What the blind index can answer. Raises ``FieldError`` for everything else."""
        return lookup_for(self, lookup_name)

    def get_transform(self, lookup_name: str) -> Any:
        """None works on sealed values: raises ``FieldError``."""
        raise refusal(self, lookup_name)

    def get_col(self, alias: str, output_field: Any = None) -> Any:
        """The column, watched for where it stands in a query."""
        if alias == self.model._meta.db_table and output_field in (None, self):
            return self.cached_col
        return EncryptedCol(alias, self, output_field)

    @cached_property
    def cached_col(self) -> EncryptedCol:
        """The column under its table's own name."""
        return EncryptedCol(self.model._meta.db_table, self)

    # Forms and serialisers.

    def to_python(self, value: Any) -> Any:
        """As Django's field does. Never opens anything; see ``stored_values`` for dumps."""
        __traceback_hide__ = True
        if isinstance(value, StoredValue):
            return value
        if carries_stored() and isinstance(value, str) and tokens.looks_sealed(value):
            return StoredValue(value, self.seal_context)
        return super().to_python(value)

    def clean(self, value: Any, model_instance: Any) -> Any:
        """Validate the clear value; a value that is taken is an error of this field."""
        __traceback_hide__ = True
        if isinstance(value, StoredValue):
            return value
        value = super().clean(value, model_instance)
        if (
            value is not None
            and isinstance(model_instance, models.Model)
            and is_taken(self, value, model_instance)
        ):
            params = {"model_name": self.model._meta.verbose_name, "field_label": self.verbose_name}
            raise ValidationError(self.error_messages["unique"], code="unique", params=params)
        return value

    def formfield(self, **kwargs: Any) -> Any:
        """Django's form field of the type; it leaves alone what cannot be read."""
        return masking(super().formfield(**kwargs))

    def save_form_data(self, instance: models.Model, data: Any) -> None:
        """Take a form's value, unless it is the mask that an unreadable value was shown as."""
        __traceback_hide__ = True
        current = instance.__dict__.get(self.attname)
        if not (isinstance(current, Undecryptable) and data == MASK):
            super().save_form_data(instance, data)

    def value_to_string(self, obj: models.Model) -> str:
        """The value for serialisers: the token inside ``stored_values()``."""
        __traceback_hide__ = True
        value = self.value_from_object(obj)
        return value.raw if isinstance(value, StoredValue) else super().value_to_string(obj)
