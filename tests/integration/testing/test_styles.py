"""The helpers in the styles of test that projects write: TestCase, TransactionTestCase, pytest."""

from __future__ import annotations

import subprocess
import sys
import unittest

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from django_outbox import enqueue
from django_outbox.consumers.registry import consumer, isolated_registry
from django_outbox.exceptions import NotInTransaction
from django_outbox.models import OutboxMessage
from django_outbox.publishers import locmem
from django_outbox.testing import OutboxTestMixin
from tests.conftest import EVERY_DATABASE
from tests.testapp.models import Invoice, LedgerEntry


def issue():
    with transaction.atomic():
        invoice = Invoice.objects.create(number="2026-1")
        enqueue("invoice.issued", {"invoice_id": invoice.pk})


class WithTestCase(OutboxTestMixin, TestCase):
    def test_an_event_is_asserted_and_handled_inside_of_the_transaction(self):
        assert connection.in_atomic_block
        issue()
        self.outbox.assert_enqueued("invoice.issued", payload={})
        with isolated_registry():

            @consumer("invoice.issued", name="ledger")
            def book(message):
                LedgerEntry.objects.create(account="a", reference="b")

            self.outbox.drain()
        assert LedgerEntry.objects.count() == 1

    def test_a_rolled_back_block_leaves_nothing(self):
        with transaction.atomic():
            enqueue("a.b", {})
            transaction.set_rollback(True)
        self.outbox.assert_nothing_enqueued()

    def test_a_durable_block_may_enqueue(self):
        with transaction.atomic(durable=True):
            enqueue("a.b", {})
        self.outbox.assert_enqueued("a.b", count=1)

    def test_the_transaction_of_the_test_itself_is_enough(self):
        enqueue("a.b", {})
        self.outbox.assert_enqueued("a.b")

    def test_callbacks_run_by_hand_are_inside_of_it_as_well(self):
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: enqueue("a.b", {}))
        self.outbox.assert_enqueued("a.b")

    def test_each_test_begins_with_an_empty_outbox(self):
        self.outbox.assert_nothing_enqueued()
        assert locmem.outbox == []


class WithTransactionTestCase(OutboxTestMixin, TransactionTestCase):
    def test_an_event_is_asserted_and_published(self):
        issue()
        assert not connection.in_atomic_block
        self.outbox.assert_enqueued("invoice.issued")
        assert len(self.outbox.drain()) == 1

    def test_a_missing_transaction_shows(self):
        with self.assertRaises(NotInTransaction):  # noqa: PT027 - the style of this class
            enqueue("a.b", {})
        self.outbox.assert_nothing_enqueued()


# They run by the tests below, on each database; pytest would run them once.
WithTestCase.__test__ = WithTransactionTestCase.__test__ = False


@pytest.mark.parametrize("case", [WithTestCase, WithTransactionTestCase])
@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_the_mixin_works_in_both_classes_of_django(case, database):
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun >= 2
    assert [trace for _, trace in result.failures + result.errors] == []
    assert OutboxMessage.objects.count() == 0


def test_the_fixture_works_inside_of_the_transaction_of_a_test(outbox):
    assert connection.in_atomic_block
    issue()
    outbox.assert_enqueued("invoice.issued")
    assert len(outbox.drain()) == 1


@pytest.mark.django_db(transaction=True)
def test_the_fixture_works_with_real_transactions(outbox):
    assert not connection.in_atomic_block
    issue()
    with pytest.raises(NotInTransaction):
        enqueue("a.b", {})
    outbox.assert_enqueued("invoice.issued", count=1)
    assert len(outbox.drain()) == 1


def test_the_fixture_empties_what_an_earlier_test_has_published(request):
    locmem.outbox.append(object())
    request.getfixturevalue("outbox").assert_nothing_enqueued()
    assert locmem.outbox == []


def test_the_plugin_loads_before_django_does(pytestconfig):
    """pytest imports it in projects whose settings are not read yet, and in some without any."""
    code = "import sys, django_outbox.pytest_plugin; print('django' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
    assert pytestconfig.pluginmanager.hasplugin("django_outbox")
