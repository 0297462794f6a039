"""Damaged, moved, clear and keyless values: an error that says where, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.forms import SplitDateTimeField, modelform_factory

from django_outbox.encryption.exceptions import (
    DecryptionFailed,
    EncryptionError,
    KeyDestroyed,
    KeyDisabled,
    KeyringError,
    PlaintextFound,
    UnknownKey,
)
from django_outbox.encryption.masking import MASK
from django_outbox.encryption.stored import Undecryptable
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer, Everything, Legacy
from tests.integration.encryption.conftest import entry, put_stored, stored, wrong_entry

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("closed_cursors"),
]

SECRET = "98765432109"


def damage(row: Customer, how: str) -> str:
    """Change what stands in the column of ``tax_id``; returns what stands there now."""
    raw = stored(row, "tax_id") or ""
    other = Customer.objects.create(tax_id="5", notes=SECRET)
    changed = {
        "a character changed": raw[:-1] + ("A" if raw[-1] != "A" else "B"),
        "cut off": raw[:-7],
        "the beginning alone": raw[:50],
        "longer": raw + "AAAA",
        "the tag of another value": f"i1:{'0a' * 16}|{raw.partition('|')[2]}",
        "the token of another column": stored(other, "notes") or "",
        "another form": raw.replace("ob1.g.", "ob2.g."),
        "clear": SECRET,
        "clear and empty": "",
    }[how]
    put_stored(row, "tax_id", changed)
    return changed


def error_of(read: Callable[[], Any], kind: type[EncryptionError]) -> EncryptionError:
    """What reading raises, without the traceback: that would hold a half-read cursor."""
    try:
        read()
    except kind as error:
        return error.with_traceback(None)
    raise AssertionError("read without an error")


WAYS = [
    "a character changed",
    "cut off",
    "the beginning alone",
    "longer",
    "the tag of another value",
    "the token of another column",
    "another form",
]


@pytest.mark.parametrize("how", [*WAYS, "clear", "clear and empty"])
def test_reading_raises_with_model_field_and_pk_and_without_the_value(how: str):
    row = Customer.objects.create(tax_id=SECRET, name="n")
    changed = damage(row, how)
    error = PlaintextFound if how.startswith("clear") else DecryptionFailed
    for read in (
        lambda: Customer.objects.get(pk=row.pk),
        lambda: list(Customer.objects.filter(pk=row.pk).values("tax_id")),
        lambda: list(Customer.objects.filter(pk=row.pk).values_list("tax_id")),
        lambda: row.refresh_from_db(),
        lambda: list(Customer.objects.filter(name="n")),
    ):
        raised = error_of(read, error)
        assert raised.place == "encryptionapp.customer.tax_id"
        assert raised.pk == row.pk
        assert f"pk {row.pk}" in str(raised)
        assert SECRET not in str(raised)
        assert not changed or changed not in str(raised)
        assert raised.__cause__ is None
    assert Customer.objects.only("name").get(pk=row.pk).name == "n"
    assert stored(row, "tax_id") == changed


@pytest.mark.parametrize(
    ("state", "error"),
    [(None, UnknownKey), ("disabled", KeyDisabled), ("destroyed", KeyDestroyed)],
)
def test_a_key_that_may_not_open_is_named(
    state: str | None, error: type[EncryptionError], rings: Any
):
    row = Customer.objects.create(tax_id=SECRET)
    before = stored(row, "tax_id")
    rings(default=[entry("b"), *([entry("a", state)] if state else [])])
    with pytest.raises(error) as caught:
        Customer.objects.get()
    assert caught.value.kid == "a"
    assert caught.value.pk == row.pk
    Customer.objects.update(name="written beside it")
    assert stored(row, "tax_id") == before
    rings(default=[entry("b"), entry("a", "retired")])
    assert Customer.objects.get().tax_id == SECRET


def test_another_key_under_the_same_id_opens_nothing(rings: Any):
    Customer.objects.create(tax_id=SECRET)
    rings(default=[wrong_entry("a")])
    with pytest.raises(DecryptionFailed):
        Customer.objects.get()


@pytest.mark.parametrize("how", [*WAYS, "clear"])
def test_a_sentinel_shows_a_mask_and_saves_back_unchanged(how: str, rings: Any, caplog: Any):
    row = Customer.objects.create(tax_id=SECRET, name="n")
    changed = damage(row, how)
    rings(ON_ERROR="sentinel")
    read = Customer.objects.get(pk=row.pk)
    assert isinstance(read.tax_id, Undecryptable)
    assert str(read.tax_id) == MASK
    assert "encryptionapp.customer.tax_id" in read.tax_id.reason
    assert Customer.objects.filter(pk=row.pk).values_list("tax_id", flat=True)[0] == read.tax_id
    read.name = "new name"
    read.full_clean()
    read.save()
    assert stored(row, "tax_id") == changed
    Customer.objects.bulk_update([read], ["tax_id", "name"])
    assert stored(row, "tax_id") == changed
    Customer.objects.filter(pk=row.pk).update(tax_id=read.tax_id)
    assert stored(row, "tax_id") == changed
    assert Customer.objects.get(name="new name").pk == row.pk
    assert SECRET not in caplog.text
    assert "unreadable value" in caplog.text


@pytest.mark.parametrize("broken", ["", "nonsense"])
def test_without_a_keyring_a_sentinel_hides_nothing(broken: str, settings: Any):
    Customer.objects.create(tax_id=SECRET)
    keyrings = {**settings.OUTBOX_ENCRYPTION["KEYRINGS"], "default": broken}
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": keyrings, "ON_ERROR": "sentinel"}
    with pytest.raises(KeyringError, match="default"):
        Customer.objects.get()


def test_a_sentinel_fits_no_other_field(rings: Any):
    row = Customer.objects.create(tax_id=SECRET)
    damage(row, "cut off")
    rings(ON_ERROR="sentinel")
    read = Customer.objects.get(pk=row.pk)
    with pytest.raises(DecryptionFailed, match="cannot be written here"):
        Customer.objects.update(notes=read.tax_id)


def test_a_form_keeps_an_unreadable_value_and_takes_a_new_one(rings: Any):
    row = Customer.objects.create(tax_id=SECRET, name="n")
    changed = damage(row, "cut off")
    rings(ON_ERROR="sentinel")
    form_class = modelform_factory(Customer, fields=["name", "tax_id"])
    read = Customer.objects.get(pk=row.pk)
    html = form_class(instance=read).as_p()
    assert MASK in html
    assert changed[:40] not in html
    form = form_class({"name": "new", "tax_id": MASK}, instance=read)
    assert form.is_valid(), form.errors
    form.save()
    assert stored(row, "tax_id") == changed
    form = form_class({"name": "new", "tax_id": "777"}, instance=Customer.objects.get(pk=row.pk))
    form.save()
    assert Customer.objects.get(pk=row.pk).tax_id == "777"


def test_a_form_never_changes_what_it_could_not_show(rings: Any):
    """A checkbox, a number input or a split time would post a value of its own."""
    values = {"email": "a@b.tr", "integer": 1, "boolean": True, "json": {"a": 1}}
    times = {"date": date(2026, 1, 2), "datetime": datetime(2026, 1, 2, tzinfo=UTC)}
    row = Everything.objects.create(**values, **times, decimal="1.50", binary=b"x")
    names = [*values, *times, "decimal", "binary"]
    for name in names:
        put_stored(row, name, "ob1.g.a.AAAA")
    rings(ON_ERROR="sentinel")
    form_class = modelform_factory(Everything, fields=names, formfield_callback=as_in_the_admin)
    html = form_class(instance=Everything.objects.get()).as_p()
    assert html.count(f'value="{MASK}"') == len(names)
    # As a browser sends it: masked text inputs, and nothing of those that are locked.
    form = form_class({"email": MASK, "binary": MASK}, instance=Everything.objects.get())
    assert form.is_valid(), form.errors
    assert not form.has_changed()
    form.save()
    assert {stored(row, name) for name in names} == {"ob1.g.a.AAAA"}
    form = form_class({"email": "no address", "binary": MASK}, instance=Everything.objects.get())
    assert list(form.errors) == ["email"]
    form = form_class({"email": "c@d.tr", "binary": MASK}, instance=Everything.objects.get())
    assert form.changed_data == ["email"]
    form.save()
    assert Everything.objects.get().email == "c@d.tr"


def as_in_the_admin(field: Any, **options: Any) -> Any:
    if isinstance(field, models.DateTimeField):
        options |= {"form_class": SplitDateTimeField, "widget": AdminSplitDateTime}
    return field.formfield(**options)


def test_what_opens_but_is_none_of_the_type_is_an_error():
    row = Everything.objects.create(integer=5)
    field = Everything._meta.get_field("integer")
    from django_outbox.encryption.aead import seal
    from django_outbox.encryption.conf import keyring

    put_stored(row, "integer", seal(b"98765x", keyring().primary, field.seal_context))
    with pytest.raises(DecryptionFailed, match="none of EncryptedIntegerField") as caught:
        Everything.objects.get()
    assert "98765x" not in str(caught.value)


# Mixed mode.


def put_clear(values: list[str | None]) -> list[Legacy]:
    rows = Legacy.objects.bulk_create([Legacy() for _ in values])
    rows = list(Legacy.objects.order_by("pk"))
    for row, value in zip(rows, values, strict=True):
        put_stored(row, "tax_id", value)
    return rows


def test_clear_values_are_read_and_found_where_they_are_allowed(rings: Any):
    rings(ALLOW_PLAINTEXT=["encryptionapp.legacy.tax_id"])
    clear, _null, empty, _sealed = put_clear(["123", None, "", None])
    sealed = Legacy.objects.create(tax_id="456")
    assert [row.tax_id for row in Legacy.objects.order_by("pk")] == ["123", None, "", None, "456"]
    assert Legacy.objects.get(tax_id="123") == clear
    assert Legacy.objects.get(tax_id="4 5 6") == sealed
    assert Legacy.objects.get(tax_id="") == empty
    assert set(Legacy.objects.filter(tax_id__in=["123", "456"])) == {clear, sealed}
    assert Legacy.objects.exclude(tax_id="123").count() == 4
    assert Legacy.objects.exclude(tax_id__in=["123", "456"]).count() == 3
    clear.counter = 1
    clear.tax_id = Legacy.objects.get(pk=clear.pk).tax_id
    clear.save()
    assert (stored(clear, "tax_id") or "").startswith("i1:")
    assert Legacy.objects.get(tax_id="123") == clear


def test_a_value_stays_unique_while_some_are_still_clear(rings: Any):
    from django.db import IntegrityError, transaction

    rings(ALLOW_PLAINTEXT=["encryptionapp.legacy.tax_id"])
    put_clear(["123"])
    with pytest.raises(IntegrityError), transaction.atomic():
        Legacy.objects.create(tax_id="123")
    with pytest.raises(ValidationError):
        Legacy(tax_id="123").full_clean()
    assert Legacy.objects.get_or_create(tax_id="123")[1] is False


def test_one_allowed_field_allows_no_other(rings: Any):
    rings(ALLOW_PLAINTEXT=["encryptionapp.customer.notes"])
    put_clear(["123"])
    with pytest.raises(PlaintextFound, match="ALLOW_PLAINTEXT"):
        Legacy.objects.get()


@pytest.mark.parametrize("raw", ["ob1.g.a.AAAA", "ob1.", f"i1:{'0a' * 16}|x", "ob1.g.a.123 456"])
def test_a_damaged_token_is_not_taken_for_a_clear_value(raw: str, rings: Any):
    rings(ALLOW_PLAINTEXT=["encryptionapp.legacy.tax_id"])
    put_clear([raw])
    with pytest.raises(DecryptionFailed):
        Legacy.objects.get()


def test_clear_values_of_other_types_are_read_as_each_database_writes_them(rings: Any):
    """What a column of the plain type becomes when it is altered to text."""
    rings(
        ALLOW_PLAINTEXT=[
            f"encryptionapp.everything.{name}"
            for name in ("integer", "decimal", "boolean", "date", "datetime", "json", "email")
        ]
    )
    row = Everything.objects.create()
    texts = {
        "postgresql": (
            "5",
            "12.50",
            "true",
            "2026-01-02",
            "2026-01-02 03:04:05.5+00",
            '{"a": 1}',
            "a@b.tr",
        ),
        "mysql": (
            "5",
            "12.50",
            "1",
            "2026-01-02",
            "2026-01-02 03:04:05.500000",
            '{"a": 1}',
            "a@b.tr",
        ),
        "sqlite": (
            "5",
            "12.5",
            "1",
            "2026-01-02",
            "2026-01-02 03:04:05.500000",
            '{"a": 1}',
            "a@b.tr",
        ),
    }[connection.vendor]
    names = ("integer", "decimal", "boolean", "date", "datetime", "json", "email")
    for name, text in zip(names, texts, strict=True):
        put_stored(row, name, text)
    read = Everything.objects.get()
    assert [str(getattr(read, name)) for name in names] == [
        "5",
        texts[1],
        "True",
        "2026-01-02",
        "2026-01-02 03:04:05.500000+00:00",
        "{'a': 1}",
        "a@b.tr",
    ]
    read.save()
    again = Everything.objects.get()
    assert again.datetime == read.datetime
    assert again.boolean is True
    assert (stored(row, "boolean") or "").startswith("ob1.g.")


def test_a_clear_value_that_is_none_of_the_type_is_an_error_without_it(rings: Any):
    rings(ALLOW_PLAINTEXT=["encryptionapp.everything.integer", "encryptionapp.everything.binary"])
    row = Everything.objects.create()
    for name in ("integer", "binary"):
        put_stored(row, name, "98765x")
        with pytest.raises(PlaintextFound, match="none of Encrypted") as caught:
            Everything.objects.get()
        assert "98765x" not in str(caught.value)
        put_stored(row, name, None)
