"""What a query must not do with stored values: compare, order, group or compute them.

Every token is different, equal values too. So the database would answer with nonsense and no error;
here it is a ``FieldError`` that says what works instead. An expression holds stored text when its
``output_field`` is an encrypted field. ``ExpressionWrapper(F("tax_id"), output_field=TextField())`` says
that the stored text itself is meant, and is let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from django.core.exceptions import FieldError
from django.db.models import Case, Count, F, Model, Subquery, Value, When
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col, ExpressionWrapper, OrderBy, Ref
from django.db.models.functions import Coalesce
from django.db.models.lookups import IsNull
from django.db.models.sql import Query
from django.db.models.sql.subqueries import UpdateQuery

#: Hand on one of the values that they are given, whole.
_CHOOSING = (Case, Coalesce)
#: Hand on what they are given, or decide nothing by it.
_HANDING_ON = (ExpressionWrapper, Ref, Subquery, When)


def refuse_comparisons(compiler: Any) -> None:
    """Raise ``FieldError`` when the compiler's query compares or computes stored values."""
    if getattr(compiler, "outbox_compared", False):
        return
    query: Query = compiler.query
    _refuse_order(query)
    if query.distinct:
        _refuse_distinct(query)
    if isinstance(query.group_by, tuple):
        for label in _without_their_row(query, query.group_by):
            raise FieldError(
                f"{label} is encrypted, so grouping by it makes a group of each row."
                " Group by its BlindIndexField."
            )
    for expression in (*query.annotation_select.values(), *_conditions(query)):
        _refuse_computing(expression)
    if query.combinator:
        _refuse_set_operation(query)
    if isinstance(query, UpdateQuery):
        _refuse_copies(query)
    # One compiler compiles one query, and every encrypted column of it asks.
    compiler.outbox_compared = True


@lru_cache(maxsize=4096)
def encrypted_field_at(model: type[Model], name: str) -> Any:
    """The encrypted field at the end of a path, if there is one."""
    query = Query(model)
    try:
        path = query.names_to_path(name.split(LOOKUP_SEP), query.get_meta(), fail_on_missing=False)
    except FieldError:
        return None  # Django reports it, or it is the alias of an extra() column.
    return path[1] if hasattr(path[1], "is_encrypted") else None


def sealed_field(expression: Any) -> Any:
    """The encrypted field whose stored text the expression comes to, if it does."""
    try:
        field = getattr(expression, "output_field", None)
    except FieldError:
        return None  # Of mixed types: Django reports it where it matters.
    return field if hasattr(field, "is_encrypted") else None


def label_of(field: Any) -> str:
    """A field as errors name it."""
    return f"{field.model._meta.label}.{field.name}"


# Order, and rows that are equal.


def _refuse_order(query: Query) -> None:
    for item in query.order_by or _default_ordering(query):
        for field in _named_fields(query, item):
            raise FieldError(
                f"{label_of(field)} is encrypted, so its order means nothing."
                " Order by another field, or sort in Python."
            )


def _default_ordering(query: Query) -> Iterable[Any]:
    meta = query.get_meta() if query.default_ordering else None
    return meta.ordering or () if meta is not None else ()


def _refuse_distinct(query: Query) -> None:
    named = [f for name in query.distinct_fields for f in _named_fields(query, name)]
    selected = [] if query.default_cols else query.select
    labels = [label_of(field) for field in named]
    labels += _without_their_row(query, [*selected, *query.annotation_select.values()])
    for label in labels:
        raise FieldError(
            f"{label} is encrypted, so distinct() finds no two equal values. Use its BlindIndexField."
        )


def _without_their_row(query: Query, expressions: Iterable[Any]) -> Iterator[str]:
    """The stored values that stand without the primary key of their row.

    Beside it they compare row with row, which is right.
    """
    expressions = list(expressions)
    rows = {e.alias for e in expressions if isinstance(e, Col) and e.target.primary_key}
    for expression in expressions:
        field = sealed_field(expression)
        if field is None:
            continue
        # Of a subquery no column is the query's own: it belongs to the row that it is asked for.
        own = {n.alias for n in _flatten(expression) if isinstance(n, Col)} & set(query.alias_map)
        if not rows or not own <= rows:
            yield label_of(field)


def _refuse_set_operation(query: Query) -> None:
    parts = [_selected(part) for part in query.combined_queries]
    for column in zip(*parts, strict=False):
        sealed = [field for field, _ in column if hasattr(field, "is_encrypted")]
        if len({field.seal_context for field in sealed}) > 1 or 0 < len(sealed) < len(column):
            raise FieldError(
                f"{label_of(sealed[0])} is encrypted: {query.combinator}() of it and of another"
                " column could not be opened. Join the lists in Python."
            )
        if sealed and not (query.combinator == "union" and query.combinator_all):
            for part in parts:
                if not any(is_key for _, is_key in part):
                    raise FieldError(
                        f"{label_of(sealed[0])} is encrypted, so {query.combinator}() finds no two"
                        " equal values. Select the primary keys too, or use its BlindIndexField."
                    )


def _selected(query: Query) -> list[tuple[Any, bool]]:
    """What the query's columns are, and whether each is a primary key."""
    if query.default_cols:
        return [(field, field.primary_key) for field in query.get_meta().concrete_fields]
    columns = [(col.target, col.target.primary_key) for col in query.select if isinstance(col, Col)]
    return columns + [(sealed_field(each), False) for each in query.annotation_select.values()]


# What computes.


def _conditions(query: Query) -> Iterator[Any]:
    yield query.where
    for join in query.alias_map.values():
        filtered = getattr(join, "filtered_relation", None)
        if filtered is not None:
            yield filtered.resolved_condition


def _refuse_computing(expression: Any) -> None:
    for parent, field in _misplaced(expression):
        name = type(parent).__name__
        mixes = isinstance(parent, _CHOOSING)
        wrong = "and of other values could not be opened" if mixes else "means nothing"
        raise FieldError(f"{label_of(field)} is encrypted: {name} of it {wrong}.")


def _misplaced(expression: Any) -> Iterator[tuple[Any, Any]]:
    """Each expression that is given stored text and does more than hand it on, and whose text."""
    for source in _sources(expression):
        field = sealed_field(source)
        if field is not None and not _may_hold(expression, source, field):
            yield expression, field
        # A subquery has a compiler of its own, and its columns ask again there.
        if not isinstance(source, Query):
            yield from _misplaced(source)


def _may_hold(parent: Any, source: Any, field: Any) -> bool:
    if isinstance(parent, _HANDING_ON):
        return True
    if isinstance(parent, _CHOOSING):
        chosen = [each for each in _sources(parent) if not _is_null(each)]
        return all(_same_context(each, field) for each in (parent, *chosen))
    if isinstance(parent, Count):
        # Counting values that are not NULL is right.
        return not getattr(parent, "distinct", False)
    # IS NULL, and what asks the blind index in place of the column.
    return isinstance(parent, IsNull) or getattr(parent, "asks_blind_index", False)


def _same_context(expression: Any, field: Any) -> bool:
    other = sealed_field(expression)
    return other is not None and bool(other.seal_context == field.seal_context)


def _is_null(expression: Any) -> bool:
    if isinstance(expression, When):
        expression = expression.result
    return isinstance(expression, Value) and expression.value is None


def _sources(expression: Any) -> list[Any]:
    if not hasattr(expression, "get_source_expressions"):
        return []
    return [source for source in expression.get_source_expressions() if source is not None]


def _refuse_copies(query: Any) -> None:
    """Stored values on their way into a column that would not open them."""
    for target, _model, value in query.values:
        if hasattr(target, "is_encrypted") or not hasattr(value, "resolve_expression"):
            continue
        resolved = value.resolve_expression(query.clone(), allow_joins=False, for_save=True)
        field = sealed_field(resolved)
        if field is not None:
            raise FieldError(
                f"{label_of(field)} is encrypted: {label_of(target)} would get its stored values."
                " Work the value out in Python."
            )
        _refuse_computing(resolved)


# Names.


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
        if isinstance(node, Col) and hasattr(node.target, "is_encrypted"):
            yield node.target
        elif isinstance(node, F):
            yield from _field_of_path(query, _name_of(node))


def _field_of_path(query: Query, name: str) -> Iterator[Any]:
    field = encrypted_field_at(query.model, name)
    if field is not None:
        yield field


def _name_of(reference: Any) -> str:
    name: str = reference.name
    return name


def _flatten(expression: Any) -> Iterator[Any]:
    yield from expression.flatten() if hasattr(expression, "flatten") else [expression]
