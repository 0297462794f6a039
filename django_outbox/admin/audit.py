"""Who did what to which messages, and why: in Django's admin log.

Written before anything is done: what cannot be noted down does not happen. What came of it stands with
each message, and in the log of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, cast

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest

from django_outbox.models import OutboxMessage

logger = logging.getLogger(__name__)

#: Characters of an object's name that Django's log keeps.
_NAMED: Final = 200


def note_each(
    request: HttpRequest, messages: Sequence[OutboxMessage], what: str, reason: str = ""
) -> None:
    """One entry a message, shown in its history and on its page. The process's log has no reason."""
    LogEntry.objects.log_actions(_who(request), messages, CHANGE, _entry(what, reason))
    for message in messages:
        logger.info(
            "%s: %s by user %s",
            message.message_id,
            what,
            request.user.pk,
            extra={
                "event": "admin_action",
                "message_id": str(message.message_id),
                "user_id": request.user.pk,
            },
        )


def note_everything(request: HttpRequest, which: str, what: str, reason: str) -> None:
    """One entry for all that matches a filter, which may be very many.

    The process's log has the entry's number in place of the filter, which may name a person's aggregate.
    """
    entry = LogEntry.objects.create(
        user_id=_who(request),
        content_type=ContentType.objects.get_for_model(OutboxMessage),
        object_id=None,
        object_repr=which[:_NAMED],
        action_flag=CHANGE,
        # A filter that is too long for its column stands here as a whole.
        change_message=_entry(what, reason) + (f"\n{which}" if len(which) > _NAMED else ""),
    )
    logger.info(
        "Everything that matches a filter: %s by user %s, entry %d of the admin log",
        what,
        request.user.pk,
        entry.pk,
        extra={"event": "admin_action", "user_id": request.user.pk, "log_entry": entry.pk},
    )


def _who(request: HttpRequest) -> int:
    # Every view here is behind the admin's login.
    return cast("int", request.user.pk)


def _entry(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


def entries_of(message: OutboxMessage, most: int = 50) -> list[LogEntry]:
    """What people have done to the message, the last first."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(OutboxMessage), object_id=str(message.pk)
    )
    return list(entries.select_related("user").order_by("-action_time")[:most])
