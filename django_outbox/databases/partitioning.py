"""The migration operation that partitions the outbox by month. PostgreSQL only; nothing elsewhere.

Named by projects' migrations, so the path is fixed. What partitions cost and bring:
docs/howto/partitioning.md.
"""

from __future__ import annotations

from typing import Any

from django.db import ProgrammingError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from django_outbox.databases.clock import read_clock
from django_outbox.databases.migration_operations import WakeSleepingRelays
from django_outbox.databases.partitions import AHEAD, OPTIONS, Partitions, month_of, next_month

_LABEL, _MODEL = "django_outbox", "OutboxMessage"

_REFERENCES = """
SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass
"""
#: Indexes that no constraint needs, with the statements that make them.
_INDEXES = """
SELECT relname, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE indrelid = %s::regclass AND NOT indisunique
"""
#: Those of the first partition that PostgreSQL has not recognised, and made anew.
_SUPERSEDED = """
SELECT indexrelid::regclass::text FROM pg_index
WHERE indrelid = %s::regclass AND NOT indisunique
    AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = indexrelid)
"""
_GRANTS = """
SELECT privilege_type,
    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
    CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END
FROM pg_class, aclexplode(relacl) WHERE oid = %s::regclass AND grantee <> relowner
"""
_TAKE_SEQUENCE = """
SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, %s)
"""


class PartitionOutbox(Operation):
    """Turn the outbox's table into one that is partitioned by the month of ``created_at``.

    What there is becomes the first partition, as it stands: no row is copied, but read once, while
    nobody else can use the table. Reversed, every row is copied back into one table. The migration has
    to depend on the latest one of ``django_outbox``.
    """

    reversible = True
    reduces_to_sql = False

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Nothing: models look the same."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if table := self._table(schema_editor, to_state):
            with schema_editor.connection.cursor() as cursor:
                _partition(cursor, table, schema_editor.connection.alias)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if table := self._table(schema_editor, from_state):
            with schema_editor.connection.cursor() as cursor:
                _unite(cursor, table)

    def describe(self) -> str:
        return "Partition the outbox by month on PostgreSQL"

    @property
    def migration_name_fragment(self) -> str:
        return "partition_outbox"

    def _table(self, schema_editor: BaseDatabaseSchemaEditor, state: ProjectState) -> str:
        """The table's name; empty where there is nothing to do."""
        try:
            model: type[Model] = state.apps.get_model(_LABEL, _MODEL)
        except LookupError:
            raise ValueError(
                "PartitionOutbox needs the outbox's table: let the migration depend on the latest one"
                f" of {_LABEL!r}."
            ) from None
        connection = schema_editor.connection
        if connection.vendor != "postgresql" or not self.allow_migrate_model(
            connection.alias, model
        ):
            return ""
        if schema_editor.collect_sql:
            schema_editor.collected_sql.append(
                "-- Partitions the outbox: the statements depend on what is in the database."
            )
            return ""
        return model._meta.db_table


def _partition(cursor: CursorWrapper, table: str, alias: str) -> None:
    parent, earlier = _quoted(table), _quoted(f"{table}_earlier")
    cursor.execute(f"LOCK TABLE {parent} IN ACCESS EXCLUSIVE MODE")
    _refuse_references(cursor, parent)
    indexes, grants = _ask(cursor, _INDEXES, parent), _ask(cursor, _GRANTS, parent)
    last_value = _drop_identity(cursor, parent)
    _drop_wake_up(cursor, parent)
    cursor.execute(f"ALTER TABLE {parent} RENAME TO {earlier}")
    for index, _ in indexes:
        cursor.execute(f"ALTER INDEX {_quoted(index)} RENAME TO {_quoted(f'{index}_earlier')}")
    cursor.execute(
        f"CREATE TABLE {parent} (LIKE {earlier} INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
        " INCLUDING STORAGE INCLUDING COMMENTS) PARTITION BY RANGE (created_at)"
    )
    _give_identity(cursor, parent, last_value)
    # The same definitions: PostgreSQL finds the indexes that the first partition has already.
    for _, definition in indexes:
        cursor.execute(definition)
    month = next_month(month_of(read_clock(alias)))
    cursor.execute(
        f"ALTER TABLE {parent} ATTACH PARTITION {earlier}"
        f" FOR VALUES FROM (MINVALUE) TO ('{month.isoformat()}')"
    )
    for (index,) in _ask(cursor, _SUPERSEDED, earlier):
        cursor.execute(f"DROP INDEX {index}")
    partitions = Partitions(alias, table)
    partitions.make_leaf(cursor, f"{table}_default", like=earlier)
    cursor.execute(f"ALTER TABLE {parent} ATTACH PARTITION {_quoted(f'{table}_default')} DEFAULT")
    for _ in range(AHEAD):
        partitions.make(cursor, f"{table}_p{month:%Y_%m}", month)
        month = next_month(month)
    _finish(cursor, parent, grants)


def _unite(cursor: CursorWrapper, table: str) -> None:
    whole, parted = _quoted(table), _quoted(f"{table}_parted")
    default = _quoted(f"{table}_default")
    cursor.execute(f"LOCK TABLE {whole} IN ACCESS EXCLUSIVE MODE")
    indexes, grants = _ask(cursor, _INDEXES, whole), _ask(cursor, _GRANTS, whole)
    [(options,)] = _ask(cursor, OPTIONS, default)
    last_value = _drop_identity(cursor, whole)
    _drop_wake_up(cursor, whole)
    cursor.execute(f"ALTER TABLE {whole} RENAME TO {parted}")
    cursor.execute(
        f"CREATE TABLE {whole} (LIKE {parted} INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
        " INCLUDING STORAGE INCLUDING COMMENTS)"
    )
    cursor.execute(f"INSERT INTO {whole} SELECT * FROM {parted}")
    cursor.execute(f"DROP TABLE {parted}")
    if options:
        cursor.execute(f"ALTER TABLE {whole} SET ({options})")
    cursor.execute(f"ALTER TABLE {whole} ADD PRIMARY KEY (id), ADD UNIQUE (message_id)")
    _give_identity(cursor, whole, last_value)
    for _, definition in indexes:
        cursor.execute(definition.replace(" ON ONLY ", " ON ", 1))
    _finish(cursor, whole, grants)


def _refuse_references(cursor: CursorWrapper, table: str) -> None:
    references = [name for (name,) in _ask(cursor, _REFERENCES, table)]
    if references:
        raise ProgrammingError(
            f"{', '.join(references)} has a foreign key to the outbox's table. A partitioned table has"
            " no unique id that it could point to: keep the message id in a column of its own instead."
        )


def _drop_identity(cursor: CursorWrapper, table: str) -> tuple[int, bool]:
    """The last value of the sequence, and whether it was given out; the column is then a plain one."""
    cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
    (sequence,) = cursor.fetchone()
    cursor.execute(f"SELECT last_value, is_called FROM {sequence}")
    last_value: tuple[int, bool] = cursor.fetchone()
    cursor.execute(f"ALTER TABLE {table} ALTER id DROP IDENTITY")
    return last_value


def _give_identity(cursor: CursorWrapper, table: str, last_value: tuple[int, bool]) -> None:
    cursor.execute(f"ALTER TABLE {table} ALTER id ADD GENERATED BY DEFAULT AS IDENTITY")
    cursor.execute(_TAKE_SEQUENCE, [table, *last_value])


def _drop_wake_up(cursor: CursorWrapper, table: str) -> None:
    for statement in WakeSleepingRelays(_MODEL).backwards(table):
        cursor.execute(statement)


def _finish(cursor: CursorWrapper, table: str, grants: list[Any]) -> None:
    """What hangs on the table and is not copied with its columns."""
    for statement in WakeSleepingRelays(_MODEL).forwards(table):
        cursor.execute(statement)
    for privilege, role, option in grants:
        cursor.execute(f"GRANT {privilege} ON {table} TO {role} {option}")


def _ask(cursor: CursorWrapper, sql: str, table: str) -> list[Any]:
    cursor.execute(sql, [table])
    rows: list[Any] = cursor.fetchall()
    return rows


def _quoted(name: str) -> str:
    return f'"{name}"'
