"""Whether somebody should look at the outbox: what health checks say, in a word and a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django_outbox.logs import messages_in_words
from django_outbox.operations.stats import Stats


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still well."""

    max_age: timedelta
    """How long a message may be due."""
    max_dead: int | None = None
    """How many messages may be dead; None: any number, somebody looks at them anyway."""
    require_relay: bool = True
    """Whether a relay has to be alive; False where Celery beat drains the outbox now and then."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong. Names no message and no host."""

    code: str
    """``too_old``, ``no_relay``, ``broker_down`` or ``dead``; ``database`` where nothing can be said."""
    text: str


def troubles(stats: Stats, limits: Limits) -> list[Trouble]:
    """What is wrong; empty where nothing is."""
    return list(_troubles(stats, limits))


def database_trouble(alias: str, error: Exception) -> Trouble:
    """The tables could not be read."""
    kind = type(error.__cause__ or error).__name__
    return Trouble("database", f"The outbox in the database {alias!r} cannot be read ({kind}).")


def _troubles(stats: Stats, limits: Limits) -> Iterator[Trouble]:
    if stats.oldest_due is not None and stats.oldest_due > limits.max_age:
        yield Trouble(
            "too_old",
            f"A message has been due for {stats.oldest_due.total_seconds():.0f} s;"
            f" {limits.max_age.total_seconds():.0f} s are well.",
        )
    if limits.require_relay and not any(relay.is_alive for relay in stats.relays):
        yield Trouble("no_relay", "No relay is at work. Start manage.py outbox_relay.")
    for alias in stats.broker_down:
        yield Trouble("broker_down", f"The broker of {alias!r} takes no messages.")
    dead = stats.counts["dead"].number
    if limits.max_dead is not None and dead > limits.max_dead:
        yield Trouble("dead", f"Dead: {messages_in_words(dead)}. Requeue or discard what is dead.")
