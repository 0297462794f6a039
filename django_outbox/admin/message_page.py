"""The page of one message: its life, its payload with personal members masked, and its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _

from django_outbox.admin.acts import ACTS
from django_outbox.admin.asked import Asked
from django_outbox.admin.audit import entries_of, note_each
from django_outbox.admin.explanations import explain
from django_outbox.admin.masked import has_personal, masked_payload, pretty, revealed_payload
from django_outbox.admin.neighbours import blocked_by, waiting_behind
from django_outbox.admin.states import WAITING, State, state_of
from django_outbox.admin.timeline import timeline
from django_outbox.admin.window import with_state
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet

if TYPE_CHECKING:
    from django_outbox.admin.messages import OutboxMessageAdmin


def read(messages: OutboxMessageQuerySet, object_id: str) -> OutboxMessage | None:
    """One message with payload and headers, or None."""
    try:
        pk = int(object_id)
    except ValueError:
        return None
    return with_state(messages.defer(None).filter(pk=pk)).first()


def respond(
    admin: OutboxMessageAdmin,
    request: HttpRequest,
    message: OutboxMessage,
    extra_context: dict[str, Any],
    *,
    revealed: bool = False,
) -> HttpResponse:
    """The page; with ``revealed`` it shows personal data, and nobody may keep it."""
    all_messages = admin.get_queryset(request)
    state = state_of(message)
    entries = entries_of(message)
    context = {
        "title": message.topic,
        "subtitle": str(message.message_id),
        "message": message,
        "state": state,
        "timeline": timeline(message, entries),
        "explanation": explain(message.last_error),
        "payload": revealed_payload(message) if revealed else masked_payload(message),
        "headers": pretty(message.headers) if message.headers else "",
        "is_revealed": revealed,
        "can_reveal": admin.may(request, "reveal") and has_personal(message),
        "has_personal": has_personal(message),
        "behind": waiting_behind(message, all_messages) if _holds_others(state) else None,
        "blocked_by": blocked_by(message, all_messages) if state is State.BLOCKED else None,
        "acts": [
            act
            for act in ACTS.values()
            if message.status in act.takes
            and state is not State.IN_FLIGHT
            and admin.may(request, act.name)
        ],
        "aggregate_link": message.aggregate_id
        and _list(
            admin,
            Asked(aggregate_type=message.aggregate_type, aggregate_id=message.aggregate_id),
        ),
        "correlation_link": message.correlation_id
        and _list(admin, Asked(correlation_id=message.correlation_id)),
        **extra_context,
    }
    return admin.respond(request, "message.html", context)


def reveal(admin: OutboxMessageAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """The page with personal data in clear: a POST, with a permission of its own, and noted down first."""
    if request.method != "POST":
        page = reverse(
            "admin:django_outbox_outboxmessage_change",
            args=[pk],
            current_app=admin.admin_site.name,
        )
        return HttpResponseRedirect(page)
    if not admin.may(request, "reveal"):
        raise PermissionDenied
    message = read(admin.get_queryset(request), str(pk))
    if message is None:
        raise Http404
    note_each(request, [message], _("Personal data revealed"))
    response = respond(admin, request, message, {}, revealed=True)
    add_never_cache_headers(response)
    response["Cache-Control"] = "no-store, private"
    return response


def _holds_others(state: State) -> bool:
    return state in WAITING or state is State.DEAD


def _list(admin: OutboxMessageAdmin, asked: Asked) -> str:
    name = "admin:django_outbox_outboxmessage_changelist"
    return f"{reverse(name, current_app=admin.admin_site.name)}{asked.query_string()}"
