"""A message as a CloudEvent, written and read. Pure.

Format: CloudEvents 1.0.2 with its partitioning, sequence and distributed-tracing extensions. Binary
form: every attribute is a header of the transport, with a prefix. Structured form: one JSON object.

What is written is strict, what is read is not: every prefix that a binding uses is accepted, and
values that a broker's client has turned into numbers, bytes or dates are taken back to text. What
cannot be understood raises ``MalformedMessage``, which names the part and holds no value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import JSON_CONTENT_TYPE, HeaderValue, Message

SPECVERSION: Final = "1.0"
STRUCTURED_CONTENT_TYPE: Final = "application/cloudevents+json"
#: The prefixes of the attributes' headers, the one that is written first.
PREFIXES: Final = ("ce-", "ce_", "cloudEvents_", "cloudEvents:")
#: Travel as headers of their own name, where OpenTelemetry looks for them.
TRACE_HEADERS: Final = ("traceparent", "tracestate")
#: Every attribute that ``attributes_of`` writes.
ATTRIBUTES: Final = (
    "specversion",
    "id",
    "source",
    "type",
    "schemaversion",
    "dataschema",
    "time",
    "subject",
    "partitionkey",
    "aggregatetype",
    "sequence",
    "correlationid",
    "causationid",
)

#: What the tables can hold; a longer value could never be recorded as processed.
_LONGEST: Final = {
    "type": 255,
    "subject": 255,
    "aggregatetype": 100,
    "correlationid": 255,
    "causationid": 255,
}
_ATTRIBUTE = re.compile(r"[a-z0-9]+\Z")
_SEQUENCE = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)
_VERSION = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
_NIL = UUID(int=0)


def attributes_of(message: Message) -> dict[str, str]:
    """The CloudEvents attributes of a message, names without prefix, every value as text.

    ``datacontenttype`` is not among them: in binary form it is the transport's content type.
    """
    attributes = {
        "specversion": SPECVERSION,
        "id": str(message.id),
        "source": message.source or "/",
        "type": message.topic,
        "schemaversion": str(message.schema_version),
        "dataschema": dataschema(message.topic, message.schema_version),
    }
    if message.created_at is not None:
        attributes["time"] = _rfc3339(message.created_at)
    if message.aggregate_id:
        attributes["subject"] = attributes["partitionkey"] = message.aggregate_id
    if message.aggregate_type:
        attributes["aggregatetype"] = message.aggregate_type
    if message.sequence is not None:
        attributes["sequence"] = sequence_text(message.sequence)
    if message.correlation_id:
        attributes["correlationid"] = message.correlation_id
    if message.causation_id:
        attributes["causationid"] = message.causation_id
    return attributes


def sequence_text(sequence: int) -> str:
    """A sequence as text that compares as the numbers do: zero-padded to 64 bits."""
    return f"{sequence:019d}" if sequence >= 0 else f"-{-sequence:019d}"


@lru_cache(maxsize=1024)
def dataschema(topic: str, version: int) -> str:
    """A URI that names the payload's schema; it changes whenever the version does."""
    return f"urn:django-outbox:schema:{quote(topic, safe='.-_~')}:{version}"


def message_from(
    attributes: Mapping[str, object],
    body: str,
    headers: Mapping[str, HeaderValue] | None = None,
    *,
    attempt: int = 1,
) -> Message:
    """The message that these attributes (without prefix) and this body make up.

    Attributes that are unknown are ignored. Raises ``MalformedMessage`` where a required one is
    missing or one cannot be understood.
    """
    texts = {
        name: value if type(value) is str and "\0" not in value else _text(name, value)
        for name, value in attributes.items()
        if value is not None
    }
    version = texts.get("specversion", SPECVERSION)
    if not version.startswith("1."):
        raise MalformedMessage("specversion", "is not 1.x")
    own = dict(headers or {})
    for name in TRACE_HEADERS:
        if texts.get(name):
            own.setdefault(name, texts[name])
    return Message(
        id=_message_id(texts.get("id", "")),
        topic=_bounded(texts, "type", required=True),
        body=body,
        headers=own,
        schema_version=_schema_version(texts.get("schemaversion")),
        aggregate_type=_bounded(texts, "aggregatetype"),
        aggregate_id=_bounded(texts, "subject"),
        sequence=_sequence(texts.get("sequence")),
        correlation_id=_bounded(texts, "correlationid"),
        causation_id=_bounded(texts, "causationid"),
        source=texts.get("source", ""),
        created_at=_time(texts.get("time")),
        attempt=attempt,
    )


def split_headers(
    headers: Mapping[Any, object],
) -> tuple[dict[str, object], dict[str, object]]:
    """A transport's headers as (CloudEvents attributes without prefix, all others).

    Where one attribute came under several prefixes, the earlier of ``PREFIXES`` counts.
    """
    found: dict[str, tuple[int, object]] = {}
    others: dict[str, object] = {}
    for name, value in headers.items():
        if not isinstance(name, str):
            continue  # a name that is not UTF-8 is nobody's
        rank, attribute = _attribute(name)
        if attribute is None:
            others[name] = value
        elif attribute not in found or rank < found[attribute][0]:
            found[attribute] = (rank, value)
    return {name: value for name, (_, value) in found.items()}, others


def header_value(value: object) -> HeaderValue:
    """A received header as a value a ``Message`` can hold. Raises ``TypeError`` where it has none."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value
    return _plain_text(value)


def structured_text(message: Message) -> str:
    """The CloudEvent as one JSON object (structured form), the payload's text as it is stored.

    Holds the trace context, but not the caller's own headers: those stay the transport's.
    """
    event: dict[str, HeaderValue] = {**attributes_of(message), "datacontenttype": JSON_CONTENT_TYPE}
    event |= {name: message.headers[name] for name in TRACE_HEADERS if message.headers.get(name)}
    opened = json.dumps(event, ensure_ascii=False, separators=(",", ":"))[:-1]
    return f'{opened},"data":{message.body}}}'


def message_from_structured(
    event: object, headers: Mapping[str, HeaderValue] | None = None, *, attempt: int = 1
) -> Message:
    """The message in a CloudEvent that came as one JSON object, decoded already.

    Raises ``MalformedMessage`` as ``message_from`` does, and where the data is not JSON.
    """
    if not isinstance(event, Mapping):
        raise MalformedMessage("event", "is not a JSON object")
    if not is_json(event.get("datacontenttype")):
        raise MalformedMessage("datacontenttype", "is not JSON")
    attributes = {
        name: value
        for name, value in event.items()
        if name not in {"data", "data_base64", "datacontenttype"}
    }
    return message_from(attributes, _data(event), headers, attempt=attempt)


def parse_structured(
    text: str, headers: Mapping[str, HeaderValue] | None = None, *, attempt: int = 1
) -> Message:
    """As ``message_from_structured``, from the JSON text."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedMessage("body", "is not JSON") from None
    return message_from_structured(event, headers, attempt=attempt)


def is_json(content_type: object) -> bool:
    """Whether a content type says JSON; none at all is taken for JSON."""
    if content_type is None or content_type in ("", JSON_CONTENT_TYPE):
        return True
    if not isinstance(content_type, str):
        return False
    essence = content_type.partition(";")[0].strip().lower()
    return essence in {JSON_CONTENT_TYPE, "text/json"} or essence.endswith("+json")


@lru_cache(maxsize=1024)
def _attribute(name: str) -> tuple[int, str | None]:
    for rank, prefix in enumerate(PREFIXES):
        if name.startswith(prefix) and _ATTRIBUTE.match(name, len(prefix)):
            return rank, name[len(prefix) :]
    return 0, None


def _data(event: Mapping[str, Any]) -> str:
    if "data" in event:
        try:
            return json.dumps(
                event["data"], ensure_ascii=False, separators=(",", ":"), allow_nan=False
            )
        except (TypeError, ValueError):
            raise MalformedMessage("data", "is not JSON") from None
    if "data_base64" in event:
        try:
            return base64.b64decode(event["data_base64"], validate=True).decode()
        except (TypeError, ValueError, binascii.Error):
            raise MalformedMessage("data_base64", "is not UTF-8 text in base64") from None
    raise MalformedMessage("data", "is missing")


def _text(name: str, value: object) -> str:
    try:
        text = _plain_text(value)
    except TypeError:
        raise MalformedMessage(name, f"is of type {type(value).__name__}") from None
    if "\0" in text:
        raise MalformedMessage(name, "holds a NUL character")
    return text


def _plain_text(value: object) -> str:
    """As the CloudEvents type system writes values as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return str(int(value)) if isinstance(value, int) else str(value)
    if isinstance(value, datetime):
        return _rfc3339(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError("bytes that are not UTF-8") from None
    raise TypeError(type(value).__name__)


def _rfc3339(time: datetime) -> str:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def _message_id(text: str) -> UUID:
    if not text:
        raise MalformedMessage("id", "is missing")
    try:
        found = UUID(text)
    except ValueError:
        raise MalformedMessage("id", "is not a UUID") from None
    if found == _NIL:
        raise MalformedMessage("id", "is the nil UUID")
    return found


def _bounded(texts: Mapping[str, str], name: str, *, required: bool = False) -> str:
    text = texts.get(name, "")
    if required and not text:
        raise MalformedMessage(name, "is missing")
    if len(text) > _LONGEST[name]:
        raise MalformedMessage(name, f"is longer than {_LONGEST[name]} characters")
    return text


def _schema_version(text: str | None) -> int:
    if text is None:
        return 1
    if not _VERSION.match(text) or not 1 <= int(text) <= 32_767:
        raise MalformedMessage("schemaversion", "is not a number from 1 to 32,767")
    return int(text)


def _sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not _SEQUENCE.match(text) or not -(2**63) <= int(text) < 2**63:
        raise MalformedMessage("sequence", "is not a 64-bit number")
    return int(text)


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedMessage("time", "is not an RFC 3339 time") from None
    if time.tzinfo is None:
        raise MalformedMessage("time", "has no offset from UTC")
    return time
