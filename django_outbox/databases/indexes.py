"""An index that takes the best form each database has.

Named by migrations, so the path is fixed. A plain ``Index(condition=…)`` would not exist at all on
MySQL and MariaDB, and would warn there at every check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from django.db.models import Index, Model, Q

# The statement of MySQL and MariaDB that does nothing: Django executes one for every index.
_NOTHING = "DO 0"


class VendorIndex(Index):
    """Partial over ``fields`` where the database has partial indexes, else plain over ``mysql_fields``.

    Without ``mysql_fields`` there is no index on those that have no partial ones.
    """

    def __init__(
        self, *, where: Q, mysql_fields: tuple[str, ...] | list[str], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.mysql_fields = list(mysql_fields)

    def create_sql(
        self,
        model: type[Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        form = self._form(schema_editor)
        if form is None:
            return Statement(_NOTHING)
        return form.create_sql(model, schema_editor, using=using, **kwargs)

    def remove_sql(
        self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor, **kwargs: Any
    ) -> Any:
        if self._form(schema_editor) is None:
            return Statement(_NOTHING)
        return super().remove_sql(model, schema_editor, **kwargs)

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        kwargs.update(where=self.where, mysql_fields=self.mysql_fields)
        return path, args, kwargs

    def _form(self, schema_editor: BaseDatabaseSchemaEditor) -> Index | None:
        if schema_editor.connection.features.supports_partial_indexes:
            return Index(fields=self.fields, condition=self.where, name=self.name)
        if not self.mysql_fields:
            return None
        return Index(fields=self.mysql_fields, name=self.name)
