"""Django's ``dumpdata``, with encrypted fields as their tokens."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.commands.dumpdata import Command as DumpData

from django_outbox.encryption.stored import stored_values


class Command(DumpData):
    """Dumps hold tokens, unopened, so that no key is needed and nothing leaks."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's, and ``--plaintext``."""
        super().add_arguments(parser)
        parser.add_argument(
            "--plaintext",
            action="store_true",
            help="Open encrypted fields and dump their values in clear.",
        )

    def handle(self, *app_labels: Any, plaintext: bool = False, **options: Any) -> Any:
        """Dump inside ``stored_values()`` unless clear values were asked for."""
        with nullcontext() if plaintext else stored_values():
            return super().handle(*app_labels, **options)
