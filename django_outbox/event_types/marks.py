"""Which members of a payload a schema marks as personal or forbidden.

A schema is compiled into a graph of ``Place``s that mirrors the shape of its payloads, so that the
decision is made by the path and never by what a value looks like. Marks inside ``allOf``, ``anyOf``,
``oneOf``, ``if``/``then``/``else`` count whichever branch a payload takes: rather one member sealed too
many than one too few. A mark where it could not be acted upon is refused at registration, and so is
a member that one branch marks and another describes without the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, cast
from urllib.parse import unquote

from django_outbox.event_types.schemas import (
    NamePattern,
    Schema,
    escape_step,
    position_of,
    unescape_step,
)

_BRANCHES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")
#: What a payload is not held against as it travels, where it may ask for what is sealed.
_VALUES = ("not", "contains", "minContains", "maxContains")
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


@dataclass(frozen=True, slots=True)
class MarkedMember:
    """A member that is present in a payload and marked in its schema."""

    pointer: str = field(repr=False)
    shown: str
    """The pointer for errors and logs: a name that the schema does not give is ``*``."""
    container: Any = field(repr=False)
    key: str | int = field(repr=False)

    @property
    def value(self) -> Any:
        """What stands there."""
        return self.container[self.key]

    def replace(self, value: Any) -> None:
        """Put something else there, in the payload that was walked."""
        self.container[self.key] = value


class Marks:
    """The marks of one schema. Raises ``ValueError`` for a mark that cannot be acted upon."""

    def __init__(self, schema: Schema) -> None:
        compiler = _Compiler(schema)
        compiler.refuse_documents_within()
        self._schema = schema
        self._root = compiler.place(schema)
        self._places = compiler.places
        if self._root.carried:
            raise ValueError("a mark belongs on members, not on the whole payload.")
        compiler.refuse_marks_out_of_reach()
        self._refuse_half_marked()

    def members(self, payload: Any, mark: Mark) -> Iterator[MarkedMember]:
        """The marked members that are present, outermost only: what is inside one is not listed."""
        if mark in self._root.held:
            yield from _walk([self._root], payload, ("", ""), mark)

    def cover(self, pointer: str, mark: Mark) -> bool:
        """Whether the member at the JSON pointer, or one around it, bears the mark."""
        places = [self._root]
        for step in pointer.split("/")[1:]:
            places = _of_step(places, unescape_step(step))
            if any(mark in place.carried for place in places):
                return True
        return False

    def describe(self, pointer: str) -> bool:
        """Whether the schema names the member at the JSON pointer at all."""
        places = [self._root]
        for step in pointer.split("/")[1:]:
            places = _of_step(places, unescape_step(step))
        return bool(places) and pointer != ""

    def any(self, mark: Mark) -> bool:
        """Whether any member can bear the mark."""
        return mark in self._root.held

    def wire_schema(self, sealed: Schema) -> dict[str, Any]:
        """The schema of the payload as it travels: ``sealed`` in place of every sensitive member.

        What would decide by a sealed value is left out (``not``, ``contains``, an ``if`` that looks
        at one) or loosened (``oneOf`` to ``anyOf``): it holds for the payload once it is open.
        """
        if not self.any(Mark.SENSITIVE):
            return dict(self._schema)
        return cast("dict[str, Any]", self._replaced(self._schema, sealed))

    def _replaced(self, value: Any, sealed: Schema) -> Any:
        if isinstance(value, Mapping):
            place = self._places.get(id(value))
            if place is not None and Mark.SENSITIVE in place.carried:
                return deepcopy(dict(sealed))
            if place is not None:
                value = self._without_values(value)
            return {key: self._replaced(below, sealed) for key, below in value.items()}
        if isinstance(value, list):
            return [self._replaced(below, sealed) for below in value]
        return value

    def _without_values(self, schema: Schema) -> Schema:
        left_out = set(_VALUES)
        if "if" in schema and self._is_concealed(schema["if"]):
            left_out.update(_CONDITIONS)
        kept = {key: below for key, below in schema.items() if key not in left_out}
        if any(map(self._is_concealed, kept.get("oneOf", ()))):
            kept["allOf"] = [*kept.get("allOf", ()), {"anyOf": kept.pop("oneOf")}]
        return kept

    def _is_concealed(self, schema: Any) -> bool:
        place = self._places.get(id(schema))
        return place is not None and Mark.SENSITIVE in place.held

    def _refuse_half_marked(self) -> None:
        seen: set[frozenset[int]] = set()
        waiting: list[list[Place]] = [[self._root]]
        while waiting:
            places = waiting.pop()
            group = frozenset(map(id, places))
            if group in seen or not places:
                continue
            seen.add(group)
            for mark in Mark:
                if len({mark in place.carried for place in places}) == 2:
                    raise ValueError(
                        f"a member is marked {mark} in one place of the schema and described"
                        " without the mark in another; mark it in both."
                    )
            here = [found for place in places for found in place.here]
            names = {name for place in here for name in place.members}
            longest = max((len(place.leading) for place in here), default=0)
            waiting += [_of_member(places, name) for name in names]
            waiting += [[below] for place in here for _, below in place.patterns]
            waiting += [[below for place in here for below in place.others]]
            waiting += [_of_item(places, index) for index in range(longest + 1)]


def _walk(
    places: list[Place], value: Any, at: tuple[str, str], mark: Mark
) -> Iterator[MarkedMember]:
    """``at``: the pointer of the value, and how it is shown."""
    __traceback_hide__ = True
    below: Iterable[tuple[str | int, list[Place]]]
    if isinstance(value, dict):
        below = [(name, _of_member(places, name)) for name in value]
    elif isinstance(value, list):
        below = [(index, _of_item(places, index)) for index in range(len(value))]
    else:
        return
    pointer, shown = at
    for key, found in below:
        if not any(mark in place.held for place in found):
            continue
        step = escape_step(str(key))
        seen = step if isinstance(key, int) or _is_named(places, key) else "*"
        here = (f"{pointer}/{step}", f"{shown}/{seen}")
        if any(mark in place.carried for place in found):
            yield MarkedMember(*here, value, key)
        else:
            yield from _walk(found, value[key], here, mark)


def _is_named(places: Iterable[Place], name: str) -> bool:
    return any(name in here.members for outer in places for here in outer.here)


def _of_step(places: Iterable[Place], step: str) -> list[Place]:
    """What a step of a JSON pointer leads to: a member or, where it is a number, an item."""
    position = position_of(step)
    items = [] if position is None else _of_item(places, position)
    return _of_member(places, step) + items


def _of_member(places: Iterable[Place], name: str) -> list[Place]:
    found: list[Place] = []
    for place in (here for outer in places for here in outer.here):
        named = [place.members[name]] if name in place.members else []
        named += [below for pattern, below in place.patterns if pattern.matches(name)]
        found += named or place.others
    return found


def _of_item(places: Iterable[Place], index: int) -> list[Place]:
    found: list[Place] = []
    for place in (here for outer in places for here in outer.here):
        found += [place.leading[index]] if index < len(place.leading) else place.items
    return found


class _Compiler:
    """Builds places; a ``$ref`` into the same document leads to one shared place, so cycles are fine."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.places: dict[int, Place] = {}  # by identity: the schema outlives this

    def place(self, schema: Any) -> Place:
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
        for key in _BRANCHES:
            place.same += [self.place(below) for below in schema.get(key, [])]
        place.same += [self.place(schema[key]) for key in _CONDITIONS if key in schema]
        place.same += [self.place(below) for below in schema.get("dependentSchemas", {}).values()]
        place.same += [
            self.place(self.resolve(str(schema[key]))) for key in _REFERENCES if key in schema
        ]
        return place

    def resolve(self, reference: str) -> Any:
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
