"""A wrong key under a known id stops before anything is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_outbox.encryption import fingerprints
from django_outbox.encryption.exceptions import EncryptionError, KeyDestroyed, WrongKey
from django_outbox.encryption.models import KeyFingerprint
from tests.conftest import EVERY_DATABASE
from tests.encryptionapp.models import Customer
from tests.integration.encryption.conftest import entry, wrong_entry

pytestmark = [
    pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True),
    pytest.mark.usefixtures("database"),
]


def recorded() -> set[tuple[str, str]]:
    return set(KeyFingerprint.objects.values_list("ring", "kid"))


def test_the_first_value_records_its_keys_and_the_next_asks_no_more(django_assert_num_queries: Any):
    Customer.objects.create(tax_id="1")
    assert recorded() == {("default", "a"), ("index", "i1")}
    with django_assert_num_queries(1):
        Customer.objects.update(tax_id="2", notes="x")


def test_within_one_transaction_a_new_key_is_looked_up_once(django_assert_num_queries: Any):
    with transaction.atomic():
        Customer.objects.create(notes="x")
        with django_assert_num_queries(3):
            Customer.objects.bulk_create([Customer(notes="y"), Customer(notes="z")])
            Customer.objects.update(notes="x")
            Customer.objects.update(notes="y")


def test_a_savepoint_rolled_back_takes_the_record_along_too():
    with transaction.atomic():
        with transaction.atomic():
            Customer.objects.create(notes="x")
            transaction.set_rollback(True)
        assert not recorded()
        Customer.objects.create(notes="x")
        assert recorded() == {("default", "a")}
    assert recorded() == {("default", "a")}


def test_a_rolled_back_first_value_takes_its_record_along_and_the_next_makes_it_again():
    with transaction.atomic():
        Customer.objects.create(notes="x")
        assert ("default", "a") in recorded()
        transaction.set_rollback(True)
    assert not recorded()
    Customer.objects.create(notes="x")
    assert ("default", "a") in recorded()


@pytest.mark.parametrize("ring", ["default", "index"])
def test_a_wrong_key_under_a_known_id_writes_nothing(ring: str, rings: Any):
    Customer.objects.create(tax_id="1", name="first")
    rings(**{ring: [wrong_entry("a" if ring == "default" else "i1")]})
    for write in (
        lambda: Customer.objects.create(tax_id="2"),
        lambda: Customer.objects.bulk_create([Customer(tax_id="3")]),
        lambda: Customer.objects.update(tax_id="4"),
    ):
        with pytest.raises(WrongKey, match="another key than the one first used"):
            write()
    assert list(Customer.objects.values_list("name", flat=True)) == ["first"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM encryptionapp_customer WHERE tax_id LIKE 'i1:%'")
        assert cursor.fetchone() == (1,)
    rings()
    assert Customer.objects.get(tax_id="1").name == "first"


def test_searching_with_a_wrong_index_key_is_an_error_not_an_empty_answer(rings: Any):
    Customer.objects.create(tax_id="1")
    rings(index=[wrong_entry("i1")])
    with pytest.raises(WrongKey):
        Customer.objects.filter(tax_id="1").exists()
    rings(index=[entry("i2"), wrong_entry("i1", "retired")])
    with pytest.raises(WrongKey):
        Customer.objects.filter(tax_id="1").exists()


def test_a_destroyed_key_that_comes_back_writes_nothing(rings: Any):
    Customer.objects.create(notes="x")
    fingerprint = KeyFingerprint.objects.get(ring="default", kid="a").fingerprint
    rings()
    fingerprints.mark_destroyed("default", "a", fingerprint, "default")
    with pytest.raises(KeyDestroyed, match="is back in the keyring"):
        Customer.objects.create(notes="y")


def test_a_damaged_canary_is_a_wrong_key(rings: Any):
    Customer.objects.create(notes="x")
    KeyFingerprint.objects.filter(ring="default").update(canary="ob1.g.a.AAAA")
    rings()
    with pytest.raises(WrongKey, match="canary"):
        Customer.objects.create(notes="y")


def test_migrate_records_the_keys(rings: Any):
    rings(default=[entry("b"), entry("a", "retired")])
    call_command("migrate", "django_outbox_encryption", verbosity=0)
    assert recorded() == {("default", "b"), ("default", "a"), ("index", "i1")}


def test_migrate_leaves_wrong_keys_to_the_checks(rings: Any):
    Customer.objects.create(notes="x")
    rings(default=[wrong_entry("a")], index=["nonsense"])
    call_command("migrate", "django_outbox_encryption", verbosity=0, skip_checks=True)
    assert ("default", "a") in recorded()


def test_threads_that_write_first_agree_on_one_record(database: Any):
    def write(number: int) -> None:
        try:
            with transaction.atomic():
                Customer.objects.create(notes=f"{number}")
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, range(12)))
    assert KeyFingerprint.objects.filter(ring="default").count() == 1
    assert Customer.objects.count() == 12


def test_without_the_table_the_error_says_what_to_run(rings: Any):
    table = KeyFingerprint._meta.db_table
    KeyFingerprint._meta.db_table = "not_migrated"
    try:
        with pytest.raises(EncryptionError, match="Run migrate for django_outbox_encryption"):
            Customer.objects.create(notes="x")
    finally:
        KeyFingerprint._meta.db_table = table
