"""What topics are called in metrics: each name is a time series for ever, so there are few of them."""

from __future__ import annotations

from typing import Final

from django_outbox.conf import outbox_settings
from django_outbox.event_types.registry import latest_version

#: A topic without event type and without route.
OTHER: Final = "other"


def topic_label(topic: str) -> str:
    """A registered topic by its name, any other by the pattern of its route.

    So there are at most as many names as event types and routes, whatever topics are made at run time.
    """
    if latest_version(topic) is not None:
        return topic
    route = outbox_settings().routes.route_for(topic)
    return OTHER if route is None else route.pattern
