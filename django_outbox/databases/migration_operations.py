"""Migration operations for what Django's own cannot say. Each does nothing on other databases.

Named by migrations, so the path is fixed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from django.apps.registry import Apps
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from django_outbox.databases.listening import SLEEP_LOCK, channel_of, lock_key


class OnPostgreSQL(Operation):
    """Runs SQL for one model's table on PostgreSQL, and changes no state of Django's."""

    reversible = True
    reduces_to_sql = True

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    @abstractmethod
    def forwards(self, table: str) -> list[str]:
        """The statements that apply it; ``table`` is quoted."""

    @abstractmethod
    def backwards(self, table: str) -> list[str]:
        """The statements that take it back."""

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Nothing: models look the same."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        model = _model(to_state.apps, app_label, self.model_name)
        if self._applies(schema_editor, model):
            for statement in self.forwards(schema_editor.quote_name(model._meta.db_table)):
                schema_editor.execute(statement)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        model = _model(from_state.apps, app_label, self.model_name)
        if self._applies(schema_editor, model):
            for statement in self.backwards(schema_editor.quote_name(model._meta.db_table)):
                schema_editor.execute(statement)

    def _applies(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model]) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and self.allow_migrate_model(
            connection.alias, model
        )


class SetStorageParameters(OnPostgreSQL):
    """Set storage parameters of a table, such as when autovacuum visits it."""

    def __init__(self, model_name: str, parameters: Mapping[str, int | float]) -> None:
        super().__init__(model_name)
        self.parameters = dict(parameters)

    def forwards(self, table: str) -> list[str]:
        values = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return [f"ALTER TABLE {table} SET ({values})"]

    def backwards(self, table: str) -> list[str]:
        return [f"ALTER TABLE {table} RESET ({', '.join(self.parameters)})"]

    def describe(self) -> str:
        return f"Set storage parameters of {self.model_name} on PostgreSQL"

    @property
    def migration_name_fragment(self) -> str:
        return f"{self.model_name.lower()}_storage"


_NOTIFY = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_notify({channel}, '');
    RETURN NULL;
END
$body$
"""
_WAKE = """
CREATE TRIGGER {trigger} AFTER INSERT ON {table} FOR EACH STATEMENT
WHEN (NOT pg_try_advisory_xact_lock_shared({key}))
EXECUTE FUNCTION {function}()
"""


class WakeSleepingRelays(OnPostgreSQL):
    """A trigger that notifies a relay about new rows, but only while one sleeps (listening.py).

    It is the condition that costs something, once a statement: an attempt at a lock in memory. The
    function behind it runs only while a relay sleeps.
    """

    def forwards(self, table: str) -> list[str]:
        function, trigger = _quoted(table, "_wake"), _quoted("", "django_outbox_wake")
        key = lock_key(f"'{table}'::regclass::oid", SLEEP_LOCK)
        return [
            _NOTIFY.format(function=function, channel=channel_of("TG_RELID")),
            _WAKE.format(function=function, trigger=trigger, table=table, key=key),
        ]

    def backwards(self, table: str) -> list[str]:
        function, trigger = _quoted(table, "_wake"), _quoted("", "django_outbox_wake")
        return [f"DROP TRIGGER {trigger} ON {table}", f"DROP FUNCTION {function}()"]

    def describe(self) -> str:
        return f"Wake sleeping relays when {self.model_name} rows are inserted on PostgreSQL"

    @property
    def migration_name_fragment(self) -> str:
        return f"{self.model_name.lower()}_wake"


def _model(apps: Apps, app_label: str, name: str) -> type[Any]:
    return apps.get_model(app_label, name)


def _quoted(table: str, suffix: str) -> str:
    """The quoted name of the table's own thing: ``"table_suffix"``."""
    return f'{table[:-1]}{suffix}"' if table else f'"{suffix}"'
