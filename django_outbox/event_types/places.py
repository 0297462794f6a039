"""A schema as a graph of places that mirrors the shape of its payloads.

``$ref`` into the same document leads to one shared place, so cycles are fine. What a place says of
members and items is asked through ``of_member`` and ``of_item``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from django_outbox.event_types.schemas import NamePattern, Schema, position_of, unescape_step

BRANCHES = ("allOf", "anyOf", "oneOf")
CONDITIONS = ("if", "then", "else")
_UNNAMED = ("additionalProperties", "unevaluatedProperties")
_REPEATED = ("items", "unevaluatedItems")
#: In a document of one resource, as ours are, a dynamic reference has one anchor it can lead to.
_REFERENCES = ("$ref", "$dynamicRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")


class Mark(StrEnum):
    """What a schema can say of a member."""

    SENSITIVE = "x-gdpr-sensitive"
    FORBIDDEN = "x-gdpr-forbidden"


@dataclass(eq=False)
class Place:
    """What one schema object says of one position in a payload, and of the positions below it."""

    marks: frozenset[Mark]
    members: dict[str, Place] = field(default_factory=dict)
    patterns: list[tuple[NamePattern, Place]] = field(default_factory=list)
    others: list[Place] = field(default_factory=list)
    """What holds for members that neither ``members`` nor ``patterns`` name."""
    leading: list[Place] = field(default_factory=list)
    """``prefixItems``, by position."""
    items: list[Place] = field(default_factory=list)
    same: list[Place] = field(default_factory=list)
    """Further places that speak of this very position: branches and references."""

    # Read at each enqueue, and the graph no longer changes once its schema is compiled.

    @cached_property
    def here(self) -> list[Place]:
        """This place and, through branches and references, all that speak of the same position."""
        return _reachable(self, lambda place: place.same)

    @cached_property
    def carried(self) -> frozenset[Mark]:
        """The marks that this place, or a branch or reference of it, bears."""
        return frozenset(mark for place in self.here for mark in place.marks)

    @cached_property
    def held(self) -> frozenset[Mark]:
        """The marks that this position, or one anywhere below it, can bear."""
        return frozenset(mark for place in _reachable(self, Place._next) for mark in place.marks)

    def _next(self) -> list[Place]:
        named = [*self.members.values(), *(below for _, below in self.patterns)]
        return [*self.same, *named, *self.others, *self.leading, *self.items]


def _reachable(place: Place, following: Callable[[Place], Sequence[Place]]) -> list[Place]:
    found: dict[int, Place] = {}
    waiting = [place]
    while waiting:
        place = waiting.pop()
        if id(place) not in found:
            found[id(place)] = place
            waiting += reversed(following(place))
    return list(found.values())


def of_step(places: Iterable[Place], step: str) -> list[Place]:
    """What a step of a JSON pointer leads to: a member or, where it is a number, an item."""
    position = position_of(step)
    items = [] if position is None else of_item(places, position)
    return of_member(places, step) + items


def of_member(places: Iterable[Place], name: str) -> list[Place]:
    """The places that speak of the member of this name."""
    found: list[Place] = []
    for place in (here for outer in places for here in outer.here):
        named = [place.members[name]] if name in place.members else []
        named += [below for pattern, below in place.patterns if pattern.matches(name)]
        found += named or place.others
    return found


def of_item(places: Iterable[Place], index: int) -> list[Place]:
    """The places that speak of the item at this index."""
    found: list[Place] = []
    for place in (here for outer in places for here in outer.here):
        found += [place.leading[index]] if index < len(place.leading) else place.items
    return found


class Compiler:
    """Builds the places of one schema. Raises ``ValueError`` for what cannot be followed."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.places: dict[int, Place] = {}  # by identity: the schema outlives this

    def place(self, schema: Any) -> Place:
        """What this schema object says of its position, and all below."""
        if not isinstance(schema, Mapping):
            return Place(frozenset())
        if id(schema) in self.places:
            return self.places[id(schema)]
        place = Place(frozenset(mark for mark in Mark if _flag(schema, mark)))
        self.places[id(schema)] = place
        for name, below in schema.get("properties", {}).items():
            place.members[name] = self.place(below)
        for pattern, below in schema.get("patternProperties", {}).items():
            place.patterns.append((NamePattern(pattern), self.place(below)))
        # true and false describe nothing: they allow or refuse what is described elsewhere.
        place.others += [
            self.place(schema[key]) for key in _UNNAMED if isinstance(schema.get(key), Mapping)
        ]
        place.leading += [self.place(below) for below in schema.get("prefixItems", [])]
        place.items += [
            self.place(schema[key]) for key in _REPEATED if isinstance(schema.get(key), Mapping)
        ]
        for key in BRANCHES:
            place.same += [self.place(below) for below in schema.get(key, [])]
        place.same += [self.place(schema[key]) for key in CONDITIONS if key in schema]
        place.same += [self.place(below) for below in schema.get("dependentSchemas", {}).values()]
        place.same += [
            self.place(self.resolve(str(schema[key]))) for key in _REFERENCES if key in schema
        ]
        return place

    def resolve(self, reference: str) -> Any:
        """What a reference leads to."""
        reference = unquote(reference)
        if not reference.startswith("#"):
            raise ValueError(f"$ref {reference!r} leaves the document; copy it under $defs.")
        if reference != "#" and not reference.startswith("#/"):
            return self.anchor(reference[1:])
        found: Any = self.root
        for step in reference.split("/")[1:]:
            name = unescape_step(step)
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError):
                raise ValueError(f"$ref {reference!r} points to nothing.") from None
        return found

    def anchor(self, name: str) -> Any:
        """The schema with this anchor."""
        for schema in _schemas(self.root):
            if any(schema.get(key) == name for key in _ANCHORS):
                return schema
        raise ValueError(f"$ref {'#' + name!r} points to nothing.")

    def refuse_documents_within(self) -> None:
        """References below an ``$id`` would begin there, and the marks they lead to be others."""
        for schema in _schemas(self.root):
            if schema is not self.root and isinstance(schema.get("$id"), str):
                raise ValueError(
                    "a schema with an $id of its own stands inside of the schema; take the $id out,"
                    " and refer to it by its place."
                )

    def refuse_marks_out_of_reach(self) -> None:
        """Marks that no payload's member is looked up at."""
        for schema in _schemas(self.root):
            for mark in Mark:
                if schema.get(mark) is True and id(schema) not in self.places:
                    raise ValueError(
                        f"{mark} stands where it cannot be acted upon (under 'not', 'contains',"
                        " 'propertyNames', or in an unused definition). Mark the member itself,"
                        " under 'properties' or 'items'."
                    )


def _flag(schema: Schema, mark: Mark) -> bool:
    value = schema.get(mark, False)
    if not isinstance(value, bool):
        raise ValueError(f"{mark} must be true or false.")
    return value


def _schemas(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of the document that could be a schema."""
    if isinstance(value, Mapping):
        yield value
        for key, below in value.items():
            if key not in ("const", "enum", "default", "examples"):
                yield from _schemas(below)
    elif isinstance(value, list):
        for below in value:
            yield from _schemas(below)
