"""Encrypted columns inside queries: what reads them, and what may be written to them from SQL."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import FieldError
from django.db.models import Case, Value
from django.db.models.expressions import Col, ExpressionWrapper
from django.db.models.functions import Cast, Coalesce

from django_outbox.encryption.comparisons import label_of, refuse_comparisons


class EncryptedCol(Col):
    """A reference to an encrypted column. Looks at the query it becomes part of."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The column's name. Raises ``FieldError`` where the query compares stored values."""
        refuse_comparisons(compiler)
        return super().as_sql(compiler, connection)


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
                f"{label_of(field)} is encrypted: the database cannot compute"
                f" its values ({type(expression).__name__}). Give it literal values or F() of the"
                " field itself, or work the value out in Python."
            )
    return expression
