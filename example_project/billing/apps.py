from django.apps import AppConfig


class BillingConfig(AppConfig):
    """The producer: customers and their invoices."""

    name = "example_project.billing"
    label = "billing"
