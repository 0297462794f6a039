"""What ``outbox_requeue``, ``outbox_discard`` and ``outbox_replay`` have in common."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db.models import Count
from django.db.models.functions import Left

from django_outbox.exceptions import OutboxError
from django_outbox.logs import messages_in_words
from django_outbox.management.filters import add_filters, selection_from
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.selection import Selection

#: The exit status where some of the chosen messages were in flight and left alone.
LEFT_ALONE = 3
#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: Lines that --dry-run shows of what the messages are.
_KINDS = 10
#: Seconds between two lines of progress where the output is no terminal.
_PROGRESS = 10.0


class SelectionCommand(BaseCommand):
    """Chooses messages, says of how many it is about, and does one thing to them in chunks."""

    statuses: ClassVar[Sequence[Status]]
    """What can be chosen; the first by default."""
    verb: ClassVar[str]
    done: ClassVar[str]

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_filters(parser, self.statuses)
        parser.add_argument(
            "--dry-run", action="store_true", help="Only say how many messages, and of what."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            selection = selection_from(options, self.statuses)
            if options["dry_run"]:
                self._preview(selection)
                return
            with ProgressLine(self.stderr, options["verbosity"]) as progress:
                changed, in_flight = self.work(selection, progress, options)
        except OutboxError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError(
                "Interrupted. What was done stays done.", returncode=INTERRUPTED
            ) from None
        self.stdout.write(
            f"{self.done} {messages_in_words(changed)} ({selection.describe()})."
            if changed or in_flight
            else f"Nothing to {self.verb}: no message matches ({selection.describe()})."
        )
        if in_flight:
            raise CommandError(
                f"{messages_in_words(in_flight)} in flight and left alone: a relay is publishing them. Run"
                " this again in a moment.",
                returncode=LEFT_ALONE,
            )

    def work(
        self, selection: Selection, progress: Callable[[int], object], options: dict[str, Any]
    ) -> tuple[int, int]:
        """Do it; returns how many were changed, and how many were left alone because in flight."""
        raise NotImplementedError

    def _preview(self, selection: Selection) -> None:
        messages = selection.messages()
        self.stdout.write(
            f"Would {self.verb} {messages_in_words(messages.count())} ({selection.describe()})."
        )
        for line in _kinds(messages):
            self.stdout.write(line)


class ProgressLine:
    """How many messages were looked at so far, on one line of a terminal or now and then elsewhere."""

    def __init__(self, stream: OutputWrapper, verbosity: int) -> None:
        self._stream = stream
        self._is_quiet = verbosity == 0
        self._is_terminal = stream.isatty()
        self._next = monotonic() + (0.5 if self._is_terminal else _PROGRESS)
        self._has_written = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._has_written and self._is_terminal:
            self._stream.write("")

    def __call__(self, seen: int) -> None:
        if self._is_quiet or monotonic() < self._next:
            return
        self._has_written = True
        if self._is_terminal:
            self._next = monotonic() + 0.2
            self._stream.write(f"\r{messages_in_words(seen)} …", ending="")
            self._stream.flush()
        else:
            self._next = monotonic() + _PROGRESS
            self._stream.write(f"{messages_in_words(seen)} so far.")


def _kinds(messages: OutboxMessageQuerySet) -> list[str]:
    """The largest groups of one status, topic and error."""
    kinds = messages.annotate(head=Left("last_error", 60)).order_by()
    groups = kinds.values("status", "topic", "head").annotate(number=Count("id"))
    found = list(groups.order_by("-number", "topic")[: _KINDS + 1])
    lines = [
        f"{each['number']:>10,}  {each['status']:<9}  {each['topic']}  {_first_line(each['head'])}"
        for each in found[:_KINDS]
    ]
    return [*(line.rstrip() for line in lines), *(["            …"] if len(found) > _KINDS else [])]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
