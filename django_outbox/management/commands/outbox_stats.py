"""``manage.py outbox_stats``: how the outbox is doing, for people, cron and probes."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import timedelta
from time import sleep
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_outbox.management.stats_text import stats_text
from django_outbox.management.times import duration, spoken
from django_outbox.operations.stats import Stats, collect_stats

#: The exit status where a message has been due for too long.
TOO_OLD: Final = 2
_CLEAR: Final = "\x1b[H\x1b[2J"


class Command(BaseCommand):
    """Counts by state, age, pace, failures, relays. Reads little, however large the table is."""

    help = (
        "Shows how the outbox is doing. With --max-age, exits with 2 where a message has been due for"
        " longer: for cron and probes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object a line.")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=float,
            const=2.0,
            metavar="SECONDS",
            help="Again every so many seconds, by default 2, until interrupted.",
        )
        parser.add_argument(
            "--max-age",
            type=duration,
            metavar="DURATION",
            help="How long a message may be due: 90s, 15m, 2h.",
        )
        parser.add_argument("--database", help="The alias of the outbox's database.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias, seconds = options["database"], options["watch"]
        if alias is not None and alias not in connections:
            raise CommandError(f"DATABASES has no {alias!r}. It has: {', '.join(connections)}.")
        if seconds is not None and seconds <= 0:
            raise CommandError("--watch takes a number of seconds above 0.")
        stats = self._show(alias, options)
        try:
            while seconds is not None:
                sleep(seconds)
                stats = self._show(alias, options)
        except KeyboardInterrupt:
            self.stdout.write("")
        _judge(stats, options["max_age"])

    def _show(self, alias: str | None, options: dict[str, Any]) -> Stats:
        stats = collect_stats(database=alias)
        if options["json"]:
            self.stdout.write(json.dumps(stats.as_json()))
        else:
            if options["watch"] is not None and self.stdout.isatty():
                self.stdout.write(_CLEAR, ending="")
            self.stdout.write(stats_text(stats))
        self.stdout.flush()
        return stats


def _judge(stats: Stats, max_age: timedelta | None) -> None:
    if max_age is not None and stats.oldest_due is not None and stats.oldest_due > max_age:
        raise CommandError(
            f"A message has been due for {spoken(stats.oldest_due)}, longer than {spoken(max_age)}.",
            returncode=TOO_OLD,
        )
