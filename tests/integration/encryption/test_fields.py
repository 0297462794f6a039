# ruff: noqa: RUF001 - Turkish letters are what is tested here
"""Encrypted fields do what Django's fields do, on every database, and leave nothing in clear."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.db import connection, models
from django.db.models import Case, Count, F, Q, Subquery, Value, When
from django.db.models.functions import Coalesce, Concat, Lower

from django_outbox.encryption import EncryptedCharField
from django_outbox.encryption.exceptions import DecryptionFailed
from django_outbox.encryption.stored import StoredValue, stored_values
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer, Employee, Everything, Order, Twin, Visitor
from tests.integration.encryption.conftest import put_stored, stored

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("closed_cursors"),
]

VALUES: dict[str, list[Any]] = {
    "text": [
        "",
        "a",
        "Ünal İbrahım 👩‍💻 \x00 'quoted\"",
        "x" * 1024 * 1024,
        "ob1.g.a.AAAA",
        "%s|%%",
        None,
    ],
    "char": ["", "0", "i1:0a0a|ob1.g.a.AAAA", None],
    "email": ["ayse@example.com", None],
    "integer": [0, 1, -1, 2**80, None],
    "decimal": [Decimal("0.00"), Decimal("-12.50"), Decimal("9999999999.99"), None],
    "boolean": [True, False, None],
    "date": [date(1, 1, 1), date(2026, 2, 28), None],
    "datetime": [datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC), None],
    "json": [{}, [], "", 0, False, {"a": [1, 1.5, None, "ü"]}, None],
    "binary": [b"", b"\x00\xff", bytes(range(256)), None],
}
CASES = [(name, value) for name, values in VALUES.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda v: str(v)[:20])
def test_a_value_comes_back_as_it_was_and_is_not_in_the_column(name: str, value: Any):
    row = Everything.objects.create(**{name: value})
    read = getattr(Everything.objects.get(), name)
    assert read == value
    assert type(read) is type(value)
    raw = stored(row, name)
    if value is None:
        assert raw is None
    else:
        assert raw is not None
        assert "ob1.g.a." in raw
        assert raw.isascii()
        if len(str(value)) > 5:
            assert str(value) not in raw


def test_one_value_is_never_stored_twice_alike():
    rows = Everything.objects.bulk_create([Everything(text="same") for _ in range(50)])
    assert len({stored(row, "text") for row in Everything.objects.filter()}) == len(rows)


def test_bulk_create_and_two_bulk_updates_leave_every_value_readable():
    Everything.objects.bulk_create(
        [Everything(text=f"text {n}", integer=n, boolean=n % 2 == 0) for n in range(20)]
    )
    for turn in range(2):
        rows = list(Everything.objects.order_by("pk"))
        for row in rows:
            row.text = f"{row.text}!"
            row.json = {"turn": turn}
        Everything.objects.bulk_update(rows, ["text", "json", "integer"], batch_size=7)
    rows = list(Everything.objects.order_by("pk"))
    assert [row.text for row in rows] == [f"text {n}!!" for n in range(20)]
    assert [row.integer for row in rows] == list(range(20))
    assert {json.dumps(row.json) for row in rows} == {'{"turn": 1}'}
    assert all(len(stored(row, "text") or "") < 100 for row in rows)


def test_bulk_update_to_null_and_falsy_values():
    row = Everything.objects.create(text="x", integer=5, boolean=True)
    row.text, row.integer, row.boolean = None, 0, False
    Everything.objects.bulk_update([row], ["text", "integer", "boolean"])
    row.refresh_from_db()
    assert (row.text, row.integer, row.boolean) == (None, 0, False)
    assert stored(row, "text") is None


def test_an_upsert_seals_the_new_value():
    if connection.vendor == "mysql":
        conflict: dict[str, Any] = {}
    else:
        conflict = {"unique_fields": ["tax_id_index"]}
    old = Customer.objects.create(tax_id="123", name="old", notes="secret")
    Customer.objects.bulk_create(
        [
            Customer(tax_id="1 2 3", name="new", notes="secret 2"),
            Customer(tax_id="4", name="other"),
        ],
        update_conflicts=True,
        update_fields=["name", "tax_id", "notes"],
        **conflict,
    )
    old.refresh_from_db()
    assert (old.name, old.tax_id, old.notes) == ("new", "1 2 3", "secret 2")
    assert Customer.objects.get(tax_id="123") == old
    assert Customer.objects.count() == 2


def test_update_takes_values_nulls_and_the_field_itself():
    row = Customer.objects.create(tax_id="1", notes="old")
    assert Customer.objects.filter(pk=row.pk).update(notes="new", tax_id="2") == 1
    before = stored(row, "notes")
    Customer.objects.update(notes=F("notes"), tax_id=F("tax_id"))
    row = Customer.objects.get(tax_id="2")
    assert row.notes == "new"
    assert stored(row, "notes") == before
    Customer.objects.update(tax_id=None)
    assert Customer.objects.filter(tax_id=None).count() == 1
    assert Customer.objects.get().tax_id_index is None


def test_case_and_when_seal_their_values():
    one, two, three = (Customer.objects.create(tax_id=n, notes=f"{n}") for n in "123")
    Customer.objects.update(
        notes=Case(
            When(tax_id="1", then=Value("secret one")),
            When(pk=two.pk, then=F("notes")),
            default=Coalesce(Value(None), Value("secret three")),
        )
    )
    assert [c.notes for c in Customer.objects.order_by("pk")] == ["secret one", "2", "secret three"]
    for row in (one, two, three):
        assert (stored(row, "notes") or "").startswith("ob1.g.")


def test_an_expression_can_be_inserted():
    row = Customer.objects.create(notes=Value("secret"), tax_id=Value("123"))
    assert (stored(row, "notes") or "").startswith("ob1.g.")
    assert Customer.objects.get(tax_id="123").notes == "secret"


@pytest.mark.parametrize(
    "expression",
    [
        F("name"),
        F("surname"),
        Concat(F("notes"), Value("x")),
        Lower("notes"),
        Lower(Value("CLEAR TEXT")),
        Case(When(pk=1, then=F("name")), default=F("notes"), output_field=models.TextField()),
        Subquery(Twin.objects.values("notes")[:1]),
        Coalesce("notes", "name", output_field=models.TextField()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_the_database_would_compute_is_refused(expression: Any):
    row = Customer.objects.create(name="clear name", notes="secret", surname="s")
    before = stored(row, "notes")
    with pytest.raises(FieldError, match="notes is encrypted"):
        Customer.objects.update(notes=expression)
    row.notes = expression
    with pytest.raises(FieldError, match="notes is encrypted"):
        row.save()
    assert stored(row, "notes") == before


def test_values_values_list_only_and_defer():
    Customer.objects.create(tax_id="123", notes="secret", name="n")
    assert list(Customer.objects.values("tax_id", "name")) == [{"tax_id": "123", "name": "n"}]
    assert list(Customer.objects.values_list("notes", flat=True)) == ["secret"]
    assert list(Customer.objects.values_list(F("notes"))) == [("secret",)]
    assert Customer.objects.annotate(copy=F("notes")).get().copy == "secret"
    assert Customer.objects.only("name").get().notes == "secret"
    assert Customer.objects.defer("notes").get().notes == "secret"
    assert next(iter(Customer.objects.defer("tax_id").iterator())).tax_id == "123"
    assert Customer.objects.raw("SELECT * FROM encryptionapp_customer")[0].notes == "secret"


def test_related_rows_are_opened_too():
    customer = Customer.objects.create(notes="secret")
    Order.objects.create(customer=customer, number=1)
    assert Order.objects.select_related("customer").get().customer.notes == "secret"
    assert Order.objects.values_list("customer__notes").get() == ("secret",)
    prefetched = Customer.objects.prefetch_related("orders").get()
    assert [order.number for order in prefetched.orders.all()] == [1]


def test_counting_and_deleting_work_beside_encrypted_columns():
    customer = Customer.objects.create(notes="secret", tax_id="1")
    Customer.objects.create(notes="secret")
    Order.objects.create(customer=customer, number=1)
    assert Customer.objects.aggregate(n=Count("tax_id"))["n"] == 1
    counted = Customer.objects.annotate(n=Count("orders")).order_by("pk")
    assert [(row.notes, row.n) for row in counted] == [("secret", 1), ("secret", 0)]
    assert Customer.objects.filter(orders__number=1).distinct().get().notes == "secret"
    assert Customer.objects.values("pk", "tax_id").distinct().count() == 2
    assert Customer.objects.filter(tax_id="1").delete()[0] == 2


def test_isnull_works_without_an_index():
    Customer.objects.bulk_create(
        [Customer(notes="a", surname=None), Customer(notes="b", surname="")]
    )
    assert Customer.objects.filter(surname__isnull=True).get().notes == "a"
    assert Customer.objects.filter(surname=None).get().notes == "a"
    assert Customer.objects.exclude(surname__isnull=True).get().notes == "b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", b"bytes"),
        ("text", 5),
        ("char", ["a"]),
        ("integer", "12a"),
        ("integer", 1.5),
        ("integer", float("nan")),
        ("decimal", "12a"),
        ("decimal", Decimal("12345678901.00")),
        ("decimal", Decimal("NaN")),
        ("boolean", "perhaps"),
        ("date", "2026-13-01"),
        ("datetime", "not a date"),
        ("json", float("nan")),
        ("json", {1, 2}),
        ("binary", "text"),
        ("text", "\ud800"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_without_being_shown(name: str, value: Any):
    with pytest.raises((TypeError, ValueError)) as caught:
        Everything.objects.create(**{name: value})
    assert not isinstance(caught.value, UnicodeError)
    if name not in ("json", "boolean"):
        assert str(value)[:20] not in str(caught.value)
    assert not Everything.objects.exists()


def test_times_come_back_in_their_zone(settings: Any):
    east = datetime(2026, 1, 1, 12, 0, tzinfo=timezone(timedelta(hours=3)))
    row = Everything.objects.create(datetime=east)
    row.refresh_from_db()
    assert row.datetime == east
    assert row.datetime.tzinfo == UTC
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Istanbul"
    row.refresh_from_db()
    assert row.datetime == datetime(2026, 1, 1, 12, 0)  # noqa: DTZ001 - naive on purpose
    row.save()
    settings.USE_TZ = True
    row.refresh_from_db()
    assert row.datetime == east


def test_a_naive_time_is_taken_as_the_projects_with_a_warning_that_shows_no_value():
    with pytest.warns(RuntimeWarning, match="naive datetime") as caught:
        row = Everything.objects.create(datetime=datetime(2026, 1, 1, 12, 0))  # noqa: DTZ001
    assert "2026" not in str(caught[0].message)
    row.refresh_from_db()
    assert row.datetime == datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_a_pickled_row_and_a_pickled_query_work():
    row = Customer.objects.create(tax_id="123", notes="secret")
    assert pickle.loads(pickle.dumps(row)).notes == "secret"
    assert pickle.loads(pickle.dumps(copy.deepcopy(Customer.objects.get()))).tax_id == "123"
    query = Customer.objects.filter(tax_id="123")
    query.query = pickle.loads(pickle.dumps(query.query))
    assert query.get() == row
    assert pickle.loads(pickle.dumps(Customer.objects.all()))[0].tax_id == "123"


def test_length_and_validators_look_at_the_clear_text():
    Everything(char="x" * 50, email="a@example.com").full_clean()
    with pytest.raises(ValidationError) as caught:
        Everything(char="x" * 51, email="none", decimal="1.234", integer="a", text="x").full_clean()
    assert set(caught.value.message_dict) == {"char", "email", "decimal", "integer"}
    assert "'a'" not in str(caught.value)


def test_what_validation_says_holds_no_value():
    choice = EncryptedCharField(max_length=9, choices=[("a", "A")])
    with pytest.raises(ValidationError, match="not a valid choice") as caught:
        choice.clean("secret", None)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError, match="base64") as caught:
        Everything(binary="sécret").full_clean()
    assert "é" not in str(caught.value)


def test_each_child_of_an_abstract_model_has_a_context_of_its_own():
    employee = Employee.objects.create(passport="P1")
    visitor = Visitor.objects.create(passport="P2")
    assert Employee._meta.get_field("passport").seal_context == "encryptionapp.employee.passport"
    put_stored(visitor, "passport", stored(employee, "passport"))
    with pytest.raises(DecryptionFailed):
        Visitor.objects.get()


def test_the_field_survives_deconstruction_as_it_is():
    for model in (Customer, Everything, Employee):
        for field in model._meta.local_fields:
            _name, path, args, kwargs = field.deconstruct()
            clone = field.clone()
            assert clone.deconstruct()[1:] == (path, args, kwargs)
            if hasattr(field, "is_encrypted"):
                assert path == f"django_outbox.encryption.{type(field).__name__}"
                assert kwargs["context"] == f"{model._meta.label_lower}.{field.name}"


def test_stored_values_are_carried_through_unopened(rings: Any):
    row = Customer.objects.create(tax_id="123", notes="secret")
    before = stored(row, "tax_id")
    with stored_values():
        read = Customer.objects.get()
        assert isinstance(read.tax_id, StoredValue)
        assert "secret" not in repr(read.notes)
    read.save()
    assert stored(row, "tax_id") == before
    read.notes = read.tax_id
    with pytest.raises(DecryptionFailed, match="cannot be written here"):
        read.save()


def test_a_query_shows_no_clear_value(django_assert_num_queries: Any):
    Customer.objects.create(tax_id="1")
    query = Customer.objects.filter(Q(tax_id="98765432109") | Q(surname="Kıvılcım"))
    assert "98765432109" not in str(query.query)
    list(query)
    with django_assert_num_queries(1) as captured:
        list(query.all())
    assert "98765432109" not in captured.captured_queries[0]["sql"]
