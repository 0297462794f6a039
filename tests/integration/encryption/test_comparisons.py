"""What a query may do with sealed values, and what it is refused instead of a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import FieldError
from django.db import models
from django.db.models import (
    Case,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    FilteredRelation,
    Max,
    OuterRef,
    Q,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, ExtractYear, Length, Lower, RowNumber
from django.db.models.lookups import Exact, GreaterThan

from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer, Everything, Legacy, Order, Twin

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("closed_cursors"),
]


def chosen_notes() -> Case:
    return Case(When(pk__gt=0, then=F("notes")))


def test_what_hands_values_on_opens_them():
    Customer.objects.bulk_create([Customer(tax_id="1", notes="n"), Customer(name="Ada")])
    rows = Customer.objects.order_by("pk")
    itself = Customer.objects.filter(pk=OuterRef("pk")).values("tax_id")
    assert [*rows.values_list(chosen_notes(), Subquery(itself))] == [("n", "1"), ("", None)]
    counted = rows.annotate(n=chosen_notes(), m=Subquery(itself)).annotate(k=Count("orders"))
    assert [(row.n, row.m, row.k) for row in counted] == [("n", "1", 0), ("", None, 0)]
    assert [*rows.values_list(Coalesce("notes", Value(None)))] == [("n",), ("",)]
    assert {*Customer.objects.union(Customer.objects.all())} == {*rows}
    twice = Customer.objects.values_list("notes").union(
        Customer.objects.values_list("notes"), all=True
    )
    assert sorted(twice) == [("",), ("",), ("n",), ("n",)]
    rows.update(name=Case(When(tax_id="1", then=Value("known")), default=F("name")))
    assert [row.name for row in rows] == ["known", "Ada"]
    text = ExpressionWrapper(F("notes"), output_field=models.TextField())
    assert all(token.startswith("ob1.g.") for token in rows.values_list(text, flat=True))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Customer.objects.order_by("tax_id"),
        lambda: Customer.objects.order_by("-notes"),
        lambda: Customer.objects.order_by("name", F("notes").desc(nulls_last=True)),
        lambda: Customer.objects.order_by(Lower("notes")),
        lambda: Order.objects.order_by("customer__tax_id"),
        lambda: Customer.objects.annotate(copy=F("notes")).order_by("copy"),
        lambda: Customer.objects.values("notes").order_by("notes"),
        lambda: Customer.objects.values("tax_id").distinct(),
        lambda: Order.objects.values("customer__tax_id").distinct(),
        lambda: Customer.objects.values("tax_id").annotate(n=Count("pk")),
        lambda: [Customer.objects.aggregate(Max("tax_id"))],
        lambda: [Customer.objects.aggregate(Count("tax_id", distinct=True))],
        lambda: Customer.objects.annotate(n=Length("notes")),
        lambda: Customer.objects.annotate(n=Lower("notes")).values("n"),
        lambda: Everything.objects.annotate(n=ExtractYear("date")),
        lambda: Everything.objects.dates("date", "year"),
        lambda: Customer.objects.annotate(n=Window(RowNumber(), partition_by=F("notes"))),
        lambda: [Customer.objects.latest("tax_id")],
        lambda: [Customer.objects.earliest("notes")],
        lambda: Everything.objects.annotate(n=F("integer") + 1),
        lambda: Everything.objects.filter(Exact(F("integer") + 1, 6)),
        lambda: Customer.objects.filter(name=F("tax_id")),
        lambda: Customer.objects.alias(copy=F("tax_id")).filter(name=F("copy")),
        lambda: Customer.objects.filter(Exact(Lower(F("notes")), "n")),
        lambda: Customer.objects.filter(GreaterThan(F("notes"), Value("n"))),
        lambda: Customer.objects.filter(Exists(Twin.objects.filter(tax_id=OuterRef("tax_id")))),
        lambda: Order.objects.annotate(
            same=FilteredRelation("customer", condition=Q(customer__name=F("customer__notes")))
        ).filter(same__isnull=False),
        lambda: [Customer.objects.aggregate(n=Max(chosen_notes()))],
        lambda: Customer.objects.annotate(n=chosen_notes()).values("n").annotate(m=Count("pk")),
        lambda: Customer.objects.annotate(n=chosen_notes()).values("n").distinct(),
        lambda: Customer.objects.annotate(n=Coalesce("notes", "surname")),
        lambda: Customer.objects.annotate(n=Coalesce("notes", Value("none"))),
        lambda: Customer.objects.values("notes").union(Customer.objects.values("notes")),
        lambda: Customer.objects.values("tax_id").union(Legacy.objects.values("tax_id"), all=True),
        lambda: Customer.objects.values("tax_id").union(Twin.objects.values("tax_id"), all=True),
        lambda: [Customer.objects.update(name=F("notes"))],
        lambda: [Customer.objects.update(name=chosen_notes())],
        lambda: [Customer.objects.update(name=Lower("notes"))],
    ],
)
def test_what_compares_tokens_is_refused(ask: Any):
    Order.objects.create(number=1, customer=Customer.objects.create(tax_id="1", notes="n"))
    Everything.objects.create()
    with pytest.raises(FieldError, match="is encrypted"):
        list(ask())


@pytest.mark.parametrize("ordering", [["customer__tax_id"], ["number", "-customer__notes"]])
def test_an_ordering_that_is_the_models_own_is_refused_too(
    ordering: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Order._meta, "ordering", ordering)
    with pytest.raises(FieldError, match="is encrypted"):
        list(Order.objects.all())
    assert list(Order.objects.order_by("number")) == []
    assert Order.objects.count() == 0


@pytest.mark.parametrize(
    "lookup", ["exact", "in", "iexact", "contains", "gt", "startswith", "regex", "range"]
)
def test_a_lookup_without_a_blind_index_says_what_works(lookup: str):
    with pytest.raises(FieldError, match=r"Customer.notes is encrypted.*isnull.*BlindIndexField"):
        Customer.objects.filter(**{f"notes__{lookup}": ["a", "b"]}).exists()


@pytest.mark.parametrize("lookup", ["year", "date__gt", "month__in"])
def test_transforms_are_refused(lookup: str):
    with pytest.raises(FieldError, match="datetime is encrypted"):
        Everything.objects.filter(**{f"datetime__{lookup}": 1}).exists()
    with pytest.raises(FieldError, match="json is encrypted"):
        Everything.objects.filter(json__key="value").exists()
