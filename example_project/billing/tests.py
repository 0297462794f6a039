"""What billing promises: a change and its event exist together, or neither does."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.contrib.auth.models import User
from django.db import transaction
from django.test import TestCase
from django.urls import reverse

from django_outbox.testing import OutboxTestMixin
from example_project.billing.models import Customer, Invoice
from example_project.billing.services import (
    WrongState,
    draw_up_invoice,
    issue_invoice,
    record_payment,
)


class InvoiceTests(OutboxTestMixin, TestCase):
    draft: ClassVar[Invoice]

    @classmethod
    def setUpTestData(cls) -> None:
        customer = Customer.objects.create(name="Ada Example", email="ada@example.com")
        cls.draft = draw_up_invoice(customer, [("Consulting", 2, Decimal("60.00"))])

    def test_a_draft_is_nobodys_business(self) -> None:
        self.outbox.assert_nothing_enqueued()

    def test_an_issued_invoice_has_a_number_and_an_event(self) -> None:
        invoice = issue_invoice(self.draft.pk)
        self.assertEqual((invoice.state, invoice.total), ("issued", Decimal("120.00")))
        message = self.outbox.assert_enqueued(
            "invoice.issued", {"number": invoice.number, "total": "120.00"}, count=1
        )
        self.assertEqual(message.aggregate_id, str(invoice.pk))
        self.assertEqual(message.sequence, 1)

    def test_the_versions_of_an_invoice_count_its_events(self) -> None:
        issue_invoice(self.draft.pk)
        record_payment(self.draft.pk)
        self.assertEqual([message.sequence for message in self.outbox.messages], [1, 2])

    def test_an_invoice_is_issued_once(self) -> None:
        issue_invoice(self.draft.pk)
        with self.assertRaises(WrongState):
            issue_invoice(self.draft.pk)
        self.outbox.assert_enqueued("invoice.issued", count=1)

    def test_a_rollback_takes_the_event_along(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            issue_invoice(self.draft.pk)
            1 / 0  # noqa: B018 - what fails does not matter
        self.draft.refresh_from_db()
        self.assertEqual(self.draft.state, "draft")
        self.outbox.assert_nothing_enqueued()

    def test_the_admin_issues_through_the_service(self) -> None:
        self.client.force_login(User.objects.create_superuser("admin"))
        chosen = {"action": "issue", "_selected_action": [self.draft.pk]}
        response = self.client.post(reverse("admin:billing_invoice_changelist"), chosen)
        self.assertEqual(response.status_code, 302)
        self.outbox.assert_enqueued("invoice.issued", count=1)
