"""``manage.py outbox_consume``: receive events from RabbitMQ until told to stop."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.brokers.rabbitmq.topology_options import connection_settings, topology
from django_outbox.consumers.intake import Intake
from django_outbox.consumers.rabbitmq import QueueConsumer
from django_outbox.consumers.registry import Consumer, all_consumers, consumer_named
from django_outbox.exceptions import OutboxError
from django_outbox.relay.shutdown import stop_on_signals


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

    def handle(self, *args: Any, **options: Any) -> None:
        connection, problems = read_connection_options(*connection_settings())
        if connection is None:
            raise CommandError("\n".join(f"{problem} {hint}" for problem, hint in problems))
        if not 1 <= options["prefetch"] <= 65_535:
            raise CommandError("--prefetch must be between 1 and 65,535.")
        try:
            intake = Intake(
                queues=tuple(options["queue"]),
                consumers=_consumers(options["consumers"]),
                topology=topology(),
                connection=connection,
                prefetch=options["prefetch"],
            )
            names = ", ".join(consumer.name for consumer in intake.consumers)
            self.stderr.write(f"Receiving from {', '.join(intake.consumed)} for {names}.")
            with stop_on_signals() as stop:
                QueueConsumer(intake).run(stop)
        except OutboxError as error:
            raise CommandError(str(error)) from error


def _consumers(names: str) -> tuple[Consumer, ...]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    found = [consumer_named(name) for name in wanted] if wanted else all_consumers()
    if not found:
        raise CommandError("No consumer is declared. Declare one by @consumer in a consumers.py.")
    return tuple(found)
