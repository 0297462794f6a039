"""What an error of a relay means to the person on call, and what can be done about it."""

from __future__ import annotations

import re

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

# By the words that publishers and the relay write into ``last_error``. A test holds each against the
# code that writes it.
_EXPLANATIONS: tuple[tuple[str, Promise], ...] = (
    (
        r"no queue is bound",
        _(
            "The broker had nowhere to put it: no queue is bound for this topic. Bind one"
            " (manage.py outbox_topology declares what the settings name), then requeue."
        ),
    ),
    (
        r"no pattern of OUTBOX\['ROUTES'\]",
        _(
            "OUTBOX['ROUTES'] sends this topic nowhere. Add a route, restart the relays, then requeue."
        ),
    ),
    (
        r"\(nack\)",
        _(
            "The broker would not keep it, mostly because a queue is at its limit. Make room or raise"
            " the limit, then requeue."
        ),
    ),
    (
        r"no confirm within",
        _(
            "The broker did not answer in time. If it is busy, wait; if this goes on, look at its disk"
            " and memory alarms."
        ),
    ),
    (
        r"NOT_FOUND|no exchange",
        _("The exchange does not exist. Declare it (manage.py outbox_topology), then requeue."),
    ),
    (
        r"ACCESS_REFUSED",
        _("The broker's user may not write there. Give it the permission, then requeue."),
    ),
    (
        r"PRECONDITION_FAILED|more than frame_max|too large",
        _("The message is larger than the broker takes. Raise its limit, or discard the message."),
    ),
    (
        r"never settled in",
        _(
            "Every relay that took it died or lost its lease before it could say what became of it."
            " Look for crashes or kills (memory) in the relays' logs before you requeue."
        ),
    ),
    (
        r"no consumer of this process",
        _(
            "Messages are handed to consumers of the relay's own process, and none takes this topic."
            " Declare one, or configure a broker."
        ),
    ),
    (
        r"does not answer|cannot be reached",
        _("Something that was needed did not answer. It is tried again by itself."),
    ),
    (
        r"^consumer '",
        _(
            "The consumer's own code failed; its log has the traceback. Mend it, then requeue: consumers"
            " that were done already pass the message over."
        ),
    ),
)


def explain(error: str) -> str:
    """One or two sentences for a ``last_error``; empty where there is nothing to add."""
    for pattern, words in _EXPLANATIONS:
        if re.search(pattern, error):
            return str(words)
    return ""
