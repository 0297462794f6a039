"""``manage.py outbox_discard``: set messages aside for good."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django_outbox.management.selecting import SelectionCommand
from django_outbox.models import Status
from django_outbox.operations.discard import discard
from django_outbox.operations.selection import Selection


class Command(SelectionCommand):
    """Dead, and where asked for pending, to discarded."""

    help = (
        "Discards dead messages, and with --status pending those that nobody shall receive. What they"
        " held back goes on."
    )
    statuses = (Status.DEAD, Status.PENDING)
    verb, done = "discard", "Discarded"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--reason", default="", help="Kept with the messages. Write no personal data into it."
        )

    def work(
        self, selection: Selection, progress: Callable[[int], object], options: dict[str, Any]
    ) -> tuple[int, int]:
        done = discard(selection.messages(), reason=options["reason"], progress=progress)
        return done.discarded, done.in_flight
