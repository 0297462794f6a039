"""``manage.py outbox_prune``: delete what is settled and older than its retention."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.exceptions import OutboxError
from django_outbox.operations.prune import Pruned, prune


class Command(BaseCommand):
    """Prints how many rows of each kind were deleted."""

    help = "Deletes messages, inbox rows and stored responses older than OUTBOX['RETENTION']."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only count what is due.")
        parser.add_argument(
            "--max-seconds", type=float, default=None, help="Begin nothing new after that long."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            pruned = prune(max_seconds=options["max_seconds"], dry_run=options["dry_run"])
        except OutboxError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(_report(pruned, "Due" if options["dry_run"] else "Deleted"))
        if pruned.partitions:
            verb = "are done with" if options["dry_run"] else "were dropped"
            self.stdout.write(f"Whole months that {verb}: {pruned.partitions}.")
        if pruned.others_at_work:
            self.stderr.write("Another pruner is at work; its database was left to it.")
        if not pruned.is_complete:
            self.stderr.write("Time was up: more is due.")


def _report(pruned: Pruned, verb: str) -> str:
    return (
        f"{verb}: {pruned.published} published, {pruned.discarded} discarded, {pruned.dead} dead;"
        f" {pruned.processed} inbox rows, {pruned.external_calls} external calls,"
        f" {pruned.responses} stored responses."
    )
