"""What a received payload goes through before a handler sees it: check, open, check, upcast.

The structure is checked as it travelled, before anything is opened; the values are checked after. A
consumer without the payload keyring gets the members as they are, sealed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django_outbox.encryption.conf import DEFAULT, encryption_settings, keyring
from django_outbox.encryption.exceptions import (
    DecryptionFailed,
    KeyDestroyed,
    PlaintextFound,
)
from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import EventType, find_event_type, latest_version
from django_outbox.event_types.schemas import Violation
from django_outbox.event_types.sealing import open_members
from django_outbox.event_types.upcasting import NoUpcaster, upcast
from django_outbox.exceptions import InvalidReceivedPayload, MalformedMessage, UnknownSchemaVersion
from django_outbox.messages import Message

#: What no retry will change; a missing or disabled key may yet be put in place.
_HOPELESS = (DecryptionFailed, KeyDestroyed, PlaintextFound)


def read_message(message: Message, *, open_sealed: bool = True) -> Message:
    """The message with its payload checked, opened and brought to the newest registered version.

    A topic without event types comes back as it is. Raises ``UnknownSchemaVersion``,
    ``InvalidReceivedPayload`` or ``MalformedMessage`` for what must be set aside, and
    ``UnknownKey`` or ``KeyDisabled`` where a key is missing that may come.
    """
    __traceback_hide__ = True
    newest = latest_version(message.topic)
    if newest is None:
        return message
    if message.schema_version > newest:
        raise UnknownSchemaVersion(message.topic, message.schema_version, newest)
    payload = _parsed(message)
    received = find_event_type(message.topic, message.schema_version)
    opened = received is None
    if received is not None:
        opened = _check_and_open(received, message, payload, open_sealed)
    try:
        version, payload = upcast(message.topic, message.schema_version, payload)
    except NoUpcaster:
        raise UnknownSchemaVersion(message.topic, message.schema_version, newest) from None
    if version != message.schema_version:
        _check(message, version, payload, opened=opened)
    elif received is None or not received.has_personal:
        return message
    text = json.dumps(payload, ensure_ascii=False)
    return replace(message, body=text, schema_version=version)


def _parsed(message: Message) -> Any:
    __traceback_hide__ = True
    try:
        return json.loads(message.body)
    except (ValueError, RecursionError):
        raise MalformedMessage("body", "is not JSON") from None


def _check_and_open(received: EventType, message: Message, payload: Any, open_sealed: bool) -> bool:
    __traceback_hide__ = True
    _refuse(message, received.version, received.wire.violations(payload))
    _refuse_forbidden(message, received, payload)
    if not received.has_personal:
        return True
    if not open_sealed or DEFAULT not in encryption_settings().providers:
        return False
    try:
        open_members(
            payload,
            marks=received.marks,
            keyring=keyring(),
            topic=message.topic,
            message_id=message.id,
        )
    except _HOPELESS as error:
        # The error's own text names places and keys, never values.
        reason = f"{type(error).__name__}: {error}"
        raise InvalidReceivedPayload(message.topic, received.version, reason) from None
    _refuse(message, received.version, received.clear.violations(payload))
    _refuse_forbidden(message, received, payload)
    return True


def _check(message: Message, version: int, payload: Any, *, opened: bool) -> None:
    __traceback_hide__ = True
    reached = find_event_type(message.topic, version)
    if reached is not None:
        schema = reached.clear if opened else reached.wire
        _refuse(message, version, schema.violations(payload))


def _refuse_forbidden(message: Message, received: EventType, payload: Any) -> None:
    __traceback_hide__ = True
    for member in received.marks.members(payload, Mark.FORBIDDEN):
        reason = f"{member.shown} must not be sent at all"
        raise InvalidReceivedPayload(message.topic, received.version, reason)


def _refuse(message: Message, version: int, violations: Sequence[Violation]) -> None:
    if violations:
        reason = "; ".join(map(str, violations))
        raise InvalidReceivedPayload(message.topic, version, reason)
