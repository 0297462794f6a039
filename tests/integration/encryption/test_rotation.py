"""Re-encryption: while others write, killed, raced, refused; done only when nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from django_outbox.encryption import rotation
from django_outbox.encryption.exceptions import KeyringError, StillInUse, UnknownKey
from django_outbox.encryption.field_source import FieldSource
from django_outbox.encryption.models import KeyFingerprint
from django_outbox.encryption.rotation import Task
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer, Everything, Legacy
from tests.integration.encryption.conftest import entry, put_stored, stored
from tests.support import encryption_children as children
from tests.support.children import Child
from tests.support.threads import Worker

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("closed_cursors"),
]


def source(model: Any = Customer, name: str = "tax_id") -> FieldSource:
    return FieldSource(model._meta.get_field(name))


def put_customers(count: int) -> None:
    Customer.objects.bulk_create(
        [Customer(tax_id=f"{n}", notes=f"note {n}", surname=None) for n in range(count)]
    )


def beginnings(name: str = "tax_id") -> set[str]:
    """How the stored values begin, up to their key's id."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {name} FROM encryptionapp_customer WHERE {name} IS NOT NULL")
        return {
            raw.partition(":")[0] + " " + raw.rpartition("|")[2].split(".")[2]
            if "|" in raw
            else raw.split(".")[2]
            for (raw,) in cursor.fetchall()
        }


@contextmanager
def before_each_update(do: Callable[[int], None]) -> Iterator[None]:
    """Call ``do(1)``, ``do(2)`` … right before each UPDATE of the block is sent."""
    sent = 0
    inside = False

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal sent, inside
        if sql.startswith("UPDATE") and not inside:
            sent += 1
            inside = True
            try:
                do(sent)
            finally:
                inside = False
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield


def test_every_value_gets_the_primary_key_and_stays_what_it_was(rings: Any):
    put_customers(25)
    Customer.objects.create(tax_id=None, notes="")
    rings(default=[entry("b"), entry("a", "retired")])
    steps: list[rotation.Step] = []
    outcome = rotation.reencrypt(source(), Task(limit=10), steps.append)
    assert (outcome.changed, outcome.left, outcome.raced) == (25, 0, 0)
    assert [step.changed for step in steps] == [10, 10, 5]
    assert beginnings() == {"i1 b"}
    assert beginnings("notes") == {"a"}
    rings(default=[entry("b"), entry("a", "disabled")])
    assert [c.tax_id for c in Customer.objects.defer("notes").order_by("pk")][:3] == ["0", "1", "2"]
    assert Customer.objects.only("pk").get(tax_id="7")
    assert rotation.reencrypt(source(), Task()).changed == 0


def test_new_tags_are_made_only_when_asked_for(rings: Any):
    put_customers(5)
    rings(default=[entry("b"), entry("a", "retired")], index=[entry("i2"), entry("i1", "retired")])
    assert rotation.reencrypt(source(), Task()).changed == 5
    assert beginnings() == {"i1 b"}
    assert rotation.reencrypt(source(), Task(index=True)).changed == 5
    assert beginnings() == {"i2 b"}
    rings(default=[entry("b")], index=[entry("i2")])
    assert Customer.objects.only("pk").get(tax_id="3")


def test_values_sealed_before_there_was_an_index_are_indexed(rings: Any):
    from django_outbox.encryption.aead import seal
    from django_outbox.encryption.conf import keyring

    row = Customer.objects.create()
    context = Customer._meta.get_field("tax_id").seal_context
    put_stored(row, "tax_id", seal(b"123", keyring().primary, context))
    assert source().census("default").untagged == 1
    assert rotation.reencrypt(source(), Task()).changed == 0
    assert rotation.reencrypt(source(), Task(index=True)).changed == 1
    assert Customer.objects.get(tax_id="123") == row


def test_a_dry_run_opens_everything_and_writes_nothing(rings: Any):
    put_customers(5)
    rows = list(Customer.objects.order_by("pk"))
    put_stored(rows[2], "tax_id", "ob1.g.a.AAAA")
    rings(default=[entry("b"), entry("a", "retired")])
    outcome = rotation.reencrypt(source(), Task(dry_run=True, limit=2))
    assert (outcome.changed, outcome.left) == (4, 5)
    assert list(outcome.failures) == [rows[2].pk]
    assert beginnings() == {"i1 a", "a"}


def test_a_value_written_meanwhile_is_never_overwritten(rings: Any):
    put_customers(3)
    rows = list(Customer.objects.order_by("pk"))
    rings(default=[entry("b"), entry("a", "retired")])

    def somebody_writes(update: int) -> None:
        if update == 2:
            Customer.objects.filter(pk=rows[1].pk).update(tax_id="written meanwhile 77")

    with before_each_update(somebody_writes):
        outcome = rotation.reencrypt(source(), Task())
    assert outcome.raced == 1
    assert outcome.left == 0
    assert Customer.objects.only("tax_id").get(pk=rows[1].pk).tax_id == "written meanwhile 77"


@pytest.mark.parametrize("now", ["ALI 1", "ali 1 "])
def test_a_clear_value_that_changed_in_case_or_spaces_alone_is_not_overwritten(
    now: str, rings: Any
):
    rings(ALLOW_PLAINTEXT=["encryptionapp.legacy.tax_id"])
    row = Legacy.objects.create()
    put_stored(row, "tax_id", "ali 1")

    def somebody_writes(update: int) -> None:
        if update == 1:
            put_stored(row, "tax_id", now)

    with before_each_update(somebody_writes):
        outcome = rotation.reencrypt(source(Legacy), Task())
    assert outcome.left == 0
    row.refresh_from_db()
    assert row.tax_id == now
    assert (stored(row, "tax_id") or "").startswith("i1:")


def test_a_batch_that_a_deadlock_took_back_is_tried_again(rings: Any):
    put_customers(4)
    rings(default=[entry("b"), entry("a", "retired")])

    def deadlock(update: int) -> None:
        if update == 3:
            raise OperationalError("deadlock detected")

    with before_each_update(deadlock):
        outcome = rotation.reencrypt(source(), Task())
    assert (outcome.changed, outcome.left) == (4, 0)
    assert beginnings() == {"i1 b"}


def test_killed_in_the_middle_everything_is_readable_and_the_next_run_ends_it(rings: Any):
    put_customers(40)
    before = {c.pk: c.tax_id for c in Customer.objects.all()}
    default, index = (
        f"{entry('b')} {entry('a', 'retired')}",
        f"{entry('i2')} {entry('i1', 'retired')}",
    )
    rings(default=default.split(), index=index.split())
    with Child(children.reencrypt_and_stand_still, default, index, "25") as child:
        child.wait_to_hear("in the middle")
    assert beginnings() == {"i2 b", "i1 a"}
    assert {c.pk: c.tax_id for c in Customer.objects.all()} == before
    outcome = rotation.reencrypt(source(), Task(index=True, limit=10))
    assert (outcome.changed, outcome.left) == (20, 0)
    assert beginnings() == {"i2 b"}
    assert {c.pk: c.tax_id for c in Customer.objects.all()} == before


def test_others_write_all_the_while(rings: Any):
    put_customers(300)
    pks = list(Customer.objects.order_by("pk").values_list("pk", flat=True))
    rings(default=[entry("b"), entry("a", "retired")], index=[entry("i2"), entry("i1", "retired")])
    stop = threading.Event()

    def write(offset: int) -> dict[int, str]:
        written: dict[int, str] = {}
        turn = 0
        while not stop.is_set():
            turn += 1
            pk = pks[(turn * 7 + offset) % len(pks)]
            if pk % 2 != offset % 2:
                continue
            value = f"{offset}{turn:08d}99"
            Customer.objects.filter(pk=pk).update(tax_id=value)
            written[pk] = value
        return written

    writers = [Worker(write, offset) for offset in range(2)]
    try:
        outcome = rotation.reencrypt(source(), Task(index=True, limit=20))
    finally:
        stop.set()
        written = writers[0].result() | writers[1].result()
    assert outcome.left == 0
    assert not outcome.failures
    assert written
    assert beginnings() == {"i2 b"}
    for row in Customer.objects.all():
        assert row.tax_id == written.get(row.pk, row.tax_id)
    for pk, value in list(written.items())[:20]:
        assert Customer.objects.get(tax_id=value).pk == pk


def test_it_is_not_done_while_one_value_is_left(rings: Any):
    put_customers(6)
    rows = list(Customer.objects.order_by("pk"))
    put_stored(rows[1], "tax_id", "clear")
    put_stored(rows[4], "tax_id", (stored(rows[4], "tax_id") or "")[:-5])
    rings(default=[entry("b"), entry("a", "retired")])
    outcome = rotation.reencrypt(source(), Task(limit=2))
    assert (outcome.changed, outcome.left) == (4, 2)
    assert set(outcome.failures) == {rows[1].pk, rows[4].pk}
    assert "clear value" in outcome.failures[rows[1].pk]
    out, err = StringIO(), StringIO()
    with pytest.raises(CommandError, match="Not done: 2 values are left"):
        call_command(
            "outbox_reencrypt",
            "encryptionapp.customer.tax_id",
            database="default",
            stdout=out,
            stderr=err,
        )
    assert f"pk {rows[1].pk}" in err.getvalue()
    put_stored(rows[1], "tax_id", None)
    put_stored(rows[4], "tax_id", None)
    call_command(
        "outbox_reencrypt", "encryptionapp.customer", database="default", stdout=out, stderr=err
    )
    assert "0 left" in out.getvalue()


def test_values_that_must_be_unique_are_left_and_named(rings: Any):
    rings(ALLOW_PLAINTEXT=["encryptionapp.legacy.tax_id"])
    rows = [Legacy.objects.create() for _ in range(3)]
    for row, clear in zip(rows, ["123", "1 2 3", "4"], strict=True):
        put_stored(row, "tax_id", clear)
    outcome = rotation.reencrypt(source(Legacy), Task())
    assert (outcome.changed, outcome.left) == (2, 1)
    assert "must be unique" in outcome.failures[rows[1].pk]
    rows[0].delete()
    assert rotation.reencrypt(source(Legacy), Task()).left == 0


def test_the_census_counts_by_key(rings: Any):
    put_customers(3)
    rings(default=[entry("b"), entry("a", "retired")], index=[entry("i2"), entry("i1", "retired")])
    Customer.objects.create(tax_id="77")
    clear = Customer.objects.create(tax_id=None)
    put_stored(clear, "tax_id", "clear")
    counted = source().census("default")
    assert counted.kids == {"a": 3, "b": 1}
    assert counted.index_kids == {"i1": 3, "i2": 1}
    assert (counted.keyless, counted.untagged, counted.total) == (1, 0, 5)
    assert source(name="notes").census("default").kids == {"a": 3, "b": 2}


@pytest.mark.parametrize("model_pk", [False, True])
def test_a_key_is_destroyed_only_when_no_value_names_it(model_pk: bool, rings: Any):
    Customer.objects.create(notes="x", tax_id="1") if model_pk else Everything.objects.create(
        text="x"
    )
    rings(default=[entry("b"), entry("a", "retired")], index=[entry("i2"), entry("i1", "retired")])
    with pytest.raises(StillInUse, match="encryptionapp"):
        rotation.destroy("default", "a")
    with pytest.raises(CommandError, match="is in use"):
        call_command("outbox_keys", "destroy", "a")
    with pytest.raises(KeyringError, match="primary"):
        rotation.destroy("default", "b")
    with pytest.raises(UnknownKey):
        rotation.destroy("default", "z")
    if model_pk:
        with pytest.raises(StillInUse, match="--index"):
            rotation.destroy("index", "i1")
    call_command("outbox_reencrypt", index=True, stdout=StringIO())
    out = StringIO()
    call_command("outbox_keys", "destroy", "a", stdout=out)
    call_command("outbox_keys", "destroy", "i1", ring="index", stdout=out)
    assert entry("a", "destroyed") in out.getvalue()
    assert KeyFingerprint.objects.get(ring="default", kid="a").destroyed_at is not None
    rings(
        default=[entry("b"), entry("a", "destroyed")], index=[entry("i2"), entry("i1", "destroyed")]
    )
    assert Customer.objects.filter(tax_id="1").count() == int(model_pk)


class Payloads:
    """A source that no model field holds."""

    name = "outbox payloads"

    def __init__(self) -> None:
        self.values = dict.fromkeys(range(5), "a")

    def databases(self) -> list[str]:
        return ["default"]

    def census(self, using: str) -> rotation.Census:
        kids = list(self.values.values())
        return rotation.Census({kid: kids.count(kid) for kid in set(kids)})

    def remaining(self, task: Task) -> int:
        return list(self.values.values()).count("a")

    def step(self, task: Task, after: int | None) -> rotation.Step:
        pks = [pk for pk in self.values if pk > (-1 if after is None else after)][: task.limit]
        self.values.update(dict.fromkeys(pks, "b"))
        return rotation.Step(pks[-1] if len(pks) == task.limit else None, len(pks))


def test_a_registered_source_is_counted_reencrypted_and_holds_its_key(rings: Any):
    payloads = Payloads()
    rotation.register_source(payloads)
    try:
        rings(default=[entry("b"), entry("a", "retired")])
        assert rotation.sources()[-1] is payloads
        with pytest.raises(StillInUse, match="outbox payloads 5"):
            rotation.destroy("default", "a")
        out = StringIO()
        call_command("outbox_reencrypt", "outbox payloads", batch_size=2, stdout=out)
        assert "outbox payloads (default): 5 sealed anew, 0 left" in out.getvalue()
        rotation.destroy("default", "a")
    finally:
        del rotation._registered[payloads.name]
