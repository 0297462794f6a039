"""System checks: every id, what raises it, and that a right project raises none."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib import admin
from django.core import checks
from django.core.checks import CheckMessage
from django.db import models
from django.db.models import CheckConstraint, F, Index, Q, UniqueConstraint
from django.db.models.functions import Lower, Now
from django.test.utils import isolate_apps

from django_outbox.encryption import (
    BlindIndexField,
    EncryptedBooleanField,
    EncryptedCharField,
    EncryptedDateTimeField,
    EncryptedJSONField,
    EncryptedTextField,
)
from django_outbox.encryption.checks import models as models_checks
from django_outbox.encryption.checks.admin import check_admin
from django_outbox.encryption.checks.keys import check_fingerprints, check_keyrings
from django_outbox.encryption.checks.models import check_models
from django_outbox.encryption.keyrings import Keyring, parse_keyring
from tests.encryptionapp.models import Customer
from tests.integration.encryption.conftest import entry, wrong_entry

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "encryption.md"


def ids(messages: list[CheckMessage]) -> list[str]:
    return sorted(str(message.id).removeprefix("django_outbox_encryption.") for message in messages)


def key(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_a_right_project_has_nothing_to_mend(database: Any):
    messages = checks.run_checks(databases=["default"])
    assert [m for m in messages if str(m.id).startswith("django_outbox_encryption.")] == []


def test_every_check_is_registered():
    registered = set(checks.registry.registry.get_checks())
    assert {check_keyrings, check_fingerprints, check_models, check_admin} <= registered


def test_every_id_has_its_paragraph_and_every_paragraph_its_id():
    package = Path(check_models.__code__.co_filename).parent
    code = "".join(path.read_text("utf-8") for path in package.glob("*.py"))
    used = set(re.findall(r'"((?:E|W)\d{3})"', code))
    used |= set(re.findall(r"django_outbox_encryption\.((?:E|W)\d{3})\b", code))
    documented = re.findall(
        r"^### django_outbox_encryption\.((?:E|W)\d{3})$", REFERENCE.read_text("utf-8"), re.M
    )
    assert sorted(documented) == sorted(used)
    assert len(documented) == len(set(documented))


# Keys.


@pytest.mark.parametrize(
    ("keyring", "expected"),
    [
        ("nonsense", "E002"),
        (["a list"], "E001"),
        ({"primary": {"a": 5}}, "E002"),
        ({"first": {"a": "x"}}, "E002"),
        (f"a:primary:{key(os.urandom(16))}", "E003"),
        (f"a:primary:{key(os.urandom(32))} a:retired:{key(os.urandom(32))}", "E004"),
        (f"{entry('a')} b:retired:{entry('a').rpartition(':')[2]}", "E005"),
        (entry("i1"), "E006"),
        (f"a:primary:{key(bytes(32))}", "E007"),
        (f"a:primary:{key(bytes(range(32)))}", "E007"),
        (f"a:primary:{key(b'a passphrase that has 32 letters')}", "E007"),
        (f"a:primary:{key(hashlib.sha256(b'only-for-tests').digest())}", "E008"),
        (entry("a", "retired"), "E009"),
        (f"{entry('a')} {entry('b')}", "E010"),
        ({"BACKEND": "tests.integration.encryption.test_checks.OutOfReach"}, "E011"),
        ({"BACKEND": "nowhere.Keys"}, "E001"),
        ({"BACKEND": "django_outbox.encryption.providers.FileKeys", "ROAD": "x"}, "E001"),
        ("", "W002"),
        (
            {"BACKEND": "django_outbox.encryption.providers.FileKeys", "PATH": "/nowhere/keys"},
            "W002",
        ),
        (
            {
                "BACKEND": "django_outbox.encryption.providers.EnvironmentKeys",
                "VARIABLE": "NOT_SET",
            },
            "W002",
        ),
    ],
)
def test_a_ring_that_must_not_be_used(keyring: Any, expected: str, settings: Any):
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {"index": entry("i1"), "default": keyring}}
    messages = check_keyrings()
    assert ids(messages) == [expected]
    assert messages[0].hint
    for secret in re.findall(r"[A-Za-z0-9+/]{22,}=*", str(keyring)):
        assert secret not in str(messages[0])


class OutOfReach:
    local = True

    def load(self, name: str) -> Keyring:
        raise TimeoutError("secret text of a foreign error")


class FarKeys:
    """Stands for a KMS: counts how often it is asked."""

    local = False
    asked = 0
    keys = entry("a")

    def load(self, name: str) -> Keyring:
        type(self).asked += 1
        return parse_keyring(self.keys, name)


def test_a_foreign_error_is_reported_without_its_text(settings: Any):
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {"default": {"BACKEND": f"{__name__}.OutOfReach"}, "index": entry("i1")}
    }
    assert "secret text" not in str(check_keyrings()[0])


def test_a_far_ring_is_asked_for_where_databases_are_checked_only(settings: Any, database: Any):
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {"default": {"BACKEND": f"{__name__}.FarKeys"}, "index": entry("i1")}
    }
    FarKeys.asked = 0
    assert check_keyrings() == []
    assert FarKeys.asked == 0
    assert check_fingerprints(databases=["default"]) == []
    assert FarKeys.asked == 1
    Customer.objects.create(tax_id="1")
    assert FarKeys.asked == 2
    Customer.objects.create(tax_id="2")
    assert FarKeys.asked == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"KEYRING": {}}, "Did you mean 'KEYRINGS'"),
        ({"KEYRINGS": {"defualt": entry("a")}}, "Did you mean 'default'"),
        ({"KEYRINGS": [entry("a")]}, "must be a dict"),
        ({"ON_ERROR": "ignore"}, 'must be "raise" or "sentinel"'),
        ({"ALLOW_PLAINTEXT": "crm.customer.tax_id"}, "must be a list"),
    ],
)
def test_a_slip_of_the_pen_is_an_error_with_a_guess(
    change: dict[str, Any], text: str, settings: Any
):
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {"default": entry("a"), "index": entry("i1")},
        **change,
    }
    messages = check_keyrings()
    assert ids(messages) == ["E001"]
    assert text in messages[0].msg


def test_settings_of_another_type_are_an_error(settings: Any):
    settings.OUTBOX_ENCRYPTION = [entry("a")]
    assert ids(check_keyrings()) == ["E001"]


def test_rings_that_models_need_are_missed(settings: Any):
    settings.OUTBOX_ENCRYPTION = {}
    assert ids(check_keyrings()) == ["W001", "W001"]


def test_a_file_that_anybody_may_read(settings: Any, tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text(f"# the sealing key\n{entry('a')}\n")
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {
            "default": {"BACKEND": "django_outbox.encryption.providers.FileKeys", "PATH": file},
            "index": entry("i1"),
        }
    }
    file.chmod(0o600)
    assert check_keyrings() == []
    file.chmod(0o644)
    assert ids(check_keyrings()) == ["W003"]


def test_columns_that_may_hold_clear_values_are_told(rings: Callable[..., None]):
    rings(ALLOW_PLAINTEXT=["encryptionapp.customer.notes"])
    assert ids(check_keyrings()) == ["W004"]
    assert check_models() == []
    rings(ALLOW_PLAINTEXT=["encryptionapp.customer.note"])
    assert ids(check_models()) == ["E027"]


def test_a_wrong_key_under_a_known_id(rings: Callable[..., None], database: Any):
    Customer.objects.create(tax_id="1")
    assert check_fingerprints(databases=["default"]) == []
    rings(default=[entry("b"), wrong_entry("a", "retired")])
    assert ids(check_fingerprints(databases=["default"])) == ["E012"]
    assert check_fingerprints() == []


# Models.


def check(meta: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    """The ids for a model with these fields, made in a registry of its own."""
    options = type("Meta", (), {"app_label": "encryptionapp", **(meta or {})})
    with isolate_apps("tests.encryptionapp") as apps, patch.object(models_checks, "apps", apps):
        type("Checked", (models.Model,), {"__module__": __name__, "Meta": options, **fields})
        return ids(check_models())


@pytest.mark.parametrize(
    "options",
    [
        {"unique": True},
        {"db_index": True},
        {"primary_key": True},
        {"unique_for_date": "day"},
        {"db_collation": "C"},
    ],
    ids=str,
)
def test_an_option_that_would_compare_tokens(options: dict[str, Any]):
    found = check(f=EncryptedCharField(max_length=9, **options), day=models.DateField())
    assert set(found) == {"E020"}


@pytest.mark.parametrize(
    "meta",
    [
        {"ordering": ["f"]},
        {"ordering": ["-f"]},
        {"ordering": [F("f").desc()]},
        {"ordering": [Lower("f")]},
        {"get_latest_by": "f"},
        {"get_latest_by": ["day", "-f"]},
        {"unique_together": [("day", "f")]},
        {"indexes": [Index(fields=["f"], name="an_index")]},
        {"indexes": [Index(Lower("f"), name="an_index")]},
        {"constraints": [UniqueConstraint(fields=["day", "f"], name="a_constraint")]},
        {"constraints": [UniqueConstraint(Lower("f"), name="a_constraint")]},
        {"constraints": [CheckConstraint(condition=~Q(f="x"), name="a_constraint")]},
        {
            "constraints": [
                CheckConstraint(condition=Q(day=None) | Q(f__in=["x"]), name="a_constraint")
            ]
        },
        {"indexes": [Index(fields=["day"], condition=Q(f="x"), name="an_index")]},
    ],
    ids=str,
)
def test_a_meta_option_that_would_compare_tokens(meta: dict[str, Any]):
    found = check(meta, f=EncryptedTextField(), day=models.DateField())
    assert found == ["E020"]


def test_a_generated_column_that_would_compute_tokens():
    lower = models.GeneratedField(
        expression=Lower("f"), output_field=models.TextField(), db_persist=True
    )
    assert check(f=EncryptedTextField(), g=lower) == ["E020"]


def test_a_default_of_the_database_would_be_in_clear():
    assert check(f=EncryptedDateTimeField(db_default=Now())) == ["E021"]


def test_two_fields_of_one_context():
    found = check(f=EncryptedTextField(context="a.b.c"), g=EncryptedTextField(context="a.b.c"))
    assert found == ["E022"]


@pytest.mark.parametrize("source", ["missing", "day"])
def test_an_index_over_nothing_encrypted(source: str):
    found = check(day=models.DateField(), i=BlindIndexField(source))
    assert found == ["E023"]


@pytest.mark.parametrize("field", [EncryptedBooleanField, EncryptedJSONField])
def test_an_index_that_would_tell_everything_or_nothing(field: Any):
    assert check(f=field(), i=BlindIndexField("f")) == ["E024"]


def test_a_second_index_over_one_field():
    found = check(f=EncryptedTextField(), i=BlindIndexField("f"), j=BlindIndexField("f"))
    assert found == ["E025"]


def test_an_unknown_normaliser():
    found = check(f=EncryptedTextField(), i=BlindIndexField("f", normalisers=["strip", "phone"]))
    assert found == ["E026"]


def test_a_field_that_needs_nothing_mended():
    found = check(
        {
            "ordering": ["day"],
            "constraints": [
                UniqueConstraint(fields=["day", "i"], condition=Q(f__isnull=False), name="c")
            ],
        },
        f=EncryptedTextField(default="x", null=True),
        i=BlindIndexField("f", normalisers=["strip"], unique=True),
        day=models.DateField(),
    )
    assert found == []


# The admin.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"search_fields": ["tax_id"]}, ["E030"]),
        ({"search_fields": ["name", "=tax_id"]}, ["E030"]),
        ({"list_filter": ["tax_id"]}, ["E030"]),
        ({"ordering": ["-notes"]}, ["E030"]),
        ({"list_display": ["name", "tax_id"]}, ["W030"]),
        ({"list_display": ["name", "tax_id"], "sortable_by": ["name"]}, []),
        ({"search_fields": ["name"], "list_filter": ["tax_id_index"]}, []),
    ],
    ids=str,
)
def test_an_admin_class_that_would_compare_tokens(options: dict[str, Any], expected: list[str]):
    site = admin.AdminSite("checked")
    site.register(Customer, **options)
    messages = [m for m in check_admin() if m.obj is type(site._registry[Customer])]
    assert ids(messages) == expected
