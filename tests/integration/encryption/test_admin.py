# ruff: noqa: RUF001 - Turkish letters are what is tested here
"""Forms and the admin: people see and fill in clear values; pages of others show none."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.views.debug import get_default_exception_reporter_filter, technical_500_response

from django_outbox.encryption.admin import BlindSearchMixin
from tests.encryptionapp.models import Customer, Everything
from tests.integration.encryption.conftest import put_stored, stored

pytestmark = pytest.mark.usefixtures("closed_cursors")

SECRET = "98765432109"

site = admin.AdminSite("encryption")


@admin.register(Customer, site=site)
class CustomerAdmin(BlindSearchMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name"]
    search_fields = ["name"]
    blind_search_fields = ["tax_id", "surname"]


@admin.register(Everything, site=site)
class EverythingAdmin(BlindSearchMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["pk"]
    blind_search_fields = ["email"]


def fails(request: HttpRequest) -> HttpResponse:
    row = Customer.objects.only("name").get(name="n")
    Customer.objects.filter(pk=row.pk).values_list("tax_id", "notes")[0]
    raise AssertionError


urlpatterns = [path("admin/", site.urls), path("fails/", fails)]


@pytest.fixture
def client(settings: Any) -> Client:
    settings.ROOT_URLCONF = __name__
    User.objects.create_superuser("root", password="x")
    client = Client()
    assert client.login(username="root", password="x")
    return client


def test_a_row_is_added_and_changed_in_the_admin(client: Client):
    address = "/admin/encryptionapp/customer/"
    data = {"name": "n", "tax_id": SECRET, "surname": "Yılmaz", "notes": "private"}
    assert client.post(f"{address}add/", data).status_code == 302
    row = Customer.objects.get(tax_id=SECRET)
    assert (stored(row, "notes") or "").startswith("ob1.g.")
    page = client.get(f"{address}{row.pk}/change/").content.decode()
    assert SECRET in page
    client.post(f"{address}{row.pk}/change/", {**data, "notes": "", "surname": ""})
    row.refresh_from_db()
    assert (row.notes, row.surname, row.tax_id) == ("", "", SECRET)
    for logged in LogEntry.objects.all():
        assert SECRET not in f"{logged.object_repr} {logged.change_message}"
    for where in (address, f"{address}{row.pk}/history/", f"{address}{row.pk}/delete/"):
        assert SECRET not in client.get(where).content.decode()


def test_a_taken_value_is_told_at_its_field_in_the_admin(client: Client):
    Customer.objects.create(tax_id=SECRET)
    page = client.post("/admin/encryptionapp/customer/add/", {"tax_id": "987 654 321 09"})
    assert page.status_code == 200
    assert list(page.context["adminform"].form.errors) == ["tax_id"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (SECRET, {"n"}),
        ("987 654-321 09", {"n"}),
        ("YILMAZ", {"n"}),
        ("oth", {"other"}),
        ("9876", set()),
        ("", {"n", "other"}),
    ],
)
def test_the_search_box_finds_whole_sealed_values(asked: str, found: set[str], client: Client):
    Customer.objects.create(name="n", tax_id=SECRET, surname="yılmaz")
    Customer.objects.create(name="other")
    page = client.get("/admin/encryptionapp/customer/", {"q": asked})
    assert {row.name for row in page.context["cl"].result_list} == found
    assert 'name="q"' in page.content.decode()


def test_the_search_box_is_there_for_sealed_fields_alone(client: Client):
    row = Everything.objects.create(email="Ayse@example.com")
    Everything.objects.create()
    page = client.get("/admin/encryptionapp/everything/", {"q": "ayse@EXAMPLE.com"})
    assert [r.pk for r in page.context["cl"].result_list] == [row.pk]
    assert 'name="q"' in page.content.decode()


def test_every_type_goes_through_its_form(client: Client):
    data = {
        "text": "t",
        "char": "c",
        "email": "a@b.tr",
        "integer": "0",
        "decimal": "1.50",
        "boolean": "false",
        "date": "2026-01-02",
        "datetime_0": "2026-01-02",
        "datetime_1": "03:04:05",
        "json": '{"a": 1}',
    }
    assert client.post("/admin/encryptionapp/everything/add/", data).status_code == 302
    row = Everything.objects.get()
    assert (row.integer, str(row.decimal), row.boolean, row.json) == (0, "1.50", False, {"a": 1})
    page = client.get(f"/admin/encryptionapp/everything/{row.pk}/change/").content.decode()
    for shown in ('value="0"', 'value="1.50"', 'value="2026-01-02"', 'value="03:04:05"'):
        assert shown in page
    client.post(f"/admin/encryptionapp/everything/{row.pk}/change/", {})
    row.refresh_from_db()
    assert (row.text, row.integer, row.boolean) == ("", None, None)


@pytest.mark.parametrize("how", ["cut off", "of another column"])
def test_an_exception_page_with_debug_shows_no_value(
    how: str, client: Client, settings: Any, caplog: Any
):
    """The value is clear in frames of ours while it is opened; Django prints frames' variables."""
    caplog.set_level(logging.DEBUG)
    settings.DEBUG = True
    row = Customer.objects.create(name="n", tax_id=SECRET, notes=SECRET)
    raw = stored(row, "notes") or ""
    put_stored(row, "tax_id", {"cut off": raw[:-5], "of another column": raw}[how])
    client.raise_request_exception = False
    page = client.get("/fails/")
    assert page.status_code == 500
    text = page.content.decode()
    assert "encryptionapp.customer.tax_id" in text
    assert f"pk {row.pk}" in text
    assert len(re.findall("Traceback", text)) > 0
    assert SECRET not in text
    logged = caplog.text
    assert SECRET not in re.sub(r"UPDATE encryptionapp_customer.*", "", logged)


def test_an_exception_page_for_a_refused_value_shows_no_variable_of_ours(
    rf: RequestFactory, settings: Any
):
    settings.DEBUG = True
    refused = Everything()
    refused.integer = f"{SECRET}x"
    with pytest.raises(TypeError) as caught:
        refused.save()
    page = technical_500_response(rf.get("/"), caught.type, caught.value, caught.tb)
    text = page.content.decode()
    assert "expected a whole number, got str" in text
    frames = text.split('<li class="frame')
    ours = [frame for frame in frames if "django_outbox/encryption" in frame]
    assert not any(SECRET in frame for frame in ours)


def test_with_the_masking_filter_an_exception_page_shows_no_value_of_djangos_frames_either(
    client: Client, settings: Any, request: pytest.FixtureRequest
):
    settings.DEBUG = True
    settings.DEFAULT_EXCEPTION_REPORTER_FILTER = (
        "django_outbox.encryption.debug.MaskingReporterFilter"
    )
    get_default_exception_reporter_filter.cache_clear()
    request.addfinalizer(get_default_exception_reporter_filter.cache_clear)
    row = Customer.objects.create(name="n", notes="x", tax_id="1")
    put_stored(row, "tax_id", SECRET)
    client.raise_request_exception = False
    text = client.get("/fails/", {"q": "1"}).content.decode()
    assert "apply_converters" in text
    assert "a clear value stands in the encrypted column" in text
    assert SECRET not in text
    text = client.post("/fails/", {"tax_id": SECRET, "pin": SECRET}).content.decode()
    assert "pin" in text
    assert SECRET not in text
