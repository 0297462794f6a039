"""Channels as pika makes them, without what tracing libraries hang on them.

``opentelemetry-instrumentation-pika`` replaces methods of every channel that is opened: its
``basic_publish`` writes the context of whatever is current into the message's headers, over the context
that the message was created with, and trips over properties that are encoded already. The outbox makes
its own spans (contrib/opentelemetry).
"""

from __future__ import annotations

from typing import Any, Final

_REPLACED: Final = ("basic_publish", "basic_consume")


def uninstrumented(channel: Any) -> Any:
    """The same channel, its methods those of its class again; the one inside of a blocking channel, too."""
    for each in (channel, getattr(channel, "_impl", None)):
        for name in _REPLACED:
            getattr(each, "__dict__", {}).pop(name, None)
    return channel
