"""Look-ups by blind index answer as a twin model in clear does, before, during and after a rotation."""

# ruff: noqa: RUF001 - Turkish letters are what is tested here

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Value, When

from django_outbox.encryption import rotation
from django_outbox.encryption.blind_index import tag_of, tags_of
from django_outbox.encryption.field_source import FieldSource
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Branch, Customer, Everything, Order, Twin
from tests.integration.encryption.conftest import entry, put_stored, stored

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("database"),
]

TAX_IDS = ["11111111110", "22222222220", None, "33333333330", "", None, "44444444440"]

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "exact": lambda m: m.objects.filter(tax_id="22222222220"),
    "exact of an unknown value": lambda m: m.objects.filter(tax_id="55"),
    "exact of an empty string": lambda m: m.objects.filter(tax_id=""),
    "exact of None": lambda m: m.objects.filter(tax_id=None),
    "in": lambda m: m.objects.filter(tax_id__in=["11111111110", "44444444440", "55", None]),
    "in of nothing": lambda m: m.objects.filter(tax_id__in=[]),
    "in of a set": lambda m: m.objects.filter(tax_id__in={"11111111110"}),
    "in of a generator": lambda m: m.objects.filter(tax_id__in=(t for t in ["11111111110"])),
    "isnull": lambda m: m.objects.filter(tax_id__isnull=True),
    "is not null": lambda m: m.objects.filter(tax_id__isnull=False),
    "exclude": lambda m: m.objects.exclude(tax_id="11111111110"),
    "exclude of an unknown value": lambda m: m.objects.exclude(tax_id="55"),
    "exclude in": lambda m: m.objects.exclude(tax_id__in=["11111111110", "33333333330"]),
    "exclude in nothing": lambda m: m.objects.exclude(tax_id__in=[]),
    "exclude None": lambda m: m.objects.exclude(tax_id=None),
    "or": lambda m: m.objects.filter(Q(tax_id="11111111110") | Q(name="n3")),
    "and not": lambda m: m.objects.filter(~Q(tax_id="11111111110"), name__gte="n1"),
    "not or": lambda m: m.objects.filter(~(Q(tax_id="11111111110") | Q(tax_id=None))),
    "not not": lambda m: m.objects.filter(~~Q(tax_id="11111111110")),
    "xor": lambda m: m.objects.filter(Q(tax_id="11111111110") ^ Q(name="n0")),
    "a join": lambda m: m.objects.filter(orders__number=1, tax_id="11111111110"),
    "exclude over a join": lambda m: m.objects.exclude(orders__number=1),
    "exists": lambda m: m.objects.filter(
        Exists(m.objects.filter(pk=OuterRef("pk"), tax_id="33333333330"))
    ),
    "annotated case": lambda m: m.objects.annotate(
        hit=Case(When(tax_id="33333333330", then=Value(1)), default=Value(0))
    ).filter(hit=1),
    "counted with a filter": lambda m: m.objects.annotate(
        n=Count("orders", filter=Q(tax_id="11111111110"))
    ).filter(n=2),
    "an alias": lambda m: m.objects.annotate(copy=F("tax_id")).filter(copy="22222222220"),
    "a union": lambda m: m.objects.filter(
        pk__in=m.objects.filter(tax_id="22222222220").values("pk")
    ),
}

JOINED: dict[str, Callable[[str], Any]] = {
    "a join": lambda n: Order.objects.filter(**{f"{n}__tax_id": "11111111110"}),
    "a join with in": lambda n: Order.objects.filter(**{f"{n}__tax_id__in": ["11111111110", "55"]}),
    "exclude over a join": lambda n: Order.objects.exclude(**{f"{n}__tax_id": "11111111110"}),
    "not, over a join": lambda n: Order.objects.filter(~Q(**{f"{n}__tax_id": "22222222220"})),
    "null over a join": lambda n: Order.objects.filter(**{f"{n}__tax_id": None}),
    "or over a join": lambda n: Order.objects.filter(
        Q(**{f"{n}__tax_id": "22222222220"}) | Q(number=7)
    ),
}


def names(answer: Any) -> list[str]:
    return sorted(row.name for row in answer)


def put_both(tax_ids: list[str | None]) -> None:
    for number, tax_id in enumerate(tax_ids):
        customer = Customer.objects.create(name=f"n{number}", tax_id=tax_id)
        twin = Twin.objects.create(name=f"n{number}", tax_id=tax_id)
        for n in range(2):
            Order.objects.create(customer=customer, twin=twin, number=number + n)
    Order.objects.create(number=99)


def assert_twins_agree() -> None:
    for question, ask in QUESTIONS.items():
        assert names(ask(Customer)) == names(ask(Twin)), question
        assert ask(Customer).count() == ask(Twin).count(), question
        assert ask(Customer).exists() == ask(Twin).exists(), question
    for question, ask in JOINED.items():
        sealed, clear = (sorted(o.pk for o in ask(name)) for name in ("customer", "twin"))
        assert sealed == clear, question
    for tax_id in ["11111111110", "88888888880"]:
        with transaction.atomic():
            answers = [
                m.objects.get_or_create(tax_id=tax_id, defaults={"name": "new"})
                for m in (Customer, Twin)
            ]
            assert answers[0][1] == answers[1][1]
            assert answers[0][0].name == answers[1][0].name
            answers = [
                m.objects.update_or_create(tax_id=tax_id, defaults={"notes": "x"})
                for m in (Customer, Twin)
            ]
            assert [created for _, created in answers] == [False, False]
            transaction.set_rollback(True)
    for model in (Customer, Twin):
        with pytest.raises(IntegrityError), transaction.atomic():
            model.objects.create(tax_id="11111111110")


def test_every_question_is_answered_as_in_clear():
    put_both(TAX_IDS)
    assert_twins_agree()


def test_every_question_is_answered_alike_all_through_an_index_key_rotation(rings: Any):
    put_both(TAX_IDS[:4])
    rings(index=[entry("i2"), entry("i1", "retired")])
    put_both(TAX_IDS[4:])
    assert_twins_agree()
    field = Customer._meta.get_field("tax_id")
    outcome = rotation.reencrypt(FieldSource(field), rotation.Task(index=True, limit=2))
    assert (outcome.left, outcome.changed) == (0, 3)
    assert_twins_agree()
    rings(index=[entry("i2")])
    assert_twins_agree()


def test_half_way_through_a_rotation_a_value_is_still_unique(rings: Any):
    old = Customer.objects.create(tax_id="11111111110")
    other = Customer.objects.create(tax_id="2")
    rings(index=[entry("i2"), entry("i1", "retired")])
    with pytest.raises(IntegrityError), transaction.atomic():
        Customer.objects.create(tax_id="111 111 111 10")
    other.tax_id = "11111111110"
    with pytest.raises(IntegrityError), transaction.atomic():
        other.save()
    with pytest.raises(IntegrityError), transaction.atomic():
        Customer.objects.bulk_create([Customer(tax_id="11111111110")])
    old.name = "saved again under the new index key"
    old.save()
    assert (stored(old, "tax_id") or "").startswith("i2:")
    assert Customer.objects.filter(tax_id="11111111110").count() == 1


def test_the_index_follows_whatever_writes_the_value():
    row = Customer.objects.create(tax_id="1", surname="a")
    Customer.objects.filter(pk=row.pk).update(tax_id="2")
    assert Customer.objects.get(tax_id="2") == row
    row.tax_id = "3"
    Customer.objects.bulk_update([row], ["tax_id"])
    assert Customer.objects.get(tax_id="3") == row
    other = Customer.objects.create(tax_id="4")
    raw = stored(other, "tax_id")
    other.delete()
    put_stored(row, "tax_id", raw)
    assert Customer.objects.get(tax_id="4") == row
    assert not Customer.objects.filter(tax_id__in=["1", "2", "3"]).exists()
    row.refresh_from_db()
    assert row.tax_id == "4"


@pytest.mark.parametrize(
    ("stored_value", "asked"),
    [("Işık", "IŞIK"), ("İpek", " ipek "), ("I\u0307pek", "ipek"), ("Şükrü", "Şu\u0308kru\u0308")],
)
def test_the_normalisers_apply_to_both_sides(stored_value: str, asked: str):
    row = Customer.objects.create(surname=stored_value)
    assert Customer.objects.get(surname=asked) == row
    assert Customer.objects.get(surname__iexact=asked) == row
    row.refresh_from_db()
    assert row.surname == stored_value


def test_full_width_digits_are_digits():
    row = Customer.objects.create(tax_id="１２３ 456")
    assert Customer.objects.get(tax_id="123456") == row


def test_numbers_and_addresses_can_be_indexed():
    row = Everything.objects.create(integer=0, email="Ayse@Example.com")
    assert Everything.objects.get(integer=0) == row
    assert Everything.objects.get(integer__in=[0, 1]) == row
    assert Everything.objects.get(email="ayse@example.COM") == row
    assert not Everything.objects.filter(integer=1).exists()


def test_iexact_needs_a_normaliser_that_folds_case():
    with pytest.raises(FieldError, match="normaliser that folds case"):
        Customer.objects.filter(tax_id__iexact="1").exists()


@pytest.mark.parametrize("lookup", ["contains", "startswith", "gt", "range", "regex", "icontains"])
def test_other_lookups_say_what_works(lookup: str):
    with pytest.raises(FieldError, match="What works: isnull, exact, in"):
        Customer.objects.filter(**{f"tax_id__{lookup}": "1"}).exists()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Customer.objects.filter(tax_id=F("name")),
        lambda: Customer.objects.filter(tax_id__in=Twin.objects.values("tax_id")),
        lambda: Customer.objects.filter(tax_id__in=[F("name")]),
        lambda: Customer.objects.filter(Exists(Twin.objects.filter(pk=1)), tax_id=Value("1")),
        lambda: Customer.objects.annotate(
            other=Case(When(pk=1, then=F("tax_id")), default=F("tax_id"))
        ).filter(other="1"),
    ],
)
def test_a_value_is_compared_with_plain_values_only(ask: Any):
    with pytest.raises(FieldError, match="is encrypted"):
        ask().exists()


def test_a_taken_value_is_an_error_of_the_field_that_was_filled_in():
    row = Customer.objects.create(tax_id="123")
    for taken in (Customer(tax_id="1 2 3"), Customer(pk=row.pk + 1, tax_id="123")):
        with pytest.raises(ValidationError) as caught:
            taken.full_clean()
        assert list(caught.value.message_dict) == ["tax_id"]
        assert "123" not in str(caught.value)
    row.full_clean()
    Customer(tax_id="124").full_clean()
    Customer(tax_id=None).full_clean()


def test_a_value_that_is_taken_together_with_another_field():
    row = Branch.objects.create(tenant="a", account="TR 1")
    Branch(tenant="b", account="tr 1").full_clean()
    with pytest.raises(ValidationError) as caught:
        Branch(tenant="a", account=" tr 1").full_clean()
    assert "account" in caught.value.message_dict
    row.full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        Branch.objects.create(tenant="a", account="tr 1")


def test_a_lookup_uses_the_index(django_assert_num_queries: Any):
    Customer.objects.bulk_create(
        [Customer(tax_id=f"{n}", surname=f"name {n}") for n in range(2000)]
    )
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("ANALYZE TABLE encryptionapp_customer")
            cursor.fetchall()
        elif connection.vendor == "postgresql":
            cursor.execute("ANALYZE encryptionapp_customer")
    for question in ({"tax_id": "77"}, {"surname__in": ["name 7", "name 8"]}):
        plan = Customer.objects.filter(**question).explain()
        name = next(iter(question)).partition("__")[0]
        assert f"{name}_index" in plan, plan


def test_tags_of_any_value_in_any_context(rings: Any, database: Any):
    one = tag_of("Ayşe", context="outbox.customer", normalisers=["casefold"], using="default")
    assert one in tags_of(
        "AYŞE", context="outbox.customer", normalisers=["casefold"], using="default"
    )
    assert one != tag_of("Ayşe", context="outbox.other", normalisers=["casefold"], using="default")
    rings(index=[entry("i2"), entry("i1", "retired")])
    tags = tags_of("ayşe", context="outbox.customer", using="default")
    assert [tag.partition(":")[0] for tag in tags] == ["i2", "i1"]
    assert one in tags
