"""``manage.py outbox_schema``: hold the event types against a committed snapshot."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.event_types.compatibility import Snapshot, breaking_changes, snapshot
from django_outbox.event_types.registry import all_event_types


class Command(BaseCommand):
    help = "Write the snapshot of all event types, or find what breaks one that was published."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=["write", "check"])
        parser.add_argument(
            "--snapshot",
            type=Path,
            default=Path("event-types.json"),
            help="the committed file (default: event-types.json)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["snapshot"]
        current = snapshot(all_event_types())
        if options["action"] == "write":
            text = json.dumps(current, indent=2, ensure_ascii=False, sort_keys=True)
            path.write_text(text + "\n", encoding="utf-8")
            self.stdout.write(f"{path}: {len(current)} topics.")
            return
        broken = breaking_changes(_read(path), current)
        if broken:
            lines = "\n".join(f"  {change}" for change in broken)
            raise CommandError(
                f"A published event type has changed:\n{lines}\nRegister the new form as the next"
                " version, with an upcaster from this one."
            )
        self.stdout.write(f"No breaking change against {path}.")


def _read(path: Path) -> Snapshot:
    try:
        found: Snapshot = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommandError(f"There is no {path}: write it with 'outbox_schema write'.") from None
    except ValueError:
        raise CommandError(f"{path} is not JSON: write it anew from the released code.") from None
    return found
