"""The ten encrypted field types: how a value of each becomes one text, and a value again.

A text form never changes: it is stored, and the blind index is made of it.
"""

from __future__ import annotations

import decimal
import json
import warnings
from base64 import b64decode, b64encode
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import models
from django.db.backends.utils import format_number
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_outbox.encryption.fields import EncryptedField

if TYPE_CHECKING:
    _Text = models.TextField[Any, Any]
    _Char = models.CharField[Any, Any]
    _Email = models.EmailField[Any, Any]
    _Integer = models.IntegerField[Any, Any]
    _Decimal = models.DecimalField[Any, Any]
    _Boolean = models.BooleanField[Any, Any]
    _Date = models.DateField[Any, Any]
    _DateTime = models.DateTimeField[Any, Any]
    _JSON = models.JSONField[Any, Any]
else:
    # Django's fields take type arguments for the type checker alone.
    _Text = models.TextField
    _Char = models.CharField
    _Email = models.EmailField
    _Integer = models.IntegerField
    _Decimal = models.DecimalField
    _Boolean = models.BooleanField
    _Date = models.DateField
    _DateTime = models.DateTimeField
    _JSON = models.JSONField


def _wrong(field: EncryptedField, expected: str, value: object) -> TypeError:
    return TypeError(f"{field.seal_context}: expected {expected}, got {type(value).__name__}.")


class _Textual(EncryptedField):
    """Text is sealed as it is. What is no text is refused: ``str()`` of it would be stored."""

    def to_plaintext(self, value: Any) -> str:
        """The text itself."""
        if isinstance(value, Promise):
            value = str(value)
        if not isinstance(value, str):
            raise _wrong(self, "text", value)
        return str(value)

    def from_plaintext(self, plaintext: bytes) -> str:
        """The text itself."""
        return plaintext.decode()


class EncryptedTextField(_Textual, _Text):
    """Text of any length. ``max_length``, if given, is validated on the clear text."""

    description = _("Encrypted text")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.max_length is not None:
            self.validators.append(MaxLengthValidator(self.max_length))


class EncryptedCharField(_Textual, _Char):
    """Short text. ``max_length`` is validated on the clear text; the column has no limit."""

    description = _("Encrypted string")


class EncryptedEmailField(_Textual, _Email):
    """An e-mail address."""

    description = _("Encrypted e-mail address")


class EncryptedIntegerField(EncryptedField, _Integer):
    """A whole number of any size; sealed as its decimal digits."""

    description = _("Encrypted integer")
    default_error_messages = {"invalid": _("The value must be an integer.")}

    @cached_property
    def validators(self) -> Any:
        """The field's own; the column is text and sets no bounds."""
        own: list[Any] = vars(self)["_validators"]
        return [*self.default_validators, *own]

    def to_plaintext(self, value: Any) -> str:
        """Its decimal digits."""
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            raise _wrong(self, "a whole number", value) from None
        if not isinstance(value, str) and number != value:
            raise _wrong(self, "a whole number", value)
        return str(number)

    def from_plaintext(self, plaintext: bytes) -> int:
        """The number."""
        return int(plaintext)


class EncryptedDecimalField(EncryptedField, _Decimal):
    """A decimal number, rounded to ``decimal_places`` as Django's field is."""

    description = _("Encrypted decimal number")
    default_error_messages = {"invalid": _("The value must be a decimal number.")}

    def to_plaintext(self, value: Any) -> str:
        """Its digits, with exactly ``decimal_places`` after the point."""
        try:
            number = super().to_python(value)
        except ValidationError:
            raise _wrong(self, "a decimal number", value) from None
        try:
            text = format_number(number, self.max_digits, self.decimal_places)
        except decimal.DecimalException:
            text = None
        if text is None or not number.is_finite():
            raise ValueError(
                f"{self.seal_context}: not a number of at most {self.max_digits} digits."
            )
        # Minus zero is zero.
        return text.lstrip("-") if number.is_zero() or not text.strip("-0.") else text

    def from_plaintext(self, plaintext: bytes) -> decimal.Decimal:
        """The number."""
        try:
            return decimal.Decimal(plaintext.decode())
        except decimal.DecimalException:
            raise ValueError from None


class EncryptedBooleanField(EncryptedField, _Boolean):
    """True or False; sealed as ``1`` or ``0``."""

    description = _("Encrypted boolean")
    default_error_messages = {
        "invalid": _("The value must be either True or False."),
        "invalid_nullable": _("The value must be either True, False, or None."),
    }
    can_be_indexed = False

    def to_plaintext(self, value: Any) -> str:
        """``1`` or ``0``: both of one length, since a token shows how long its value is."""
        try:
            return "1" if super().to_python(value) else "0"
        except ValidationError:
            raise _wrong(self, "True or False", value) from None

    def from_plaintext(self, plaintext: bytes) -> bool:
        """True or False."""
        if plaintext not in (b"0", b"1"):
            raise ValueError
        return plaintext == b"1"

    def from_clear(self, text: str) -> Any:
        """A boolean column turned into text: PostgreSQL writes words, the others digits."""
        return super().from_clear({"true": "True", "false": "False"}.get(text, text))


class EncryptedDateField(EncryptedField, _Date):
    """A date; sealed as ``YYYY-MM-DD``."""

    description = _("Encrypted date")
    default_error_messages = {
        "invalid": _("The value has an invalid date format. It must be in YYYY-MM-DD format."),
        "invalid_date": _("The value has the correct format (YYYY-MM-DD) but is no date."),
    }

    def to_plaintext(self, value: Any) -> str:
        """ISO 8601."""
        try:
            day: date = super().to_python(value)
        except (ValidationError, TypeError):
            raise _wrong(self, "a date", value) from None
        return day.isoformat()

    def from_plaintext(self, plaintext: bytes) -> date:
        """The date."""
        return date.fromisoformat(plaintext.decode())


class EncryptedDateTimeField(EncryptedField, _DateTime):
    """A date and time; aware ones are sealed in UTC and read back aware while ``USE_TZ`` is on."""

    description = _("Encrypted date and time")
    default_error_messages = {
        "invalid": _(
            "The value has an invalid format. It must be YYYY-MM-DD HH:MM[:ss[.uuuuuu]][TZ]."
        ),
        "invalid_date": _("The value has the correct format (YYYY-MM-DD) but is no date."),
        "invalid_datetime": _("The value has the correct format but is no date and time."),
    }

    def to_plaintext(self, value: Any) -> str:
        """ISO 8601, in UTC when the value has a time zone (or the project says that it should)."""
        try:
            moment: datetime = models.DateTimeField.to_python(self, value)
        except (ValidationError, TypeError):
            raise _wrong(self, "a date and time", value) from None
        if timezone.is_naive(moment) and settings.USE_TZ:
            warnings.warn(
                f"{self.seal_context} received a naive datetime while time zone support is active.",
                RuntimeWarning,
                stacklevel=2,
            )
            moment = timezone.make_aware(moment, timezone.get_default_timezone())
        return (moment if timezone.is_naive(moment) else moment.astimezone(UTC)).isoformat()

    def from_plaintext(self, plaintext: bytes) -> datetime:
        """The moment, aware or naive as ``USE_TZ`` asks for."""
        return self._as_the_project_has_it(
            datetime.fromisoformat(plaintext.decode()), timezone.get_default_timezone()
        )

    def from_clear(self, text: str) -> Any:
        """A timestamp column turned into text: Django stores UTC where it stores no offset."""
        return self._as_the_project_has_it(super().from_clear(text), UTC)

    @staticmethod
    def _as_the_project_has_it(moment: datetime, zone_of_naive: Any) -> datetime:
        if settings.USE_TZ and timezone.is_naive(moment):
            return timezone.make_aware(moment, zone_of_naive)
        if not settings.USE_TZ and timezone.is_aware(moment):
            return timezone.make_naive(moment, timezone.get_default_timezone())
        return moment


class EncryptedJSONField(EncryptedField, _JSON):
    """Anything JSON can hold, sealed as one text. None is NULL; there is no sealed JSON ``null``."""

    description = _("Encrypted JSON")
    can_be_indexed = False

    def to_plaintext(self, value: Any) -> str:
        """Compact JSON; NaN and Infinity are refused."""
        return json.dumps(
            value,
            cls=self.encoder,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )

    def from_plaintext(self, plaintext: bytes) -> Any:
        """The value, through the field's ``decoder``."""
        return json.loads(plaintext, cls=self.decoder)

    def from_clear(self, text: str) -> Any:
        """A JSON column turned into text."""
        return json.loads(text, cls=self.decoder)


class EncryptedBinaryField(EncryptedField):
    """Bytes, in a text column. Not editable unless asked, as Django's BinaryField."""

    description = _("Encrypted binary data")
    default_error_messages = {"invalid": _("The value must be bytes in base64.")}
    can_be_indexed = False
    empty_values = [None, b""]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)
        if self.max_length is not None:
            self.validators.append(MaxLengthValidator(self.max_length))

    def deconstruct(self) -> Any:
        """``editable`` is off by default here."""
        name, path, args, kwargs = super().deconstruct()
        if self.editable:
            kwargs["editable"] = True
        else:
            kwargs.pop("editable", None)
        return name, path, args, kwargs

    def to_plaintext(self, value: Any) -> bytes:
        """The bytes themselves."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _wrong(self, "bytes", value)
        return bytes(value)

    def from_plaintext(self, plaintext: bytes) -> bytes:
        """The bytes themselves."""
        return plaintext

    def from_clear(self, text: str) -> Any:
        """Refused: databases turn binary columns into text in ways of their own."""
        raise ValueError

    def to_python(self, value: Any) -> Any:
        """Text in base64, as serialisers write it, is turned into bytes."""
        __traceback_hide__ = True
        value = super().to_python(value)
        if not isinstance(value, str):
            return value
        try:
            return b64decode(value.encode("ascii"), validate=True)
        except ValueError:
            # Not chained: an error of the codec holds the text.
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None

    def value_to_string(self, obj: models.Model) -> str:
        """Base64 for serialisers; the token inside ``stored_values()``."""
        value = self.value_from_object(obj)
        if isinstance(value, bytes | bytearray | memoryview):
            return b64encode(value).decode("ascii")
        return super().value_to_string(obj)
