"""Event types: what the payloads of a topic look like, and which of their members are personal."""

from django_outbox.event_types.registry import InvalidEventType, event_type
from django_outbox.event_types.upcasting import upcasts

__all__ = ["InvalidEventType", "event_type", "upcasts"]
