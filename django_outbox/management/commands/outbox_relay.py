"""``manage.py outbox_relay``: publish what the outbox holds."""

from __future__ import annotations

import logging
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.databases import database_for, outbox_alias
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.registry import close_publishers
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import stop_on_signals
from django_outbox.topics import EVERY_TOPIC, TopicSelection, pattern_regex

_LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


class Command(BaseCommand):
    help = (
        "Publish the outbox's messages until SIGTERM or SIGINT. Any number of relays work side by"
        " side. With --once: publish what is due and exit with 0 when nothing was left behind."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="drain what is due, then exit")
        parser.add_argument("--database", help="the alias of the outbox's database")
        parser.add_argument("--batch-size", type=int, help="rows in one claim")
        parser.add_argument(
            "--topics",
            nargs="+",
            default=[],
            metavar="PATTERN",
            help="only these topics: 'invoice.*' for one word, 'invoice.#' for any",
        )
        parser.add_argument(
            "--liveness-file", type=Path, help="touched at every healthy turn, removed at the end"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self._log_to_the_console(options["verbosity"])
        liveness: Path | None = options["liveness_file"]
        try:
            relay = Relay(
                database_for(_alias(options["database"])),
                _settings(options["batch_size"]),
                topics=_topics(options["topics"]),
                on_turn=liveness.touch if liveness else lambda: None,
            )
            if options["once"]:
                self._drain(relay)
            else:
                with stop_on_signals() as stop:
                    relay.run(stop)
        except ImproperlyConfiguredOutbox as error:
            raise CommandError(str(error)) from error
        finally:
            close_publishers()
            if liveness:
                liveness.unlink(missing_ok=True)

    def _drain(self, relay: Relay) -> None:
        totals = relay.drain()
        self.stdout.write(f"{totals}.")
        if not totals.is_clean or relay.is_any_broker_down:
            raise CommandError(
                "Not everything that was due is published; see the log.", returncode=1
            )

    def _log_to_the_console(self, verbosity: int) -> None:
        # Where the project logs django_outbox itself, its configuration stands.
        logger = logging.getLogger("django_outbox")
        if logger.hasHandlers():
            return
        handler = logging.StreamHandler(self.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(_LEVELS[verbosity])


def _alias(database: str | None) -> str:
    alias = database or outbox_alias()
    if alias not in connections:
        raise CommandError(f"DATABASES has no {alias!r}. It has: {', '.join(connections)}.")
    return alias


def _settings(batch_size: int | None) -> OutboxSettings:
    settings = outbox_settings()
    if batch_size is None:
        return settings
    if batch_size < 1:
        raise CommandError("--batch-size must be a number above 0.")
    return replace(settings, batch_size=batch_size)


def _topics(patterns: list[str]) -> TopicSelection:
    try:
        for pattern in patterns:
            pattern_regex(pattern)
    except ValueError as error:
        raise CommandError(f"--topics: {error}") from None
    return TopicSelection.only(patterns) if patterns else EVERY_TOPIC
