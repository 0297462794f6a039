"""The registered event types: a topic and a schema version with the schema of their payloads.

``@event_type`` only writes into a dictionary; the schema is compiled at registration, so a faulty one
is found when the project starts and not when the first event is enqueued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django_outbox.encryption.normalisers import unknown
from django_outbox.event_types.adapters import schema_of
from django_outbox.event_types.marks import Mark, Marks
from django_outbox.event_types.schemas import CompiledSchema, Schema
from django_outbox.topics import form_problem

#: How a sealed member looks on the wire: a JWE in compact form (RFC 7516) in a wrapper.
SEALED_MEMBER: Schema = {
    "type": "object",
    "properties": {"$jwe": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){4}$"}},
    "required": ["$jwe"],
    "additionalProperties": False,
}

Definition = TypeVar("Definition", bound=type[Any])


class InvalidEventType(ValueError):
    """An ``@event_type`` or ``@upcasts`` that cannot be registered. Names topic, version and fault."""

    def __init__(self, topic: str, version: int, reason: str) -> None:
        super().__init__(f"event type {topic!r} version {version}: {reason}")


@dataclass(frozen=True, slots=True)
class EventType:
    """A topic in one schema version, its schema compiled."""

    topic: str
    version: int
    definition: type[Any]
    schema: Schema = field(repr=False)
    marks: Marks = field(repr=False)
    clear: CompiledSchema = field(repr=False)
    """Validates the payload as the producer writes and the handler reads it."""
    wire: CompiledSchema = field(repr=False)
    """Validates the payload as it is stored and travels, personal members sealed."""
    index_by: str = ""
    """JSON pointer of the member by which support can find a person's messages; empty: none."""
    index_normalisers: tuple[str, ...] = ()
    """What is done to that member's value before it is compared."""
    aggregate_id: str = ""
    """JSON pointer of the member that repeats the aggregate's id; empty: none does."""
    sequence: str = ""
    """JSON pointer of the member that repeats the aggregate's sequence; empty: none does."""

    @property
    def has_personal(self) -> bool:
        """Whether any member of the payload is sealed."""
        return self.marks.any(Mark.SENSITIVE)

    @property
    def description(self) -> str:
        """The first paragraph of the definition's docstring, for documents."""
        return str(self.schema.get("description") or "") or _first_paragraph(self.definition)


_registered: dict[tuple[str, int], EventType] = {}
_latest: dict[str, int] = {}


def event_type(
    topic: str,
    *,
    version: int = 1,
    index_by: str = "",
    index_normalisers: Sequence[str] = ("strip", "nfkc", "casefold"),
    aggregate_id: str = "",
    sequence: str = "",
) -> Callable[[Definition], Definition]:
    """Register what the payloads of a topic look like.

    The decorated class has a ``schema`` attribute with a JSON Schema 2020-12, or is a pydantic model,
    a msgspec Struct or a dataclass. Personal members are marked ``"x-gdpr-sensitive": true`` in the
    schema and travel sealed; ``"x-gdpr-forbidden": true`` refuses a member outright.

    ``index_by``, ``aggregate_id`` and ``sequence`` are JSON pointers (RFC 6901) into the payload. What
    orders messages travels readable, so marking such a member is refused. ``index_normalisers`` name
    what is done to the indexed value before it is compared (``encryption.normalisers``). Raises
    ``InvalidEventType`` for a faulty schema and for a topic and version that another class has.
    """

    def register(definition: Definition) -> Definition:
        pointers = {"index_by": index_by, "aggregate_id": aggregate_id, "sequence": sequence}
        made = _make(topic, version, definition, pointers, tuple(index_normalisers))
        known = _registered.get((topic, version))
        if known is not None and _path(known.definition) != _path(definition):
            raise InvalidEventType(
                topic, version, f"is already registered by {_path(known.definition)}."
            )
        _registered[topic, version] = made
        _latest[topic] = max(version, _latest.get(topic, 0))
        return definition

    return register


def find_event_type(topic: str, version: int) -> EventType | None:
    """The event type of this topic in this version, or None."""
    return _registered.get((topic, version))


def latest_version(topic: str) -> int | None:
    """The highest registered version of the topic, or None where it is not registered."""
    return _latest.get(topic)


def all_event_types() -> list[EventType]:
    """Every registered event type, by topic and version."""
    return [_registered[key] for key in sorted(_registered)]


def forget_event_type(topic: str, version: int) -> None:
    """Take a registration back: for tests that register types of their own."""
    _registered.pop((topic, version), None)
    versions = [known for other, known in _registered if other == topic]
    if versions:
        _latest[topic] = max(versions)
    else:
        _latest.pop(topic, None)


def _make(
    topic: str,
    version: int,
    definition: type[Any],
    pointers: Mapping[str, str],
    normalisers: tuple[str, ...],
) -> EventType:
    if type(version) is not int or not 1 <= version <= 32_767:
        raise InvalidEventType(topic, version, "a version is a whole number from 1 to 32,767.")
    if problem := form_problem(topic):
        raise InvalidEventType(topic, version, f"the topic {problem}")
    try:
        schema = schema_of(definition)
        clear = CompiledSchema(schema)
        marks = Marks(schema)
        wire = CompiledSchema(marks.wire_schema(SEALED_MEMBER))
        for name, pointer in pointers.items():
            _check_pointer(marks, name, pointer)
        if wrong := unknown(normalisers):
            raise ValueError(f"index_normalisers: there is no {wrong[0]!r}.")
    except ValueError as error:
        raise InvalidEventType(topic, version, str(error)) from None
    return EventType(
        topic,
        version,
        definition,
        schema,
        marks,
        clear,
        wire,
        index_normalisers=normalisers,
        **pointers,
    )


def _check_pointer(marks: Marks, name: str, pointer: str) -> None:
    if not pointer:
        return
    if not (pointer.startswith("/") and marks.describe(pointer)):
        raise ValueError(f"{name}={pointer!r} is no member that the schema describes.")
    if name == "index_by" and marks.cover(pointer, Mark.FORBIDDEN):
        raise ValueError(f"{name}={pointer!r} is marked {Mark.FORBIDDEN}.")
    if name != "index_by" and marks.cover(pointer, Mark.SENSITIVE):
        raise ValueError(
            f"{name}={pointer!r} is marked {Mark.SENSITIVE}, but what orders messages travels"
            " readable. Use an id that says nothing about a person."
        )


def _path(definition: type[Any]) -> str:
    return f"{definition.__module__}.{definition.__qualname__}"


def _first_paragraph(definition: type[Any]) -> str:
    return (definition.__doc__ or "").strip().split("\n\n", 1)[0]
