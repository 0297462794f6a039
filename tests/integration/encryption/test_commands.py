"""outbox_keys, outbox_reencrypt, dumpdata and loaddata."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core import serializers
from django.core.management import CommandError, call_command

from django_outbox.encryption import jwe
from django_outbox.encryption.conf import keyring
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.encryption.keyrings import parse_keyring, weakness
from django_outbox.encryption.stored import stored_values
from tests.encryptionapp.models import Customer, Everything
from tests.integration.encryption.conftest import entry, put_stored, stored, wrong_entry

pytestmark = pytest.mark.usefixtures("closed_cursors")

SECRET = "98765432109"


def call(*args: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


# outbox_keys


def test_a_generated_key_is_an_entry_that_works_at_once(settings: Any):
    first, second = (
        call("outbox_keys", "generate"),
        call("outbox_keys", "generate", kid="next", state="retired"),
    )
    ring = parse_keyring(f"{first} {second}")
    assert [key.kid for key in ring.active][1] == "next"
    assert not any(weakness(key.secret) for key in ring)


def test_a_key_can_be_generated_where_nothing_is_configured(settings: Any):
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {"default": "broken"}}
    assert parse_keyring(call("outbox_keys", "generate", kid="a"))
    with pytest.raises(CommandError, match="key id"):
        call("outbox_keys", "generate", kid="a.b")


def test_status_counts_values_by_key_and_shows_no_secret(rings: Any):
    Customer.objects.create(tax_id=SECRET, notes="x")
    rings(default=[entry("b"), entry("a", "retired")])
    Everything.objects.create(text="y")
    put_stored(Customer.objects.create(), "surname", "clear")
    text = call("outbox_keys", "status")
    assert "encryptionapp.customer.tax_id (default): 1 values: a 1, index i1 1" in text
    assert "encryptionapp.everything.text (default): 1 values: b 1" in text
    assert "encryptionapp.customer.surname (default): 1 values: in clear 1" in text
    report = json.loads(call("outbox_keys", "status", json=True))
    assert report["keys"]["default"]["a"]["state"] == "retired"
    assert report["keys"]["default"]["b"]["first_used_at"]
    assert report["values"]["encryptionapp.customer.tax_id"]["default"]["kids"] == {"a": 1}
    assert report["problems"] == []
    for hidden in (SECRET, entry("a").rpartition(":")[2], entry("b").rpartition(":")[2]):
        assert hidden not in text + json.dumps(report)


@pytest.mark.parametrize(
    ("default", "problem"),
    [
        (["b"], "1 values name the key 'a', which the keyring 'default' cannot use"),
        (["wrong a"], "another key than the one first used"),
    ],
)
def test_status_fails_on_what_cannot_be_read(default: list[str], problem: str, rings: Any):
    Customer.objects.create(notes="x")
    rings(default=[wrong_entry("a") if kid == "wrong a" else entry(kid) for kid in default])
    with pytest.raises(CommandError, match=problem):
        call("outbox_keys", "status")


def test_an_exported_key_is_the_topics_alone(rings: Any):
    jwk = json.loads(call("outbox_keys", "export", topic="invoice.issued"))
    assert jwk == jwe.exported_jwk(keyring(), "invoice.issued")
    assert jwk != json.loads(call("outbox_keys", "export", topic="invoice.paid"))
    rings(default=[entry("b"), entry("a", "retired")])
    assert json.loads(call("outbox_keys", "export", topic="invoice.issued", kid="a")) == jwk
    with pytest.raises(CommandError, match="'z'"):
        call("outbox_keys", "export", topic="invoice.issued", kid="z")


# outbox_reencrypt


def test_unknown_sources_and_silly_options_are_refused():
    with pytest.raises(
        CommandError, match=r"holds no sealed values.*encryptionapp\.customer\.tax_id"
    ):
        call("outbox_reencrypt", "crm.customer")
    with pytest.raises(CommandError, match="batch-size"):
        call("outbox_reencrypt", batch_size=0)


def test_a_dry_run_says_what_would_be_done(rings: Any):
    Customer.objects.create(tax_id="1")
    rings(default=[entry("b"), entry("a", "retired")])
    text = call(
        "outbox_reencrypt", "encryptionapp.Customer.tax_id", dry_run=True, database="default"
    )
    assert "encryptionapp.customer.tax_id (default): 1 would be sealed anew, 1 left" in text


# dumpdata and loaddata


def dump(**options: Any) -> str:
    return call("dumpdata", "encryptionapp", **options)


@pytest.fixture
def rows() -> tuple[Customer, Everything]:
    customer = Customer.objects.create(tax_id=SECRET, notes="ob1.g.a.looks like a token", name="n")
    everything = Everything.objects.create(
        text=SECRET,
        integer=int(SECRET),
        boolean=False,
        json={"id": SECRET},
        binary=SECRET.encode(),
        date="2026-01-02",
        datetime="2026-01-02T03:04:05Z",
        decimal="987654321.09",
        email="a@b.tr",
    )
    everything.refresh_from_db()
    return customer, everything


def assert_all_is_back(customer: Customer, everything: Everything) -> None:
    assert Customer.objects.get(tax_id=SECRET).notes == customer.notes
    read = Everything.objects.get()
    for field in Everything._meta.local_fields:
        if hasattr(field, "is_encrypted"):
            assert getattr(read, field.attname) == getattr(everything, field.attname), field.name


@pytest.mark.parametrize("form", ["json", "jsonl", "xml"])
def test_a_dump_holds_tokens_and_needs_no_key_and_loads_as_it_was(
    form: str, rows: Any, rings: Any, tmp_path: Path
):
    rings(default=[entry("b")])
    text = dump(format=form)
    assert SECRET not in text
    assert "987654321" not in text
    assert "2026-01-02" not in text
    raw = stored(rows[0], "tax_id")
    rings()
    file = tmp_path / f"dump.{form}"
    file.write_text(text, "utf-8")
    Customer.objects.all().delete()
    Everything.objects.all().delete()
    call("loaddata", str(file))
    assert_all_is_back(*rows)
    assert stored(rows[0], "tax_id") == raw


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_plaintext_dump_is_in_clear_when_asked_for_and_loads_sealed(
    form: str, rows: Any, tmp_path: Path
):
    text = dump(format=form, plaintext=True)
    assert SECRET in text
    file = tmp_path / f"dump.{form}"
    file.write_text(text, "utf-8")
    Customer.objects.all().delete()
    Everything.objects.all().delete()
    call("loaddata", str(file), plaintext=True)
    assert_all_is_back(*rows)
    assert (stored(rows[1], "text") or "").startswith("ob1.g.a.")


def test_a_fixture_in_clear_is_sealed(tmp_path: Path):
    file = tmp_path / "clear.json"
    fields = {"tax_id": "123", "notes": "written by hand"}
    file.write_text(json.dumps([{"model": "encryptionapp.customer", "pk": 1, "fields": fields}]))
    call("loaddata", str(file))
    row = Customer.objects.get(tax_id="123")
    assert row.notes == "written by hand"
    assert (stored(row, "notes") or "").startswith("ob1.g.a.")


@pytest.mark.parametrize("how", ["damaged", "of another column", "of an unknown key"])
def test_a_token_that_does_not_belong_there_is_not_loaded(
    how: str, rows: Any, rings: Any, tmp_path: Path
):
    text = dump()
    raw = stored(rows[0], "tax_id") or ""
    text = {
        "damaged": text.replace(raw, raw[:-4]),
        "of another column": text.replace(raw, stored(rows[1], "text") or ""),
        "of an unknown key": text,
    }[how]
    if how == "of an unknown key":
        rings(default=[entry("b")])
    with stored_values():
        Customer.objects.all().delete()
    file = tmp_path / "dump.json"
    file.write_text(text)
    with pytest.raises(EncryptionError, match=r"encryptionapp\.") as caught:
        call("loaddata", str(file))
    assert raw not in str(caught.value)
    assert not Customer.objects.exists()


def test_a_serialiser_of_ones_own_carries_tokens_inside_stored_values(rows: Any):
    with stored_values():
        text = serializers.serialize("json", Customer.objects.all())
        assert SECRET not in text
        [loaded] = serializers.deserialize("json", text)
    loaded.save()
    assert Customer.objects.get(tax_id=SECRET).notes == rows[0].notes


def test_text_that_looks_like_a_token_is_sealed_like_any_other():
    raw = stored(Customer.objects.create(notes="first"), "notes") or ""
    row = Customer.objects.create(notes=raw)
    assert Customer.objects.get(pk=row.pk).notes == raw
    assert stored(row, "notes") != raw
