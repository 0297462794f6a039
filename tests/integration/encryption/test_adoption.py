"""A table of clear rows becomes sealed and unique, by migrations, while writes go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import FieldError
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState

from django_outbox.encryption import BlindIndexField, EncryptedCharField, rotation
from django_outbox.encryption.exceptions import PlaintextFound
from django_outbox.encryption.field_source import FieldSource
from tests.conftest import EVERY_DATABASE
from tests.integration.encryption.conftest import entry
from tests.support.threads import Worker

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("closed_cursors"),
]

APP = "encryptionapp"
CONTEXT = "encryptionapp.adopted.tax_id"

CLEAR = migrations.CreateModel(
    "Adopted",
    [
        ("id", models.BigAutoField(primary_key=True)),
        ("tax_id", models.CharField(max_length=20, null=True, unique=True)),
    ],
)
ADOPT = [
    migrations.AlterField(
        "Adopted", "tax_id", EncryptedCharField(max_length=20, null=True, context=CONTEXT)
    ),
    migrations.AddField(
        "Adopted", "tax_id_index", BlindIndexField("tax_id", normalisers=["digits"], unique=True)
    ),
]


def migrate(state: ProjectState, operations: list[Any]) -> ProjectState:
    for operation in operations:
        after = state.clone()
        operation.state_forwards(APP, after)
        with connection.schema_editor() as editor:
            operation.database_forwards(APP, editor, state, after)
        state = after
    return state


@pytest.fixture
def clear_table(database: Any) -> Iterator[ProjectState]:
    state = migrate(ProjectState(), [CLEAR])
    yield state
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE encryptionapp_adopted")


def write_clear(pk: int, value: str) -> None:
    """What a process that still runs the old code does."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE encryptionapp_adopted SET tax_id = %s WHERE id = %s", [value, pk])


def test_the_order_in_which_makemigrations_writes_the_two_is_refused_with_the_way_out(
    clear_table: ProjectState,
):
    with pytest.raises(FieldError, match="Put the AlterField of the one before the AddField"):
        migrate(clear_table, ADOPT[::-1])


@pytest.mark.parametrize("rows", [1_000, pytest.param(10_000, marks=pytest.mark.deep)])
def test_a_table_in_clear_becomes_sealed_and_unique_while_writes_go_on(
    rows: int, clear_table: ProjectState, rings: Any
):
    clear = clear_table.apps.get_model(APP, "Adopted")
    clear.objects.bulk_create([clear(tax_id=f"{n:011d}") for n in range(rows)], batch_size=500)
    clear.objects.create(tax_id=None)
    pks = list(clear.objects.exclude(tax_id=None).order_by("pk").values_list("pk", flat=True))

    rings(ALLOW_PLAINTEXT=[CONTEXT])
    adopted = migrate(clear_table, ADOPT).apps.get_model(APP, "Adopted")
    assert adopted.objects.get(tax_id="00000000007").pk == pks[7]

    stop = threading.Event()

    def old_code() -> dict[int, str]:
        written = {}
        for turn, pk in enumerate(pks[5 :: rows // 10]):
            written[pk] = f"5{turn:010d}"
            write_clear(pk, written[pk])
        return written

    def new_code() -> dict[int, str]:
        written: dict[int, str] = {}
        turn = 0
        while not stop.is_set():
            turn += 1
            pk = pks[(turn * 37) % rows // 10 * 10]
            written[pk] = f"6{turn:010d}"
            adopted.objects.filter(pk=pk).update(tax_id=written[pk])
        return written

    workers = [Worker(old_code), Worker(new_code)]
    source = FieldSource(adopted._meta.get_field("tax_id"))
    try:
        outcome = rotation.reencrypt(source, rotation.Task(limit=rows // 20))
    finally:
        stop.set()
        written = workers[0].result() | workers[1].result()
    assert not outcome.failures
    # What the old code wrote behind the last pass; after it is gone, one more run finds all.
    outcome = rotation.reencrypt(source, rotation.Task(limit=rows // 20))
    assert outcome.left == 0

    rings()
    expected = {pk: f"{n:011d}" for n, pk in enumerate(pks)} | written
    found = dict(adopted.objects.exclude(tax_id=None).values_list("pk", "tax_id"))
    assert found == expected
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tax_id, tax_id_index FROM encryptionapp_adopted WHERE tax_id IS NOT NULL"
        )
        stored = cursor.fetchall()
    assert len({tag for _, tag in stored}) == rows
    assert all(raw.startswith(f"{tag}|ob1.g.a.") for raw, tag in stored)
    census = source.census("default")
    assert (census.total, census.keyless, census.untagged) == (rows, 0, 0)


def test_after_adoption_a_clear_value_is_an_error_again(clear_table: ProjectState, rings: Any):
    clear = clear_table.apps.get_model(APP, "Adopted")
    row = clear.objects.create(tax_id="123")
    rings(ALLOW_PLAINTEXT=[CONTEXT])
    adopted = migrate(clear_table, ADOPT).apps.get_model(APP, "Adopted")
    rotation.reencrypt(FieldSource(adopted._meta.get_field("tax_id")), rotation.Task())
    rings()
    assert adopted.objects.get(tax_id="1 2 3").tax_id == "123"
    write_clear(row.pk, "456")
    with pytest.raises(PlaintextFound):
        adopted.objects.get(pk=row.pk)


def test_a_data_migration_seals_through_the_historical_model(clear_table: ProjectState, rings: Any):
    """Adding an encrypted column beside a clear one, and filling it from Python."""
    clear = clear_table.apps.get_model(APP, "Adopted")
    clear.objects.bulk_create([clear(tax_id=f"{n}") for n in range(20)])

    def fill(apps: Any, editor: Any) -> None:
        for row in apps.get_model(APP, "Adopted").objects.iterator():
            row.sealed = row.tax_id
            row.save(update_fields=["sealed"])

    context = "encryptionapp.adopted.sealed"
    state = migrate(
        clear_table,
        [
            migrations.AddField(
                "Adopted",
                "sealed",
                EncryptedCharField(max_length=20, default="none", context=context),
            ),
            migrations.AddField("Adopted", "sealed_index", BlindIndexField("sealed")),
            migrations.RunPython(fill),
        ],
    )
    model = state.apps.get_model(APP, "Adopted")
    assert model.objects.get(sealed="7").tax_id == "7"
    renamed = migrate(
        state,
        [
            migrations.RemoveField("Adopted", "sealed_index"),
            migrations.RenameField("Adopted", "sealed", "secret"),
        ],
    )
    model = renamed.apps.get_model(APP, "Adopted")
    assert sorted(row.secret for row in model.objects.all()) == sorted(f"{n}" for n in range(20))
    rings(default=[entry("b"), entry("a", "retired")])
    outcome = rotation.reencrypt(
        FieldSource(model._meta.get_field("secret")), rotation.Task(index=True)
    )
    assert (outcome.changed, outcome.left) == (20, 0)


def test_a_field_is_renamed_by_making_its_index_anew():
    field = EncryptedCharField(max_length=20, null=True, context=CONTEXT)
    columns = [("id", models.BigAutoField(primary_key=True)), ("tax_id", field)]
    index = ("tax_id_index", BlindIndexField("tax_id", unique=True))
    state = migrate(ProjectState(), [migrations.CreateModel("Adopted", [*columns, index])])
    try:
        state.apps.get_model(APP, "Adopted").objects.create(tax_id="123")
        renamed = [
            migrations.RemoveField("Adopted", "tax_id_index"),
            migrations.RenameField("Adopted", "tax_id", "vat"),
            migrations.AddField("Adopted", "vat_index", BlindIndexField("vat", unique=True)),
        ]
        model = migrate(state, renamed).apps.get_model(APP, "Adopted")
        assert model.objects.get(vat="123").vat == "123"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE encryptionapp_adopted")
