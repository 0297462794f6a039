"""What a message is now, as the admin lists it, and the order that an index gives to each such list."""

from __future__ import annotations

from typing import cast

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet, Status


class State(TextChoices):
    """Derived from status, due time, attempts, lease and order; the glossary has the words."""

    READY = "ready", pgettext_lazy("message", "ready")
    SCHEDULED = "scheduled", pgettext_lazy("message", "scheduled")
    RETRYING = "retrying", pgettext_lazy("message", "retrying")
    IN_FLIGHT = "in_flight", pgettext_lazy("message", "in flight")
    BLOCKED = "blocked", pgettext_lazy("message", "blocked")
    DEAD = "dead", pgettext_lazy("message", "dead")
    PUBLISHED = "published", pgettext_lazy("message", "published")
    DISCARDED = "discarded", pgettext_lazy("message", "discarded")

    def messages(self, messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
        """Those of the messages that are in this state."""
        found = cast("OutboxMessageQuerySet", getattr(messages, self.value)())
        # Only published rows have a time. Said once more, the index gives the others by their ids.
        return found.filter(published_at=None) if self in _SET_ASIDE else found

    def whole(self, messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
        """The rows that an index holds in this state's order: these messages, and at most a few others.

        Without conditions that the index does not know: multiplied with each other, the planner's
        guesses at these make it expect so few rows that it reads the table instead.
        """
        match self:
            case State.READY:
                return messages.pending().filter(available_at__lte=DatabaseNow())
            case State.SCHEDULED:
                return messages.pending().filter(available_at__gt=DatabaseNow())
            case State.RETRYING | State.IN_FLIGHT:
                return messages.pending().filter(attempts__gt=0)
            case State.BLOCKED:
                return messages.pending()
            case _:
                return self.messages(messages)

    @property
    def meaning(self) -> str:
        """One sentence for people."""
        return str(_MEANINGS[self])


_SET_ASIDE = (State.DEAD, State.DISCARDED)
_MEANINGS = {
    State.READY: _("Due, and never tried: the next relay that has room takes it."),
    State.SCHEDULED: _("Never tried, and its time has not come."),
    State.RETRYING: _("An attempt failed; it is tried again when it is due."),
    State.IN_FLIGHT: _("A relay has it under a lease and is publishing it."),
    State.BLOCKED: _("Held back by an earlier message of its aggregate."),
    State.DEAD: _("Given up: it waits for somebody to requeue or discard it."),
    State.PUBLISHED: _("The broker has taken responsibility for it."),
    State.DISCARDED: _("Set aside by a person; nobody receives it."),
}


_SOONEST = ("available_at", "id")
_NEWEST = ("-id",)
_LAST_PUBLISHED = ("-published_at", "-id")
# Few among many pending ones, and mostly due after them: walking along the due times would pass all of
# the others first.
_BY_AGGREGATE = ("aggregate_type", "aggregate_id", "id")
_ORDERS = {
    State.READY: _SOONEST,
    State.SCHEDULED: _SOONEST,
    State.BLOCKED: _SOONEST,
    State.RETRYING: _BY_AGGREGATE,
    State.IN_FLIGHT: _BY_AGGREGATE,
    # Dead and discarded ones have no time: it is their ids that order them. Ordered by the id alone,
    # they would be looked for among all rows, along the primary key.
    State.DEAD: _LAST_PUBLISHED,
    State.DISCARDED: _LAST_PUBLISHED,
    State.PUBLISHED: _LAST_PUBLISHED,
}
#: The states of pending messages.
WAITING = (State.READY, State.SCHEDULED, State.RETRYING, State.IN_FLIGHT, State.BLOCKED)


def order_of(state: State | None) -> tuple[str, ...]:
    """How the list of this state is ordered: by the index that holds the rows of that state."""
    return _NEWEST if state is None else _ORDERS[state]


def state_of(message: OutboxMessage) -> State:
    """The state of one message, read by ``window.with_state``."""
    if message.status != Status.PENDING:
        return State(message.status)
    clock = message.clock  # type: ignore[attr-defined]  # annotated
    if message.lease_expires_at is not None and message.lease_expires_at > clock:
        return State.IN_FLIGHT
    if message.is_held_back:  # type: ignore[attr-defined]  # annotated
        return State.BLOCKED
    if message.attempts:
        return State.RETRYING
    return State.SCHEDULED if message.available_at > clock else State.READY
