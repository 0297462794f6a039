from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """The consumer: books what billing reports."""

    name = "example_project.ledger"
    label = "ledger"
