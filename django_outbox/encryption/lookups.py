"""Look-ups that a blind index can answer: ``exact``, ``in``, and ``iexact`` where it folds case.

A query asks for the value's tag under every active index key, so it finds what was stored before and
after a rotation alike. Everything else is refused: tokens of equal values differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet, FieldError
from django.db.models import Lookup
from django.db.models.lookups import IsNull

from django_outbox.encryption.conf import encryption_settings
from django_outbox.encryption.expressions import EncryptedCol
from django_outbox.encryption.normalisers import folds_case

if TYPE_CHECKING:
    from django_outbox.encryption.fields import EncryptedField

    _Lookup = Lookup[Any]
else:
    _Lookup = Lookup


class BlindExact(_Lookup):
    """Equality through the blind index."""

    lookup_name = "exact"
    #: The column stands in it as a name; what is compared is the index beside it.
    asks_blind_index = True

    def get_prep_lookup(self) -> Any:
        """The value as it was given; it is turned into tags when the query is compiled."""
        if hasattr(self.rhs, "resolve_expression"):
            raise FieldError(
                f"{self.lhs.output_field} is encrypted and can be compared with plain values only,"
                " not with an expression or a subquery."
            )
        return self.rhs

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The index column among the tags of the value under every active index key."""
        __traceback_hide__ = True
        column = self.lhs
        if not isinstance(column, EncryptedCol):
            raise FieldError(
                f"{column.output_field} is encrypted: filter by the column itself, not by what a"
                " query made of it."
            )
        field: Any = column.target
        texts = [field.index_text(value) for value in self.values()]
        if not texts:
            raise EmptyResultSet
        index = field.blind_index
        tags = [tag for text in texts for tag in index.tags(text, connection.alias)]
        name, params = compiler.compile(index.get_col(column.alias))
        sql = f"{name} IN ({_placeholders(tags)})"
        if field.seal_context in encryption_settings().allow_plaintext:
            # NOT(…) of a clear row, whose tag is NULL, must be true: hence the first half.
            raw, raw_params = compiler.compile(column)
            sql = f"(({name} IS NOT NULL AND {sql}) OR {raw} IN ({_placeholders(texts)}))"
            return sql, [*params, *params, *tags, *raw_params, *texts]
        return sql, [*params, *tags]

    def values(self) -> Iterable[Any]:
        """The values asked for."""
        return [self.rhs]


class BlindIExact(BlindExact):
    """Equality without case, where the index's normalisers leave none."""

    lookup_name = "iexact"


class BlindIn(BlindExact):
    """Any of several values. None is no value: NULL equals nothing."""

    lookup_name = "in"

    def values(self) -> Iterable[Any]:
        """The values asked for, each once where they can be told apart."""
        for value in self.rhs:
            if hasattr(value, "resolve_expression"):
                raise FieldError(f"{self.lhs.output_field} is encrypted: 'in' takes plain values.")
        return [value for value in self.rhs if value is not None]


def lookup_for(field: EncryptedField, name: str) -> type[Lookup[Any]]:
    """The look-up of this name on an encrypted field. Raises ``FieldError`` saying what works."""
    answered = _answered(field)
    if name in answered:
        return answered[name]
    raise refusal(field, name)


def refusal(field: EncryptedField, name: str) -> FieldError:
    """The error for a look-up or transform that sealed values cannot answer."""
    advice = ""
    if field.blind_index is None:
        advice = " For exact and in give the model a BlindIndexField."
    elif name == "iexact":
        advice = " For iexact give the index a normaliser that folds case."
    return FieldError(
        f"{field.model._meta.label}.{field.name} is encrypted: the look-up {name!r} cannot be"
        f" answered. What works: {', '.join(_answered(field))}.{advice}"
    )


def _answered(field: EncryptedField) -> dict[str, type[Lookup[Any]]]:
    answered: dict[str, type[Lookup[Any]]] = {"isnull": IsNull}
    if field.blind_index is not None:
        answered |= {"exact": BlindExact, "in": BlindIn}
        if folds_case(field.blind_index.normalisers):
            answered["iexact"] = BlindIExact
    return answered


def _placeholders(values: list[str]) -> str:
    return ", ".join(["%s"] * len(values))
