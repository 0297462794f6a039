"""``outbox_reencrypt``: give every sealed value the primary key."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_outbox.encryption import rotation
from django_outbox.encryption.exceptions import EncryptionError

#: How many failed rows are named; the rest is counted.
_NAMED = 20


class Command(BaseCommand):
    """Parses, calls and prints. May be stopped at any moment and started again."""

    help = (
        "Seal every value under the primary key, clear values of ALLOW_PLAINTEXT fields too. Safe"
        " while the system runs; fails while one value is left."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What, where, and how gently."""
        parser.add_argument(
            "sources",
            nargs="*",
            metavar="SOURCE",
            help="app.model.field, app.model, app, or a registered source; everything unless given",
        )
        parser.add_argument("--index", action="store_true", help="new blind-index tags too")
        parser.add_argument("--dry-run", action="store_true", help="open and count, write nothing")
        parser.add_argument(
            "--database", choices=list(connections), help="one database alias; all unless given"
        )
        parser.add_argument("--batch-size", type=int, default=500, help="rows a transaction (500)")
        parser.add_argument(
            "--pause", type=float, default=0.0, help="seconds to wait between batches (0)"
        )

    def handle(self, *args: Any, sources: list[str], **options: Any) -> None:
        """Run each source on each database; fail if anything is left."""
        if options["batch_size"] < 1 or options["pause"] < 0:
            raise CommandError("--batch-size must be at least 1, and --pause not below 0.")
        left = 0
        for source in _selected(sources):
            for using in source.databases():
                asked = options["database"] or using
                if rotation.place_of(asked) == rotation.place_of(using):
                    task = rotation.Task(
                        using=asked,
                        index=options["index"],
                        dry_run=options["dry_run"],
                        limit=options["batch_size"],
                        pause=timedelta(seconds=options["pause"]),
                    )
                    left += self.run(source, task, options["verbosity"])
        if left and not options["dry_run"]:
            raise CommandError(f"Not done: {left:,} values are left. They are named above.")

    def run(self, source: rotation.Source, task: rotation.Task, verbosity: int) -> int:
        """One source on one database. Returns how many values are left."""

        def report(step: rotation.Step) -> None:
            if verbosity > 1:
                self.stdout.write(f"  up to {step.after}: {step.changed:,} sealed")

        try:
            outcome = rotation.reencrypt(source, task, report)
        except EncryptionError as error:
            raise CommandError(f"{source.name}: {error}") from None
        verb = "would be sealed anew" if task.dry_run else "sealed anew"
        self.stdout.write(
            f"{source.name} ({task.using}): {outcome.changed:,} {verb}, {outcome.left:,} left"
        )
        for pk, reason in list(outcome.failures.items())[:_NAMED]:
            self.stderr.write(f"  pk {pk}: {reason}")
        if len(outcome.failures) > _NAMED:
            self.stderr.write(f"  and {len(outcome.failures) - _NAMED:,} more")
        return outcome.left


def _selected(names: list[str]) -> list[rotation.Source]:
    sources = rotation.sources()
    if not names:
        return sources
    chosen: list[rotation.Source] = []
    for name in names:
        wanted = name.lower()
        found = [s for s in sources if s.name == wanted or s.name.startswith(f"{wanted}.")]
        if not found:
            known = ", ".join(source.name for source in sources)
            raise CommandError(f"{name!r} holds no sealed values. Sources: {known}.")
        chosen += [source for source in found if source not in chosen]
    return chosen
