from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox.encryption.admin import BlindSearchMixin
from example_project.billing.models import Customer, Invoice, InvoiceLine
from example_project.billing.services import WrongState, issue_invoice, record_payment


@admin.register(Customer)
class CustomerAdmin(BlindSearchMixin, admin.ModelAdmin):
    """Customers are found by their whole tax number: the other columns say nothing to a search."""

    list_display = ["__str__", "name", "email"]
    blind_search_fields = ["tax_id"]
    sortable_by = ["__str__"]


class InvoiceLineInline(admin.TabularInline):
    model = InvoiceLine
    extra = 1


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    """Drafts can be edited; what happens to them afterwards goes through the service functions."""

    list_display = ["__str__", "customer", "state", "total", "currency", "issued_on"]
    list_filter = ["state"]
    list_select_related = ["customer"]
    inlines = [InvoiceLineInline]
    readonly_fields = ["number", "state", "total", "issued_on"]
    actions = ["issue", "pay"]

    def has_change_permission(self, request: HttpRequest, obj: Invoice | None = None) -> bool:
        is_open = obj is None or obj.state == Invoice.State.DRAFT
        return is_open and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Invoice | None = None) -> bool:
        is_open = obj is not None and obj.state == Invoice.State.DRAFT
        return is_open and super().has_delete_permission(request, obj)

    @admin.action(description=_("Issue selected invoices"), permissions=["change"])
    def issue(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> None:
        self._each(request, queryset, issue_invoice)

    @admin.action(description=_("Record payment of selected invoices"), permissions=["change"])
    def pay(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> None:
        self._each(request, queryset, record_payment)

    def _each(
        self, request: HttpRequest, queryset: QuerySet[Invoice], step: Callable[[int], Invoice]
    ) -> None:
        """One transaction an invoice: one that cannot take the step holds up no other."""
        for pk in queryset.values_list("pk", flat=True):
            try:
                self.message_user(request, f"{step(pk)}: {step.__name__}", messages.SUCCESS)
            except WrongState as refused:
                self.message_user(request, str(refused), messages.ERROR)
