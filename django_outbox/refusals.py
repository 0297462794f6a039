"""What the producer refuses, field by field, before anything is sent to the database.

Each function takes what the caller wrote and returns what the row will hold, or raises the
``RefusedMessage`` of its field. A text of these errors names the field and the rule, never the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from django.db.models import Model

from django_outbox.exceptions import (
    InvalidHeader,
    InvalidIdentifier,
    InvalidMessageId,
    InvalidSchedule,
    InvalidSchemaVersion,
    InvalidSequence,
    InvalidTopic,
)
from django_outbox.messages import HeaderValue
from django_outbox.topics import form_problem
from django_outbox.wire.amqp import SHORT_STRING_BYTES, headers_problem

#: Whose event it is: a saved model instance, or (type, id).
Aggregate: TypeAlias = Model | tuple[str, str | int | UUID] | None

AGGREGATE_TYPE_LENGTH = 100
#: A due time further ahead is taken for a slip (milliseconds for seconds, ``datetime.max``).
LONGEST_DELAY = timedelta(days=36_525)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_SEQUENCE = 2**63 - 1
_LARGEST_VERSION = 2**15 - 1
_NIL = UUID(int=0)

# CloudEvents 1.0 allows no control characters in strings.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def topic_of(topic: str) -> str:
    """Words separated by dots, at most 255 bytes."""
    if not isinstance(topic, str):
        raise InvalidTopic("…", "topic", f"must be a string, not {type(topic).__name__}.")
    plain = _plain(topic)
    problem = _topic_problem(plain)
    if problem is not None:
        shown = plain if plain.isprintable() and len(plain) <= SHORT_STRING_BYTES else "…"
        raise InvalidTopic(shown, "topic", problem)
    return plain


@lru_cache(maxsize=4096)
def _topic_problem(topic: str) -> str | None:
    return form_problem(topic) or _too_long(topic)


def schema_version_of(topic: str, version: int) -> int:
    """1 to 32,767."""
    if not _is_whole(version) or not 1 <= version <= _LARGEST_VERSION:
        raise InvalidSchemaVersion(
            topic, "schema_version", f"must be a whole number from 1 to {_LARGEST_VERSION:,}."
        )
    return version


def message_id_of(topic: str, message_id: UUID | str) -> UUID:
    """The caller's own id: any UUID but the nil one."""
    try:
        chosen = message_id if isinstance(message_id, UUID) else UUID(message_id)
    except (ValueError, TypeError, AttributeError):
        chosen = None
    if chosen is None:
        raise InvalidMessageId(
            topic, "message_id", "must be a UUID, or a string that reads as one."
        )
    if chosen == _NIL:
        raise InvalidMessageId(
            topic, "message_id", "must not be the nil UUID, which names nothing."
        )
    return chosen


def aggregate_of(topic: str, aggregate: Aggregate) -> tuple[str, str]:
    """Type and id as they are stored; two empty strings for an event without an aggregate."""
    if aggregate is None:
        return "", ""
    if isinstance(aggregate, Model):
        aggregate_type, aggregate_id = _of_instance(topic, aggregate)
    elif isinstance(aggregate, tuple) and len(aggregate) == 2:
        aggregate_type, aggregate_id = aggregate
    else:
        raise InvalidIdentifier(
            topic, "aggregate", "must be a model instance or a pair: (type, id)."
        )
    kind = identifier_of(topic, "aggregate type", aggregate_type)
    if len(kind) > AGGREGATE_TYPE_LENGTH:
        raise InvalidIdentifier(
            topic, "aggregate type", f"may have at most {AGGREGATE_TYPE_LENGTH} characters."
        )
    name = identifier_of(topic, "aggregate id", aggregate_id)
    if not kind or not name:
        raise InvalidIdentifier(
            topic, "aggregate", "type and id must not be empty. Leave aggregate out for no order."
        )
    return kind, name


def _of_instance(topic: str, instance: Model) -> tuple[str, Any]:
    if instance.pk is None:
        raise InvalidIdentifier(
            topic, "aggregate", "has no primary key yet: save it before you enqueue its event."
        )
    # A proxy is the same thing under another name.
    concrete = instance._meta.concrete_model or type(instance)
    return concrete._meta.label_lower, instance.pk


def identifier_of(topic: str, field: str, value: str | int | UUID) -> str:
    """An id as text: at most 255 bytes, no control characters."""
    if isinstance(value, str):
        text = _plain(value)
    elif _is_whole(value) or isinstance(value, UUID):
        text = str(value)
    else:
        kind = type(value).__name__
        raise InvalidIdentifier(
            topic,
            field,
            f"must be a string, a whole number or a UUID, not {kind}. For other keys pass"
            " aggregate=(type, id) with the id as you want it written.",
        )
    if text.isascii() and text.isprintable() and len(text) <= SHORT_STRING_BYTES:
        return text
    problem = _character_problem(text) or _too_long(text)
    if problem is not None:
        raise InvalidIdentifier(topic, field, problem)
    return text


def _character_problem(text: str) -> str | None:
    return "must not hold control characters." if _CONTROL.search(text) else None


def sequence_of(topic: str, sequence: int | None) -> int | None:
    """0 or more, within 63 bits."""
    if sequence is None:
        return None
    if not _is_whole(sequence) or not 0 <= sequence <= _LARGEST_SEQUENCE:
        raise InvalidSequence(topic, "sequence", "must be a whole number from 0 to 2^63 - 1.")
    return int(sequence)


def headers_of(
    topic: str, headers: Mapping[str, HeaderValue] | None
) -> tuple[dict[str, HeaderValue], str]:
    """A copy of the caller's headers, and the same as JSON text."""
    if not headers:
        return {}, "{}"
    if not isinstance(headers, Mapping):
        raise InvalidHeader(topic, "headers", "must be a dict of names and plain values.")
    problem = headers_problem(headers)
    if problem is not None:
        raise InvalidHeader(topic, "headers", f"{problem}.")
    copied = dict(headers)
    return copied, json.dumps(copied, ensure_ascii=False)


def due_of(
    topic: str, available_at: datetime | None, delay: timedelta | float | None
) -> tuple[datetime | None, timedelta]:
    """When the message is due: at a time, or after a delay by the database's clock."""
    if available_at is None and delay is None:
        return None, timedelta(0)
    if available_at is not None and delay is not None:
        raise InvalidSchedule(topic, "available_at", "and delay exclude each other: pass one.")
    if available_at is not None:
        return _time_of(topic, available_at), timedelta(0)
    return None, _delay_of(topic, delay)


def _time_of(topic: str, available_at: datetime) -> datetime:
    if not isinstance(available_at, datetime) or available_at.utcoffset() is None:
        raise InvalidSchedule(
            topic, "available_at", "must be a datetime with a time zone, such as timezone.now()."
        )
    # datetime.max in a zone west of Greenwich cannot even be converted.
    latest = datetime.now(UTC) + LONGEST_DELAY
    if not _EARLIEST <= available_at <= latest:
        raise InvalidSchedule(
            topic, "available_at", "must be after 1970 and at most a hundred years ahead."
        )
    return available_at


def _delay_of(topic: str, delay: timedelta | float | None) -> timedelta:
    longest = LONGEST_DELAY.total_seconds()
    if isinstance(delay, timedelta) and timedelta(0) <= delay <= LONGEST_DELAY:
        return delay
    # NaN is in no interval.
    if isinstance(delay, int | float) and not isinstance(delay, bool) and 0 <= delay <= longest:
        return timedelta(seconds=delay)
    raise InvalidSchedule(
        topic,
        "delay",
        "must be a timedelta or a number of seconds, not negative and at most a hundred years.",
    )


def _plain(text: str) -> str:
    # A member of a str Enum is a string, but str() and some drivers write its name.
    return text if type(text) is str else str.__str__(text)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _too_long(text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = None
    if size is None:
        return "must be Unicode text: it holds half of a surrogate pair."
    if size > SHORT_STRING_BYTES:
        return f"is {size:,} bytes long; AMQP carries at most {SHORT_STRING_BYTES}."
    return None
