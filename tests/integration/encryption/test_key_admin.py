"""The keys in the admin: states and counts, neither a key nor a value, and nothing to edit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.encryptionapp.models import Customer

PATH = "/admin/django_outbox_encryption/keyfingerprint/"
SECRET = "98765432109"


@pytest.fixture
def browse(database: Any) -> Any:
    def as_somebody(*permissions: str) -> Client:
        found = User.objects.create_user(f"user-{uuid.uuid4()}", is_staff=True)
        found.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(found)
        return client

    return as_somebody


def test_it_shows_the_keys_and_counts_values_when_asked_to(browse: Any, settings: Any):
    Customer.objects.create(name="n", tax_id=SECRET, notes=SECRET)
    client = browse("view_keyfingerprint")
    page = client.get(PATH).content.decode()
    assert "Keyring default" in page
    assert "primary" in page
    assert "Values that name a key" not in page
    page = client.post(PATH).content.decode()
    assert "encryptionapp.customer.tax_id" in page
    for ring in settings.OUTBOX_ENCRYPTION["KEYRINGS"].values():
        assert ring.rpartition(":")[2] not in page
    assert SECRET not in page


def test_a_keyring_that_cannot_be_used_is_told_and_shows_no_key(browse: Any, settings: Any):
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {"default": "2026a:primary:tooshort"}}
    page = browse("view_keyfingerprint").get(PATH)
    assert page.status_code == 200
    assert "No keyring can be used." in page.content.decode()
    assert "tooshort" not in page.content.decode()


def test_who_may_not_see_keys_does_not_and_nobody_edits_them(browse: Any):
    assert browse("change_keyfingerprint", "add_keyfingerprint").get(PATH).status_code == 403
    client = browse("view_keyfingerprint")
    for tail in ("add/", "1/change/", "1/delete/", "1/history/"):
        assert client.get(f"{PATH}{tail}").status_code == 404
    assert client.get("/admin/").status_code == 200
