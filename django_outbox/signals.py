"""Signals: what happened to a message, a lease or a broker, for code that wants to know.

Sent with ``send_robust``: a receiver that raises is logged and disturbs nobody. Inside the producer's
transaction only ``message_enqueued`` is sent; the relay sends its own after it has settled.
"""

from __future__ import annotations

from django.dispatch import Signal

#: Sent in the caller's transaction, after the row is written. Arguments: ``messages`` (list of OutboxMessage).
message_enqueued = Signal()
#: After a settle. Arguments: ``messages`` (list of Message).
message_published = Signal()
#: After a settle. Arguments: ``message`` (Message), ``attempts``, ``reason``, ``delay`` (timedelta until the next try).
message_failed = Signal()
#: After a settle. Arguments: ``message`` (Message), ``attempts``, ``reason``.
message_dead = Signal()
#: After a settle that found its lease gone. Arguments: ``count``, ``message_ids`` (list of UUID).
lease_lost = Signal()
#: Arguments: ``publisher`` (alias), ``reason``.
breaker_opened = Signal()
#: Arguments: ``publisher`` (alias), ``open_for`` (timedelta).
breaker_closed = Signal()
#: After a delivery that was not processed. Arguments: ``consumer`` (Consumer), ``message`` (Message),
#: ``error`` (what the handler raised; its text may hold values), ``failed`` (Failed).
consumer_failed = Signal()
