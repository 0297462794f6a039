"""``manage.py outbox_topology``: make the exchanges and queues of ``OUTBOX["TOPOLOGY"]`` exist."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.brokers.rabbitmq.declare import BrokerUnavailable, Finding, State, declare
from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.brokers.rabbitmq.topology import Binding, Exchange, Item
from django_outbox.brokers.rabbitmq.topology_options import connection_settings, topology
from django_outbox.exceptions import ImproperlyConfiguredOutbox

_WORDS = {
    State.EXISTS: "exists",
    State.CREATED: "created",
    State.MISSING: "missing",
    State.BOUND: "bound",
    State.UNKNOWN: "to bind",
    State.CONFLICT: "CONFLICT",
    State.REFUSED: "REFUSED",
}


class Command(BaseCommand):
    """Declare, compare, report. Exits with an error where something contradicts the settings."""

    help = (
        "Declares the exchanges, queues and bindings of OUTBOX['TOPOLOGY']. Idempotent: what exists"
        " is compared and never changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="Only say what is missing or contradicts."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        connection, problems = read_connection_options(*connection_settings())
        if connection is None:
            raise CommandError("\n".join(f"{problem} {hint}" for problem, hint in problems))
        bad = 0
        try:
            for finding in declare(topology(), connection, dry_run=options["dry_run"]):
                self.stdout.write(_line(finding))
                bad += finding.is_bad
        except (BrokerUnavailable, ImproperlyConfiguredOutbox) as error:
            raise CommandError(str(error)) from error
        if bad:
            raise CommandError(
                f"{bad} of them could not be made as configured and were left as they are. A queue's"
                " arguments cannot be changed: empty and delete it, or give the new one another name."
            )


def _line(finding: Finding) -> str:
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{_WORDS[finding.state]:<9} {_name(finding.item)}{reason}"


def _name(item: Item) -> str:
    if isinstance(item, Binding):
        return f"binding   {item.source} --{item.key}--> {item.destination}"
    return f"{'exchange' if isinstance(item, Exchange) else 'queue':<9} {item.name}"
