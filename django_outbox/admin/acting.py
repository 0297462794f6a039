"""Requeue, discard and replay from the admin: on some messages, or on everything that matches.

Always in two steps: a page that says how many and of what, and asks for a reason; then the act, in the
chunks of ``operations``. Both are POSTs. Everything means what the list shows, so at most a window of
messages at a time, and none that came after the confirmation was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.db.models import Max, Q
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_outbox.admin.asked import Asked, AskedForm
from django_outbox.admin.states import State
from django_outbox.admin.window import WINDOW, pick
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.discard import discard
from django_outbox.operations.replay import replay
from django_outbox.operations.requeue import requeue
from django_outbox.operations.selection import CHUNK

#: Messages that can be chosen one by one.
CHOSEN = 1_000
#: Messages that a confirmation counts.
COUNTED = 10_000
_TOPICS = 10


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


class ReasonForm(forms.Form):
    """Why something is done."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        help_text=_("Kept in the admin log: write no personal data into it."),
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The messages that an act is about: these, or everything that matches."""

    ids: tuple[int, ...] = ()
    asked: Asked | None = None
    """What everything has to match; None: these."""
    up_to: int | None = None
    """The last row that was there when the confirmation was asked for."""

    @classmethod
    def read(cls, form: QueryDict) -> Chosen:
        """What a form of ours says. Raises ``BadRequest`` for what none of ours would."""
        if form.get("everything"):
            asked = AskedForm(QueryDict(form.get("asked", "").lstrip("?"))).asked()
            if asked is None or asked.state is None:
                raise BadRequest("everything that matches: of which state?")
            up_to = form.get("up_to")
            return cls(asked=asked, up_to=_number(up_to) if up_to else None)
        ids = tuple(map(_number, form.getlist(ACTION_CHECKBOX_NAME)))
        if not 0 < len(ids) <= CHOSEN:
            raise BadRequest(f"between 1 and {CHOSEN} messages can be chosen")
        return cls(ids)

    def fields(self) -> Iterator[tuple[str, str]]:
        """Names and values for hidden inputs, from which ``read`` makes the same again."""
        if self.asked is None:
            yield from ((ACTION_CHECKBOX_NAME, str(each)) for each in self.ids)
        else:
            yield from (("everything", "1"), ("asked", self.asked.query_string()))
            yield "up_to", "" if self.up_to is None else str(self.up_to)

    def bounded(self, messages: OutboxMessageQuerySet) -> Chosen:
        """The same, without what is written from now on."""
        if self.asked is None or self.up_to is not None:
            return self
        return Chosen(asked=self.asked, up_to=messages.aggregate(last=Max("id"))["last"] or 0)

    def pick(
        self, messages: OutboxMessageQuerySet, *conditions: Q, most: int
    ) -> Sequence[tuple[int, str]]:
        """Primary keys and topics of those of the messages that are chosen and meet the conditions."""
        if self.asked is None:
            return list(self.named(messages).filter(*conditions).values_list("pk", "topic")[:most])
        before = Q() if self.up_to is None else Q(id__lte=self.up_to)
        return pick(messages, self.asked, before, *conditions, most=most).rows

    def named(self, messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
        """The messages that were chosen one by one."""
        return messages.filter(pk__in=self.ids).order_by("id")


@dataclass(frozen=True, slots=True)
class Preview:
    """How many an act would change, and of what."""

    number: int
    is_capped: bool
    topics: tuple[tuple[str, int], ...]
    """The topics with most messages."""
    other_topics: int
    in_flight: int
    others: int
    """Chosen one by one, but of a status that the act does not take."""


def preview(act: Act, chosen: Chosen, messages: OutboxMessageQuerySet) -> Preview:
    """What ``carry_out`` would do now."""
    names = [topic for _pk, topic in chosen.pick(messages, _taken(act), _free(), most=COUNTED + 1)]
    by_topic = Counter(names[:COUNTED]).most_common()
    in_flight = others = 0
    if chosen.asked is None:
        in_flight = chosen.named(messages).in_flight().count()
        others = chosen.named(messages).count() - in_flight - len(names)
    return Preview(
        min(len(names), COUNTED),
        len(names) > COUNTED,
        tuple(by_topic[:_TOPICS]),
        len(by_topic[_TOPICS:]),
        in_flight,
        others,
    )


def carry_out(act: Act, chosen: Chosen, messages: OutboxMessageQuerySet, reason: str) -> Done:
    """Do it, a chunk of messages a transaction; each message is looked at again as it is changed."""
    if chosen.asked is None:
        return act.run(chosen.named(messages), reason)
    # The keys are read once: an act takes its messages out of the very list that it walks along.
    ids = sorted(pk for pk, _topic in chosen.pick(messages, _taken(act), most=WINDOW))
    done = Done()
    for chunk in _chunks(ids):
        done += act.run(messages.filter(pk__in=chunk), reason)
    return done


def _taken(act: Act) -> Q:
    return Q(status__in=act.takes)


def _free() -> Q:
    return Q(lease_expires_at=None) | Q(lease_expires_at__lte=DatabaseNow())


def _chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(ids)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise BadRequest("not a number") from None
