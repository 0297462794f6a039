"""The three things that people do to messages: requeue, discard, replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_outbox.admin.states import State
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.discard import discard
from django_outbox.operations.replay import replay
from django_outbox.operations.requeue import requeue


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, and what was left alone."""

    changed: int = 0
    in_flight: int = 0
    others: int = 0

    def __add__(self, other: Done) -> Done:
        return Done(
            self.changed + other.changed,
            self.in_flight + other.in_flight,
            self.others + other.others,
        )


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that people do to messages."""

    name: str
    """Also the permission's: ``requeue_outboxmessage``."""
    title: Promise
    effect: Promise
    takes: frozenset[Status]
    offered_on: frozenset[State]
    """The lists of one state that offer it for everything that matches."""
    run: Callable[[OutboxMessageQuerySet, str], Done]
    changed: Callable[[int], str]
    others: Callable[[int], str]

    @property
    def takeable(self) -> Q:
        """What it would change now: of a status that it takes, and in no relay's hands."""
        free = Q(lease_expires_at=None) | Q(lease_expires_at__lte=DatabaseNow())
        return Q(status__in=self.takes) & free

    def said(self, done: Done) -> str:
        """What was done, in words."""
        parts = [self.changed(done.changed)]
        if done.in_flight:
            parts.append(str(_IN_FLIGHT % done.in_flight))
        if done.others:
            parts.append(self.others(done.others))
        return " ".join(parts)


def _requeue(messages: OutboxMessageQuerySet, reason: str) -> Done:
    done = requeue(messages)
    return Done(done.requeued, done.in_flight, done.not_dead)


def _discard(messages: OutboxMessageQuerySet, reason: str) -> Done:
    done = discard(messages, reason=reason)
    return Done(done.discarded, done.in_flight, done.not_discardable)


def _replay(messages: OutboxMessageQuerySet, reason: str) -> Done:
    done = replay(messages)
    return Done(done.replayed, done.in_flight, done.not_published)


_IN_FLIGHT = ngettext_lazy(
    "%d is in flight and was left alone.", "%d are in flight and were left alone."
)


def _words(one: str, many: str) -> Callable[[int], str]:
    lazy = ngettext_lazy(one, many)
    return lambda number: str(lazy % number)


ACTS = {
    act.name: act
    for act in (
        Act(
            "requeue",
            _("Requeue"),
            _(
                "Dead messages become pending again, due now, their attempts forgotten; the next"
                " relay sends them. Mend the cause first, or they die again."
            ),
            frozenset({Status.DEAD}),
            frozenset({State.DEAD}),
            _requeue,
            _words("%d message requeued.", "%d messages requeued."),
            _words("%d was not dead.", "%d were not dead."),
        ),
        Act(
            "discard",
            _("Discard"),
            _(
                "Nobody will receive these messages, and they cannot be requeued. What they held back"
                " goes on. The reason is kept with each message."
            ),
            frozenset({Status.DEAD, Status.PENDING}),
            frozenset({State.DEAD, State.READY, State.SCHEDULED, State.RETRYING, State.BLOCKED}),
            _discard,
            _words("%d message discarded.", "%d messages discarded."),
            _words("%d was settled before.", "%d were settled before."),
        ),
        Act(
            "replay",
            _("Replay"),
            _(
                "Published messages are sent again to every consumer, under the same message ids:"
                " consumers with an inbox skip what they still remember."
            ),
            frozenset({Status.PUBLISHED}),
            frozenset({State.PUBLISHED}),
            _replay,
            _words("%d message replayed.", "%d messages replayed."),
            _words("%d was not published.", "%d were not published."),
        ),
    )
}
