"""What the state of the outbox means to the person on call: one sentence a problem, and what to press."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_outbox.admin.asked import Asked
from django_outbox.admin.states import State
from django_outbox.operations.stats import Count, Stats
from django_outbox.times import in_words, shown

_NONE = Count(0)


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to know, and where to go with it."""

    level: str
    """``error``: somebody has to act; ``warning``: look at it; ``success``: nothing to do."""
    text: str
    query: str = ""
    """The query string of the list that shows the messages."""
    link: str = ""


def advice(stats: Stats, alert_age: timedelta) -> list[Advice]:
    """What is wrong, the worst first; one line of reassurance where nothing is."""
    found = [
        *_relays(stats),
        *_brokers(stats),
        *_dead(stats),
        *_late(stats, alert_age),
        *_held(stats),
    ]
    return found or [Advice("success", _("Nothing is stuck: there is nothing to do."))]


def _count(stats: Stats, state: State) -> Count:
    return stats.counts.get(state.value, _NONE)


def _waiting(stats: Stats) -> int:
    return sum(_count(stats, state).number for state in (State.READY, State.RETRYING))


def _is_any_alive(stats: Stats) -> bool:
    return any(relay.is_alive for relay in stats.relays)


def _relays(stats: Stats) -> Iterator[Advice]:
    if _is_any_alive(stats):
        return
    waiting = _waiting(stats)
    if not waiting:
        yield Advice(
            "warning",
            _(
                "No relay is at work. Nothing is due, but nothing would be sent: start outbox_relay."
            ),
        )
        return
    text = ngettext(
        "No relay is at work, and %d message is due: start outbox_relay.",
        "No relay is at work, and %d messages are due: start outbox_relay.",
        waiting,
    )
    seen = max((relay.seen_at for relay in stats.relays), default=None)
    last = _("The last one was seen at %(time)s.") % {"time": shown(seen)} if seen else ""
    yield Advice("error", f"{text % waiting} {last}".rstrip())


def _brokers(stats: Stats) -> Iterator[Advice]:
    for alias in stats.broker_down:
        seen = [r for r in stats.relays if r.is_alive and alias in r.open_breakers]
        reason = next((r.open_breakers[alias] for r in seen if r.open_breakers[alias]), "")
        since = min((r.open_since[alias] for r in seen if alias in r.open_since), default=None)
        text = _("The broker of '%(alias)s' takes no messages")
        if since is not None:
            text += " " + _("since %(since)s")
        text += f"{': %(reason)s' if reason else ''}. "
        text += _(
            "There is nothing to press: messages wait, no attempt is charged, and the relay goes on"
            " by itself once the broker answers."
        )
        shown_since = "" if since is None else shown(since)
        yield Advice("error", text % {"alias": alias, "reason": reason, "since": shown_since})


def _dead(stats: Stats) -> Iterator[Advice]:
    dead = _count(stats, State.DEAD)
    if dead.number:
        text = ngettext(
            "%s dead message waits for you.", "%s dead messages wait for you.", dead.number
        )
        query = Asked(state=State.DEAD).query_string()
        yield Advice("error", text % dead, query, _("Look at them"))


def _late(stats: Stats, alert_age: timedelta) -> Iterator[Advice]:
    if stats.oldest_due is None or stats.oldest_due <= alert_age:
        return
    text = _("The oldest due message has waited for %(time)s.") % {
        "time": in_words(stats.oldest_due)
    }
    if _is_any_alive(stats) and not stats.broker_down:
        text += " " + _("The relays do not keep up, or do not take its topic.")
    query = Asked(state=State.READY).query_string()
    yield Advice("warning", text, query, _("See what waits"))


def _held(stats: Stats) -> Iterator[Advice]:
    retrying, blocked = _count(stats, State.RETRYING), _count(stats, State.BLOCKED)
    if retrying.number:
        text = ngettext(
            "%s message has failed and is being tried again.",
            "%s messages have failed and are being tried again.",
            retrying.number,
        )
        query = Asked(state=State.RETRYING).query_string()
        yield Advice("warning", text % retrying, query, _("See why"))
    if blocked.number:
        text = ngettext(
            "%s message waits for an earlier one of its aggregate.",
            "%s messages wait for an earlier one of their aggregate.",
            blocked.number,
        )
        query = Asked(state=State.BLOCKED).query_string()
        yield Advice("warning", text % blocked, query, _("See which"))
