"""A payload as JSON text that every database and every broker here can hold.

Decided before anything is sent to the database. The bounds are the same everywhere, so that what a
project accepts on SQLite is not refused on the server. Reasons name the place in the payload, never
a value; and functions that raise with a payload at hand hide their frame from error pages, which show
the locals of each (``__traceback_hide__``, as Django's and Sentry's honour it).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder

from django_outbox.conf import outbox_settings
from django_outbox.encryption.conf import keyring
from django_outbox.event_types.adapters import plain_payload
from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import EventType, find_event_type
from django_outbox.event_types.schemas import member_at
from django_outbox.event_types.sealing import seal_members
from django_outbox.exceptions import (
    InvalidIdentifier,
    InvalidPayload,
    InvalidSequence,
    UnknownTopic,
)

#: How deep objects and lists may lie in each other. MariaDB's JSON ends at 31; one level is left for
#: the wrapper of a sealed member.
MAX_DEPTH = 30

_CONTAINERS = (dict, list, tuple)
_LEAVES = frozenset({str, int, float, bool, type(None)})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


class Encoded(NamedTuple):
    """A payload ready to be stored."""

    text: str
    size: int
    """Bytes of the text in UTF-8."""
    stored: Any
    """What the text says, as Python objects: the payload as given, unless members were sealed."""
    index_tag: str = ""
    """Keyed tag of the member that the event type is indexed by."""


def encode(
    topic: str,
    schema_version: int,
    payload: Any,
    message_id: UUID,
    alias: str,
    *,
    aggregate_id: str = "",
    sequence: int | None = None,
) -> Encoded:
    """The payload of this event as it will be stored: the one place where event types take part.

    Raises ``UnknownTopic`` where ``REQUIRE_EVENT_TYPES`` is on and nobody registered the topic,
    ``InvalidPayload`` for what is not JSON or breaks its schema, ``InvalidIdentifier`` or
    ``InvalidSequence`` where the payload says otherwise than the event, and what the keyring raises
    where personal members cannot be sealed: then nothing is written.
    """
    __traceback_hide__ = True
    registered = find_event_type(topic, schema_version)
    if registered is not None:
        payload = plain_payload(payload)
        text = json_text(topic, payload)
        # The tree that JSON says: dates are strings in it, and sealing does not touch the caller's.
        tree = json.loads(text)
        _hold_against(registered, tree, aggregate_id, sequence)
        if not registered.has_personal and not registered.index_by:
            return Encoded(text, byte_length(text), payload)
        return _sealed(registered, tree, message_id, alias)
    if outbox_settings().require_event_types:
        raise UnknownTopic(
            topic,
            "topic",
            f"no event type is registered for version {schema_version}, and"
            " OUTBOX['REQUIRE_EVENT_TYPES'] is on. Register one in an app's events.py.",
        )
    text = json_text(topic, payload)
    return Encoded(text, byte_length(text), payload)


def _hold_against(
    registered: EventType, tree: Any, aggregate_id: str, sequence: int | None
) -> None:
    __traceback_hide__ = True
    topic = registered.topic
    forbidden = registered.marks.members(tree, Mark.FORBIDDEN)
    problems = [f"{member.shown} must not be sent at all" for member in forbidden]
    problems += map(str, registered.clear.violations(tree))
    if problems:
        raise InvalidPayload(topic, "payload", "; ".join(problems) + ".")
    pointer = registered.aggregate_id
    if pointer and aggregate_id and str(member_at(tree, pointer)) != aggregate_id:
        raise InvalidIdentifier(topic, "aggregate id", f"is not what the payload has at {pointer}.")
    pointer = registered.sequence
    if pointer and sequence is not None and member_at(tree, pointer) != sequence:
        raise InvalidSequence(topic, "sequence", f"is not what the payload has at {pointer}.")


def _sealed(registered: EventType, tree: Any, message_id: UUID, alias: str) -> Encoded:
    __traceback_hide__ = True
    verify_for_writing, tag_of = _key_functions()
    index_tag = tag_of(registered, tree, alias) if registered.index_by else ""
    if registered.has_personal:
        ring = keyring()
        verify_for_writing(ring, alias)
        marks, topic = registered.marks, registered.topic
        seal_members(tree, marks=marks, keyring=ring, topic=topic, message_id=message_id)
    # The clear tree has passed every test; a wrapper is one level more, which MAX_DEPTH leaves.
    text = _dumps(tree)
    return Encoded(text, byte_length(text), tree, index_tag)


@cache
def _key_functions() -> tuple[Callable[..., Any], Callable[..., str]]:
    # Imported at use: only projects with personal members need the encryption app and its table.
    from django_outbox.encryption.fingerprints import verify_for_writing
    from django_outbox.event_types.tags import tag_of

    return verify_for_writing, tag_of


def json_text(topic: str, payload: Any) -> str:
    """The payload as JSON. Raises ``InvalidPayload`` where some reader could not read it back."""
    __traceback_hide__ = True
    try:
        text = _dumps(payload)
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = None
    # Raised outside of the handler: a chained error of json or of a codec may hold the value.
    if text is None or not _keeps_its_shape(payload, MAX_DEPTH):
        raise InvalidPayload(topic, "payload", _first_problem(payload))
    problem = _text_problem(text)
    if problem is not None:
        raise InvalidPayload(topic, "payload", problem)
    return text


def byte_length(text: str) -> int:
    """How many bytes of UTF-8 the text takes."""
    return len(text) if text.isascii() else len(text.encode())


class _Encoder(DjangoJSONEncoder):
    """Django's encoder, which alone would store ``Decimal("NaN")`` as a string."""

    def default(self, o: Any) -> Any:
        if isinstance(o, Decimal) and not o.is_finite():
            raise ValueError("not a number")
        return super().default(o)


# Separators as jsonb writes them, so that the size is the size as stored.
_dumps = _Encoder(ensure_ascii=False, allow_nan=False).encode


def _keeps_its_shape(value: Any, levels: int) -> bool:
    """Whether JSON keeps each key as it is, and every database that many levels. On the hot path."""
    if not levels and isinstance(value, _CONTAINERS):
        return False
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        value = value.values()
    elif not isinstance(value, _CONTAINERS):
        return True
    levels -= 1
    for member in value:
        if type(member) not in _LEAVES and not _keeps_its_shape(member, levels):
            return False
    return True


def _text_problem(text: str) -> str | None:
    """Characters that no JSON column holds."""
    try:
        byte_length(text)
    except UnicodeEncodeError:
        return _character_problem(text)
    # A literal backslash before 'u0000' looks the same here, so look closer before refusing.
    return _character_problem(text) if "\\u0000" in text else None


def _character_problem(text: str) -> str | None:
    for path, value in _members(json.loads(text)):
        # Keys and values alike: a key is looked at with the member that it leads to.
        for string in (path[-1] if path else "", value):
            if not isinstance(string, str):
                continue
            if "\0" in string:
                return f"{_place(path)}a NUL character (U+0000) cannot be stored in a database."
            if any("\ud800" <= character <= "\udfff" for character in string):
                return f"{_place(path)}half of a surrogate pair is no character of UTF-8."
    return None


def _first_problem(payload: Any) -> str:
    """Why json refused the payload, or would have changed it: found again, with its place."""
    for path, value in _members(payload):
        if len(path) >= MAX_DEPTH and isinstance(value, _CONTAINERS):
            break
        reason = _reason(path, value)
        if reason is not None:
            return _place(path) + reason
    return (
        f"is nested more than {MAX_DEPTH} levels deep, or contains itself. MariaDB and MySQL store"
        " no deeper JSON."
    )


def _reason(path: tuple[Any, ...], value: Any) -> str | None:
    if path and not isinstance(path[-1], str | _Position):
        kind = type(path[-1]).__name__
        return f"a key is of type {kind}. JSON keys are strings: write str(key) yourself."
    if isinstance(value, _CONTAINERS):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN and Infinity are not JSON."
    if isinstance(value, Decimal) and not value.is_finite():
        return "NaN and Infinity are not JSON."
    try:
        _dumps(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return f"a value of type {type(value).__name__} cannot be written as JSON."
    return None


class _Position(int):
    """An index into a list, told apart from an int that is used as a key."""


def _members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _members(member, (*path, key))
    elif isinstance(value, list | tuple):
        for position, member in enumerate(value):
            yield from _members(member, (*path, _Position(position)))


def _place(path: tuple[Any, ...]) -> str:
    """The path as a JSON pointer (RFC 6901). A key that is no plain name may be data: it is masked."""
    if not path:
        return ""
    return "at " + "".join(f"/{_shown(step)}" for step in path) + ": "


def _shown(step: Any) -> str:
    if isinstance(step, _Position):
        return str(int(step))
    return step if isinstance(step, str) and _NAME.fullmatch(step) else "*"
