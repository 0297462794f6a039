"""The options by which people choose messages, the same in every command."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from django_outbox.databases import outbox_alias
from django_outbox.databases.clock import read_clock
from django_outbox.management.times import moment_or_age
from django_outbox.models import Status
from django_outbox.operations.selection import Selection

_OPTIONS = ("topic", "aggregate", "error", "since", "until", "message_ids", "correlation_id")


def add_filters(parser: ArgumentParser, statuses: Sequence[Status] = ()) -> None:
    """Add the options; ``--status`` with these choices, the first being the default, where there are two."""
    group = parser.add_argument_group(
        "which messages", "Several options narrow the choice together; several values widen it."
    )
    if len(statuses) > 1:
        group.add_argument(
            "--status",
            action="append",
            choices=[status.value for status in statuses],
            help=f"May be given several times. Default: {statuses[0].value}.",
        )
    group.add_argument(
        "--topic",
        action="append",
        metavar="PATTERN",
        help="A topic, or a pattern: 'invoice.*' for one word, 'invoice.#' for any.",
    )
    group.add_argument(
        "--aggregate", metavar="TYPE[:ID]", help="Of one aggregate, or of one type of them."
    )
    group.add_argument("--error", metavar="TEXT", help="Contained in the last error.")
    group.add_argument(
        "--since",
        type=moment_or_age,
        metavar="TIME",
        help="Enqueued then or later: an ISO time, or an age as 2h or 3d.",
    )
    group.add_argument(
        "--until", type=moment_or_age, metavar="TIME", help="Enqueued before then; as --since."
    )
    group.add_argument(
        "--id",
        nargs="+",
        action="extend",
        type=UUID,
        metavar="MESSAGE_ID",
        dest="message_ids",
        help="Message ids.",
    )
    group.add_argument("--correlation-id", metavar="ID", help="With this correlation id.")
    group.add_argument("--all", action="store_true", help="Every one of them, without any filter.")


def selection_from(options: Mapping[str, Any], statuses: Sequence[Status]) -> Selection:
    """The messages that the options choose. Raises ``CommandError`` where they say nothing or too much."""
    _refuse_empty(options)
    given = [name for name in _OPTIONS if options.get(name)]
    if options["all"] and given:
        raise CommandError("--all is for every message: leave it out, or leave out the filters.")
    if not options["all"] and not given:
        raise CommandError(
            "Which messages? Give a filter (--topic, --aggregate, --error, --since, --until, --id,"
            " --correlation-id), or --all. --dry-run shows what would be done."
        )
    type_, _, id_ = (options["aggregate"] or "").partition(":")
    chosen = options.get("status") or [statuses[0]]
    try:
        return Selection(
            statuses=frozenset(Status(status) for status in chosen),
            topics=tuple(options["topic"] or ()),
            aggregate_type=type_,
            aggregate_id=id_,
            error=options["error"] or "",
            created_after=_moment(options["since"]),
            created_before=_moment(options["until"]),
            message_ids=tuple(options["message_ids"] or ()),
            correlation_id=options["correlation_id"] or "",
        )
    except ValueError as error:
        raise CommandError(f"--topic: {error}") from None


def _refuse_empty(options: Mapping[str, Any]) -> None:
    # Mostly a variable of a script that was not set: without the filter everything else would match.
    for name in ("error", "correlation_id"):
        if options[name] is not None and not options[name].strip():
            raise CommandError(
                f"--{name.replace('_', '-')} is empty: give a value, or leave it out."
            )
    aggregate = options["aggregate"]
    if aggregate is not None and (not aggregate.strip() or aggregate.rstrip().endswith(":")):
        what = f"{aggregate!r} has no id" if aggregate.strip() else "it is empty"
        raise CommandError(f"--aggregate: {what}. Write TYPE:ID, or TYPE for all of that type.")


def _moment(given: datetime | timedelta | None) -> datetime | None:
    # An age counts from the database's now, by which the messages were stamped.
    return read_clock(outbox_alias()) - given if isinstance(given, timedelta) else given
