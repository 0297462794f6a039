"""Django's ``loaddata``, taking encrypted fields as tokens where a dump has them so."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.commands.loaddata import Command as LoadData

from django_outbox.encryption.stored import stored_values


class Command(LoadData):
    """A token is opened to prove that it belongs there and written as it is; clear text is sealed."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's, and ``--plaintext``."""
        super().add_arguments(parser)
        parser.add_argument(
            "--plaintext",
            action="store_true",
            help="Take every value of an encrypted field as clear text, tokens too.",
        )

    def handle(self, *fixture_labels: Any, plaintext: bool = False, **options: Any) -> Any:
        """Load inside ``stored_values()`` unless all values are said to be clear."""
        with nullcontext() if plaintext else stored_values():
            return super().handle(*fixture_labels, **options)
