"""Eight threads read while forms clean; rings are reloaded under load."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.forms import modelform_factory

from django_outbox.encryption import conf, reload_keyrings
from django_outbox.encryption.exceptions import KeyringError
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer
from tests.integration.encryption.conftest import entry
from tests.support.threads import Worker

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("database"),
]

FORM = modelform_factory(Customer, fields=["name", "tax_id", "surname", "notes"])


def test_eight_threads_read_while_forms_clean():
    Customer.objects.bulk_create(
        [Customer(tax_id=f"{n}", surname=f"name {n}", notes=f"note {n}") for n in range(40)]
    )
    expected = [(f"{n}", f"name {n}", f"note {n}") for n in range(40)]

    def read(number: int) -> bool:
        for turn in range(8):
            rows = Customer.objects.order_by("pk").values_list("tax_id", "surname", "notes")
            if list(rows) != expected:
                return False
            n = (number * 8 + turn) % 40
            if Customer.objects.get(tax_id=f"{n}").notes != f"note {n}":
                return False
        return True

    def clean(number: int) -> bool:
        row = Customer.objects.get(tax_id=f"{number}")
        for turn in range(8):
            taken = FORM({"tax_id": f"{(number + turn + 1) % 40}"}, instance=Customer())
            new = FORM({"tax_id": f"9{number}{turn}", "notes": "secret"}, instance=Customer())
            own = FORM({"tax_id": f"{number}", "notes": "changed"}, instance=row)
            if (
                taken.is_valid()
                or "tax_id" not in taken.errors
                or not new.is_valid()
                or not own.is_valid()
            ):
                return False
        return True

    workers = [Worker(read, n) for n in range(8)] + [Worker(clean, n) for n in range(4)]
    assert all(worker.result() for worker in workers)


def test_rings_are_reloaded_under_load(
    monkeypatch: pytest.MonkeyPatch, settings: Any, database: Any
):
    variable = "TEST_OUTBOX_KEYS"
    monkeypatch.setenv(variable, entry("a"))
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {
            "default": {
                "BACKEND": "django_outbox.encryption.providers.EnvironmentKeys",
                "VARIABLE": variable,
            },
            "index": entry("i1"),
        }
    }
    rows = [Customer.objects.create(notes=f"note {n}", tax_id=f"{n}") for n in range(5)]
    stop = threading.Event()

    def work(number: int) -> int:
        turns = 0
        while not stop.is_set() or turns < 5:
            row = Customer.objects.get(tax_id=f"{number}")
            assert row.notes == f"note {number}"
            row.save()
            turns += 1
        return turns

    workers = [Worker(work, n) for n in range(5)]
    try:
        for turn in range(20):
            primary, other = ("b", "a") if turn % 2 == 0 else ("a", "b")
            monkeypatch.setenv(variable, f"{entry(primary)} {entry(other, 'retired')}")
            reload_keyrings()
            assert conf.keyring().primary.kid == primary
    finally:
        stop.set()
        turns = [worker.result() for worker in workers]
    assert min(turns) >= 5
    assert Customer.objects.count() == len(rows)


def test_a_reload_that_fails_leaves_the_old_rings_in_force(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any
):
    file = tmp_path / "keys"
    file.write_text(entry("a"))
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {
            "default": {
                "BACKEND": "django_outbox.encryption.providers.FileKeys",
                "PATH": str(file),
            },
            "index": entry("i1"),
        }
    }
    Customer.objects.create(notes="x", tax_id="1")
    for broken in ("", "nonsense", entry("i1"), entry("a", "retired")):
        file.write_text(broken)
        with pytest.raises(KeyringError):
            reload_keyrings()
        assert Customer.objects.get(tax_id="1").notes == "x"
    file.write_text(f"{entry('b')}\n{entry('a', 'retired')}\n")
    reload_keyrings()
    assert conf.keyring().primary.kid == "b"


def test_a_provider_is_asked_once_by_many_threads(settings: Any):
    from tests.integration.encryption.test_checks import FarKeys

    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {"default": {"BACKEND": f"{FarKeys.__module__}.FarKeys"}, "index": entry("i1")}
    }
    FarKeys.asked = 0
    start = threading.Barrier(8)

    def load() -> str:
        start.wait(30)
        return conf.keyring().primary.kid

    workers = [Worker(load) for _ in range(8)]
    assert [worker.result() for worker in workers] == ["a"] * 8
    assert FarKeys.asked == 1
