"""``manage.py outbox_relay``: publish what the outbox holds."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connections

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.databases import database_for, outbox_alias
from django_outbox.databases.errors import is_unmigrated, may_pass
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.management.console_log import console_log, quiet_pika
from django_outbox.management.metrics_port import add_metrics_arguments, metrics_port
from django_outbox.publishers.registry import close_publishers, publisher_for
from django_outbox.relay.loop import Relay
from django_outbox.relay.sd_notify import ServiceManager
from django_outbox.relay.shutdown import Stop, stop_on_signals
from django_outbox.relay.vitals import LivenessFile, ReadinessFile, Watcher
from django_outbox.topics import EVERY_TOPIC, TopicSelection, pattern_regex


class Command(BaseCommand):
    help = (
        "Publish the outbox's messages until SIGTERM or SIGINT. Any number of relays work side by"
        " side. With --once: publish what is due, then exit, with 0 where no attempt failed."
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
            "--liveness-file",
            type=Path,
            metavar="PATH",
            help="touched while the relay's loop goes round, removed at the end",
        )
        parser.add_argument(
            "--readiness-file",
            type=Path,
            metavar="PATH",
            help="there while the database and every broker are reached",
        )
        add_metrics_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with (
                console_log(self.stderr, options["verbosity"]),
                quiet_pika(),
                metrics_port(options),
                stop_on_signals() as stop,
                _watchers(options) as watchers,
            ):
                relay = Relay(
                    database_for(_alias(options["database"])),
                    _settings(options["batch_size"]),
                    topics=_topics(options["topics"]),
                    watcher=lambda condition: [watch(condition) for watch in watchers],
                )
                if options["once"]:
                    self._drain(relay, stop)
                else:
                    relay.run(stop)
        except ImproperlyConfiguredOutbox as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise _explained(error) from error
        finally:
            close_publishers()

    def _drain(self, relay: Relay, stop: Stop) -> None:
        totals = relay.drain(stop=stop)
        self.stdout.write(f"{totals}." if totals.claimed else "Nothing was claimed.")
        if stop.is_set:
            raise CommandError(f"Stopped by {stop.reason} before everything was published.")
        if not totals.is_clean or relay.is_any_broker_down:
            raise CommandError("Not everything that was due is published; see the log.")


@contextmanager
def _watchers(options: Mapping[str, Any]) -> Iterator[list[Watcher]]:
    """Who is told how the relay is: the files that were asked for, and the service manager."""
    watchers: list[Watcher] = []
    with ExitStack() as stack:
        settings = outbox_settings()
        if options["liveness_file"]:
            liveness = LivenessFile(options["liveness_file"])
            stack.callback(liveness.close)
            watchers.append(liveness)
        if options["readiness_file"]:
            routed = {route.publisher for route in settings.routes.routes}
            publishers = {alias: publisher_for(alias) for alias in sorted(routed)}
            readiness = ReadinessFile(options["readiness_file"], publishers)
            stack.callback(readiness.close)
            watchers.append(readiness)
        manager = ServiceManager.from_environment(
            os.environ, max(settings.lease, settings.breaker_cap)
        )
        if manager is not None:
            watchers.append(manager)
        yield watchers


def _explained(error: DatabaseError) -> Exception:
    """What people can act on, where it is known; else the error as it is."""
    if is_unmigrated(error):
        return CommandError(
            "The outbox's tables are not there, or not as new as the code: migrate."
        )
    if may_pass(error):
        kind = type(error.__cause__ or error).__name__
        return CommandError(f"The database does not let the relay work now ({kind}).")
    return error


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
