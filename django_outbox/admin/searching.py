"""The search: a POST, so that what is typed gets into no address, no log and no history.

What was found is named by what stands readable in the table anyway, or by a person's blind tag, and
the browser is sent to the list of that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from django.apps import apps
from django.contrib import messages
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from django_outbox.admin.asked import Asked, split_aggregate
from django_outbox.admin.window import pick
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.event_types.registry import all_event_types
from django_outbox.event_types.tags import tags_to_search
from django_outbox.models import OutboxMessageQuerySet

if TYPE_CHECKING:
    from django_outbox.admin.messages import OutboxMessageAdmin

logger = logging.getLogger(__name__)

_LIST = "admin:django_outbox_outboxmessage_changelist"
_PAGE = "admin:django_outbox_outboxmessage_change"


def people_can_be_searched() -> bool:
    """Whether some event type says by which member its messages can be found, and keys are there."""
    return apps.is_installed("django_outbox.encryption") and any(
        each.index_by for each in all_event_types()
    )


@sensitive_variables("text")
def search(admin: OutboxMessageAdmin, request: HttpRequest) -> HttpResponse:
    """By message id, aggregate (``id`` or ``type:id``), correlation id, or a person's whole value."""
    text = request.POST.get("text", "").strip()
    site = admin.admin_site.name
    the_list = reverse(_LIST, current_app=site)
    if request.method != "POST" or not text:
        return HttpResponseRedirect(the_list)
    all_messages = admin.get_queryset(request)
    try:
        pk = _by_message_id(all_messages, text)
        if pk is not None:
            return HttpResponseRedirect(reverse(_PAGE, args=[pk], current_app=site))
        asked = _readable(all_messages, text) or _person(admin, request, all_messages, text)
    except DatabaseError as error:
        # Not raised: an error report shows the parameters of the query in the frames of Django.
        _tell_of(admin, request, type(error).__name__)
        return HttpResponseRedirect(the_list)
    if asked is None:
        admin.message_user(request, _("No message was found."), messages.WARNING)
        return HttpResponseRedirect(the_list)
    return HttpResponseRedirect(f"{the_list}{asked.query_string()}")


def _tell_of(admin: OutboxMessageAdmin, request: HttpRequest, kind: str) -> None:
    logger.error(
        "The search in the admin failed: %s.", kind, extra={"event": "search_failed", "error": kind}
    )
    text = _("The database could not be searched (%(error)s). Try again in a moment.")
    admin.message_user(request, text % {"error": kind}, messages.ERROR)


def _by_message_id(all_messages: OutboxMessageQuerySet, text: str) -> int | None:
    try:
        message_id = UUID(text)
    except ValueError:
        return None
    return all_messages.filter(message_id=message_id).values_list("pk", flat=True).first()


def _readable(all_messages: OutboxMessageQuerySet, text: str) -> Asked | None:
    """By what is stored readable. Only what is found is repeated in an address."""
    if len(text) > 360 or "\x00" in text:
        return None
    kind, rest = split_aggregate(text)
    for asked in (
        Asked(aggregate_type=kind, aggregate_id=rest),
        Asked(aggregate_id=text),
        Asked(correlation_id=text),
    ):
        if pick(all_messages, asked, most=1).rows:
            return asked
    return None


@sensitive_variables("text")
def _person(
    admin: OutboxMessageAdmin, request: HttpRequest, all_messages: OutboxMessageQuerySet, text: str
) -> Asked | None:
    if not people_can_be_searched():
        return None
    try:
        tags = tags_to_search(text, all_messages.db)
    except EncryptionError as error:
        # Names the keyring and the key, never the value.
        admin.message_user(request, str(error), messages.ERROR)
        return None
    found = tags and all_messages.filter(index_tag__in=tags).exists()
    return Asked(tags=tuple(tags)) if found else None
