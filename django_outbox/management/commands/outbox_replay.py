"""``manage.py outbox_replay``: send published messages again."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from django_outbox.management.selecting import SelectionCommand
from django_outbox.models import Status
from django_outbox.operations.replay import replay
from django_outbox.operations.replay_to_consumer import replay_to_consumer
from django_outbox.operations.selection import Selection


class Command(SelectionCommand):
    """Published to pending; or, to one consumer alone, sent at once."""

    help = (
        "Sends published messages again, under the same message ids: to every consumer, through the"
        " relay, or with --new-consumer at once to that one's queue."
    )
    statuses = (Status.PUBLISHED,)
    verb, done = "replay", "Replayed"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--new-consumer",
            metavar="NAME",
            default="",
            help="Send only to this consumer, or to this task of Celery. The rows stay as they are.",
        )
        parser.add_argument(
            "--queue",
            metavar="QUEUE",
            default="",
            help="With --new-consumer: its queue, where OUTBOX['TOPOLOGY'] does not tell.",
        )

    def work(
        self, selection: Selection, progress: Callable[[int], object], options: dict[str, Any]
    ) -> tuple[int, int]:
        name, queue = options["new_consumer"], options["queue"]
        if not name:
            if queue:
                raise CommandError("--queue goes with --new-consumer NAME.")
            replayed = replay(selection.messages(), progress=progress)
            return replayed.replayed, replayed.in_flight
        sent = replay_to_consumer(selection.messages(), name, queue=queue, progress=progress)
        if sent.not_taken:
            self.stderr.write(f"{sent.not_taken:,} are of topics that {name!r} does not take.")
        return sent.sent, 0
