"""Requeue, discard and replay from the admin: on some messages, or on everything that matches.

Always in two steps: a page that says how many and of what, and asks for a reason; then the act, in the
chunks of ``operations``. Both are POSTs. Everything means what the list shows, so at most a window of
messages at a time, and none that came after the confirmation was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.db.models import Max, Q
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.acts import Act, Done
from django_outbox.admin.asked import Asked, AskedForm
from django_outbox.admin.window import WINDOW, pick
from django_outbox.models import OutboxMessageQuerySet
from django_outbox.operations.selection import CHUNK

#: Messages that can be chosen one by one.
CHOSEN = 1_000
#: Messages that a confirmation counts.
COUNTED = 10_000
_TOPICS = 10


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
            if asked is None:
                raise BadRequest("what everything has to match cannot be read")
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
        self, act: Act, messages: OutboxMessageQuerySet, *, most: int
    ) -> Sequence[tuple[int, str]]:
        """Primary keys and topics of those of the messages that are chosen and that the act takes."""
        if self.asked is None:
            named = self.named(messages).filter(act.takeable)
            return list(named.values_list("pk", "topic")[:most])
        before = Q() if self.up_to is None else Q(id__lte=self.up_to)
        return pick(messages, self.asked, before, act.takeable, most=most).rows

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
    names = [topic for _pk, topic in chosen.pick(act, messages, most=COUNTED + 1)]
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
    ids = sorted(pk for pk, _topic in chosen.pick(act, messages, most=WINDOW))
    still = chosen.asked.narrow(messages)
    done = Done()
    for chunk in _chunks(ids):
        done += act.run(still.filter(pk__in=chunk), reason)
    return done


def _chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(ids)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _number(text: object) -> int:
    try:
        number = int(str(text))
    except ValueError:
        raise BadRequest("not a number") from None
    if not 0 <= number < 2**63:
        raise BadRequest("not the number of a row")
    return number
