"""The life of one message, from the columns of its row and what people have done to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_outbox.admin.states import State, state_of
from django_outbox.models import OutboxMessage
from django_outbox.times import in_words

if TYPE_CHECKING:
    from django.contrib.admin.models import LogEntry


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, or that will."""

    at: datetime | None
    title: str
    detail: str = ""
    kind: str = ""
    """``good``, ``bad`` or empty; for the eye."""


def timeline(message: OutboxMessage, entries: Sequence[LogEntry]) -> list[Event]:
    """What is known, in the order of time; what has no time of its own comes before what is next.

    A row keeps the last attempt only: who made the ones before is in the relays' logs.
    """
    clock: datetime = message.clock  # type: ignore[attr-defined]  # annotated
    past = [Event(message.created_at, _("Enqueued"), _("committed with its business transaction"))]
    past += [
        Event(entry.action_time, entry.get_change_message(), _by(entry), "person")
        for entry in reversed(entries)
    ]
    if message.published_at is not None:
        waited = in_words(message.published_at - message.created_at)
        detail = _("the broker confirmed it, %(time)s after it was enqueued") % {"time": waited}
        past.append(Event(message.published_at, _("Published"), detail, "good"))
    past.sort(key=lambda event: event.at or clock)
    return [*past, *_attempts(message), *_now(message, clock)]


def _attempts(message: OutboxMessage) -> Iterator[Event]:
    # Before the last requeue there were others: a requeue forgets them.
    if message.attempts and message.published_at is None:
        title = ngettext("%d attempt", "%d attempts", message.attempts) % message.attempts
        by = _("the last one by %(relay)s") % {"relay": message.leased_by or "?"}
        yield Event(None, title, by, "bad" if message.last_error else "")


def _now(message: OutboxMessage, clock: datetime) -> Iterator[Event]:
    due = message.available_at
    match state_of(message):
        case State.IN_FLIGHT:
            left = in_words((message.lease_expires_at or clock) - clock)
            detail = _("%(relay)s has it, for at most %(time)s more") % {
                "relay": message.leased_by or "?",
                "time": left,
            }
            yield Event(message.lease_expires_at, _("In flight"), detail)
        case State.DEAD:
            yield Event(None, _("Dead"), _("nobody tries it any more until it is requeued"), "bad")
        case State.DISCARDED:
            yield Event(due, _("Discarded"), _("nobody will receive it"), "bad")
        case State.BLOCKED:
            yield Event(
                due, _("Blocked"), _("waits for an earlier message of its aggregate"), "bad"
            )
        case State.SCHEDULED:
            yield Event(due, _("Scheduled"), _("in %(time)s") % {"time": in_words(due - clock)})
        case State.RETRYING if due > clock:
            detail = _("in %(time)s") % {"time": in_words(due - clock)}
            yield Event(due, _("Next attempt"), detail)
        case State.READY | State.RETRYING:
            detail = _("for %(time)s: the next relay that has room takes it") % {
                "time": in_words(clock - due)
            }
            yield Event(due, _("Due"), detail)
        case State.PUBLISHED:
            pass


def _by(entry: LogEntry) -> str:
    return _("by %(user)s") % {"user": entry.user.get_username()}
