"""Encrypted columns inside queries: what may be written from SQL, what must not be compared.

Every token is different, equal values too. So what compares, orders or groups stored values would
answer with nonsense and no error; here it is a ``FieldError`` that says what works instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from django.core.exceptions import FieldError
from django.db.models import Case, Count, F, Func, Model, Value
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col, ExpressionWrapper, OrderBy
from django.db.models.functions import Cast, Coalesce
from django.db.models.sql import Query


class EncryptedCol(Col):
    """A reference to an encrypted column. Looks at the query it becomes part of."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The column's name. Raises ``FieldError`` where the query compares stored values."""
        refuse_comparisons(compiler.query)
        return super().as_sql(compiler, connection)


def refuse_comparisons(query: Query) -> None:
    """Raise ``FieldError`` when the query orders, groups or computes by an encrypted column."""
    for item in query.order_by or _default_ordering(query):
        for field in _named_fields(query, item):
            raise FieldError(
                f"{field.model._meta.label}.{field.name} is encrypted, so its order means nothing."
                " Order by another field, or sort in Python."
            )
    if query.distinct:
        _refuse_distinct(query)
    if isinstance(query.group_by, tuple):
        for column in _without_their_row(query.group_by):
            raise FieldError(
                f"{_label(column)} is encrypted, so grouping by it makes a group of each row."
                " Group by its BlindIndexField."
            )
    for annotation in query.annotation_select.values():
        for node in _flatten(annotation):
            _refuse_function(node)


def expression_to_save(field: Any, expression: Any) -> Any:
    """The expression as it may be written to the encrypted field.

    Literal values in it are sealed for the field; ``F()`` of the field itself, ``Case``/``When``,
    ``Coalesce`` and ``Cast`` pass. Raises ``FieldError`` for what only the database could compute.
    """
    __traceback_hide__ = True
    match expression:
        case Value():
            expression.output_field = field
        case Col() if getattr(expression.target, "seal_context", None) == field.seal_context:
            pass
        case Case():
            for case in expression.cases:
                case.result = expression_to_save(field, case.result)
            expression.default = expression_to_save(field, expression.default)
            expression.output_field = field
        case Coalesce() | Cast() | ExpressionWrapper():
            sources = expression.get_source_expressions()
            expression.set_source_expressions([expression_to_save(field, e) for e in sources])
            expression.output_field = field
        case _:
            raise FieldError(
                f"{field.model._meta.label}.{field.name} is encrypted: the database cannot compute"
                f" its values ({type(expression).__name__}). Give it literal values or F() of the"
                " field itself, or work the value out in Python."
            )
    return expression


def _refuse_distinct(query: Query) -> None:
    named = [f for name in query.distinct_fields for f in _named_fields(query, name)]
    selected = [] if query.default_cols else query.select
    labels = [f"{field.model._meta.label}.{field.name}" for field in named]
    labels += map(_label, _without_their_row([*selected, *query.annotation_select.values()]))
    for label in labels:
        raise FieldError(
            f"{label} is encrypted, so distinct() finds no two equal values. Use its BlindIndexField."
        )


def _refuse_function(node: Any) -> None:
    """Functions of tokens, aggregates among them. Counting values that are not NULL is right."""
    if not isinstance(node, Func) or isinstance(node, Coalesce):
        return
    if isinstance(node, Count) and not getattr(node, "distinct", False):
        return
    for argument in node.source_expressions:
        if isinstance(argument, EncryptedCol):
            raise FieldError(
                f"{_label(argument)} is encrypted: {type(node).__name__} of it means nothing."
            )


def _default_ordering(query: Query) -> Iterable[Any]:
    meta = query.get_meta() if query.default_ordering else None
    return meta.ordering or () if meta is not None else ()


def _without_their_row(expressions: Iterable[Any]) -> Iterator[EncryptedCol]:
    """The encrypted columns that stand without the primary key of their row.

    Beside it they compare row with row, which is right.
    """
    expressions = list(expressions)
    rows = {e.alias for e in expressions if isinstance(e, Col) and e.target.primary_key}
    for expression in expressions:
        if isinstance(expression, EncryptedCol) and expression.alias not in rows:
            yield expression


def _named_fields(query: Query, item: Any) -> Iterator[Any]:
    """The encrypted fields that one item of ``order_by`` or ``distinct`` names."""
    if isinstance(item, OrderBy):
        item = item.expression
    if isinstance(item, F):
        item = _name_of(item)
    if isinstance(item, str):
        name = item.lstrip("-+")
        annotation = query.annotations.get(name)
        if annotation is None:
            yield from _field_of_path(query, name)
            return
        item = annotation
    for node in _flatten(item):
        if isinstance(node, EncryptedCol):
            yield node.target
        elif isinstance(node, F):
            yield from _field_of_path(query, _name_of(node))


def _field_of_path(query: Query, name: str) -> Iterator[Any]:
    field = encrypted_field_at(query.model, name)
    if field is not None:
        yield field


@lru_cache(maxsize=4096)
def encrypted_field_at(model: type[Model], name: str) -> Any:
    """The encrypted field at the end of a path, if there is one."""
    query = Query(model)
    try:
        path = query.names_to_path(name.split(LOOKUP_SEP), query.get_meta(), fail_on_missing=False)
    except FieldError:
        return None  # Django reports it, or it is the alias of an extra() column.
    return path[1] if hasattr(path[1], "is_encrypted") else None


def _name_of(reference: Any) -> str:
    name: str = reference.name
    return name


def _flatten(expression: Any) -> Iterator[Any]:
    yield from expression.flatten() if hasattr(expression, "flatten") else [expression]


def _label(column: Col) -> str:
    return f"{column.target.model._meta.label}.{column.target.name}"
