"""``manage.py outbox_consume``: receive events from RabbitMQ until told to stop."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.consumers.intake import read_intake
from django_outbox.consumers.rabbitmq import QueueConsumer
from django_outbox.exceptions import OutboxError
from django_outbox.management.console_log import console_log, quiet_pika
from django_outbox.management.metrics_port import add_metrics_arguments, metrics_port
from django_outbox.relay.shutdown import stop_on_signals, stop_with_parent
from django_outbox.relay.vitals import LivenessFile


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; then the message at work is finished and acknowledged."""

    help = "Receives events from RabbitMQ and hands them to the consumers of this project."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            required=True,
            help="A queue to receive from; may be given several times.",
        )
        parser.add_argument(
            "--consumers",
            default="",
            help="Names of the consumers that take part, separated by commas. Default: all.",
        )
        parser.add_argument(
            "--prefetch",
            type=int,
            default=100,
            help="Messages that the broker hands over in advance, per queue. Default: 100.",
        )
        parser.add_argument(
            "--parent",
            type=int,
            default=None,
            metavar="PID",
            help="Stop when this process, which has started this one, has ended, and leave SIGINT to it.",
        )
        parser.add_argument(
            "--liveness-file",
            type=Path,
            metavar="PATH",
            help="Touched while the loop goes round, between two messages; removed at the end.",
        )
        add_metrics_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = [name.strip() for name in options["consumers"].split(",") if name.strip()]
        parent: int | None = options["parent"]
        try:
            intake = read_intake(options["queue"], wanted, options["prefetch"])
            names = ", ".join(consumer.name for consumer in intake.consumers)
            self.stderr.write(f"Receiving from {', '.join(intake.consumed)} for {names}.")
            with (
                console_log(self.stderr, options["verbosity"]),
                quiet_pika(),
                _liveness(options["liveness_file"]) as on_turn,
                metrics_port(options),
                stop_on_signals() if parent is None else stop_with_parent(parent) as stop,
            ):
                QueueConsumer(intake, on_turn).run(stop)
        except OutboxError as error:
            raise CommandError(str(error)) from error


@contextmanager
def _liveness(path: Path | None) -> Iterator[Callable[[], object]]:
    if path is None:
        yield lambda: None
        return
    liveness = LivenessFile(path)
    try:
        yield liveness
    finally:
        liveness.close()
