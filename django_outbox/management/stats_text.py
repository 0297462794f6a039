"""The stats as plain text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.utils import timezone

from django_outbox.databases.clock import as_utc
from django_outbox.management.times import spoken
from django_outbox.operations.stats import FailureGroup, RelaySeen, Stats

_WIDTH: Final = 80
#: In the order of a message's life, with what each means to people.
_STATES: Final = {
    "ready": "due, never tried",
    "scheduled": "due later",
    "retrying": "failed, to be tried again",
    "in_flight": "a relay is publishing them",
    "blocked": "of these, behind an earlier one of their aggregate",
    "dead": "given up: requeue or discard them",
    "published": "kept by RETENTION",
    "discarded": "set aside",
}


def stats_text(stats: Stats) -> str:
    """A few lines for a terminal."""
    return "\n".join([*_head(stats), "", *_counts(stats), *_failures(stats), *_relays(stats)])


def _head(stats: Stats) -> Iterator[str]:
    yield f"Outbox at {_local(stats.taken_at)}"
    due = stats.oldest_due
    yield f"  oldest due    {'nothing is due' if due is None else f'{spoken(due)} ago'}"
    rate = stats.published_per_minute
    yield f"  published     {'not known: rows are deleted' if rate is None else f'{rate:,.0f} a minute'}"
    if stats.latency is not None:
        median, p99 = spoken(stats.latency.median), spoken(stats.latency.p99)
        yield f"  latency       {median} median, {p99} p99"
    if stats.broker_down:
        yield f"  broker down   {', '.join(stats.broker_down)}: its messages wait, no attempt is charged"


def _counts(stats: Stats) -> Iterator[str]:
    for state, meaning in _STATES.items():
        count = stats.counts[state]
        number = f"~{count.number:,}" if count.is_estimate else f"{count.number:,}"
        yield f"{number:>14}  {state.replace('_', ' '):<10}  {meaning}"


def _failures(stats: Stats) -> Iterator[str]:
    if stats.failures:
        yield ""
        yield "Failures"
    for group in stats.failures:
        yield from _failure(group)


def _failure(group: FailureGroup) -> Iterator[str]:
    number = f"~{group.count:,}" if group.is_estimate else f"{group.count:,}"
    state = "dead" if group.status == "dead" else "retrying"
    yield f"{number:>14}  {state:<10}  {group.topic}"[:_WIDTH]
    error = group.error or "no relay came back to say why"
    yield " " * 16 + textwrap.shorten(error, _WIDTH - 16, placeholder=" …")


def _relays(stats: Stats) -> Iterator[str]:
    yield ""
    alive = [relay for relay in stats.relays if relay.is_alive]
    yield f"Relays: {len(alive)} at work" if alive else "Relays: none at work. Start outbox_relay."
    for relay in alive:
        yield from _relay(relay)


def _relay(relay: RelaySeen) -> Iterator[str]:
    yield f"  {relay.name}, since {_local(relay.started_at)}"[:_WIDTH]
    for alias, reason in relay.open_breakers.items():
        yield textwrap.shorten(f"    {alias} is down: {reason}", _WIDTH, placeholder=" …")


def _local(moment: datetime) -> str:
    return f"{timezone.localtime(as_utc(moment)):%Y-%m-%d %H:%M:%S %Z}"
