"""The dashboard: how the outbox is doing, above the list of messages and as a page of its own.

The page is complete without JavaScript. With it, dashboard.js replaces the panel every few seconds
while the page is seen; above the list it fetches the panel, so that the list does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _

from django_outbox.admin.advice import advice
from django_outbox.admin.asked import Asked
from django_outbox.admin.charts import bars
from django_outbox.admin.states import State
from django_outbox.conf import outbox_settings
from django_outbox.models import Status
from django_outbox.operations.history import published_by_minute
from django_outbox.operations.selection import every_message
from django_outbox.operations.stats import Stats, collect_stats
from django_outbox.times import in_words

if TYPE_CHECKING:
    from django_outbox.admin.messages import OutboxMessageAdmin

#: Between two refreshes of a page that somebody looks at.
SECONDS = 5
#: Kinds of failure that are shown above the list.
_BRIEFLY = 5


def page(admin: OutboxMessageAdmin, request: HttpRequest) -> HttpResponse:
    """The page of its own."""
    context = {"title": _("Outbox dashboard"), "panel_seconds": SECONDS, **_context()}
    response = admin.respond(request, "dashboard.html", context)
    add_never_cache_headers(response)
    return response


def panel(admin: OutboxMessageAdmin, request: HttpRequest) -> HttpResponse:
    """The panel alone, for dashboard.js; a brief one above the list, which is what people came for."""
    is_brief = "brief" in request.GET
    response = admin.respond(request, "panel.html", _context(is_brief=is_brief))
    add_never_cache_headers(response)
    return response


def _context(*, is_brief: bool = False) -> dict[str, Any]:
    """At most ten statements: those of the stats, and one for the chart."""
    messages = every_message()
    stats = collect_stats()
    minutes = published_by_minute(messages, stats.taken_at)
    failures = _failures(stats)
    shown = failures[:_BRIEFLY] if is_brief else failures
    return {
        "is_brief": is_brief,
        "stats": stats,
        "relays_alive": sum(relay.is_alive for relay in stats.relays),
        "broker_down": stats.broker_down,
        "advice": advice(stats, outbox_settings().alert_age),
        "states": [
            {
                "state": state,
                "count": stats.counts.get(state.value),
                "link": Asked(state=state).query_string(),
            }
            for state in State
        ],
        "oldest_due": None if stats.oldest_due is None else in_words(stats.oldest_due),
        "latency": stats.latency
        and {"median": in_words(stats.latency.median), "p99": in_words(stats.latency.p99)},
        "minutes": len(minutes),
        "chart": bars(minutes),
        "failures": shown,
        "more_failures": len(failures) - len(shown),
    }


def _failures(stats: Stats) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "state": State.DEAD if group.status == Status.DEAD else State.RETRYING,
            "age": in_words(stats.taken_at - group.oldest),
            "link": Asked(
                state=State.DEAD if group.status == Status.DEAD else State.RETRYING,
                topic=group.topic,
                error=group.error,
            ).query_string(),
        }
        for group in stats.failures
    ]
