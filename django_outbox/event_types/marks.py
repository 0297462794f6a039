"""Which members of a payload a schema marks as personal or forbidden.

The schema is compiled into places that mirror the shape of its payloads, so that the decision is made by
the path and never by what a value looks like. Marks inside ``allOf``, ``anyOf``, ``oneOf``,
``if``/``then``/``else`` count whichever branch a payload takes: rather one member sealed too many than
one too few. A mark where it could not be acted upon is refused at registration, and so is a member that
one branch marks and another describes without the mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

from django_outbox.event_types.places import (
    CONDITIONS,
    Compiler,
    Mark,
    Place,
    of_item,
    of_member,
    of_step,
)
from django_outbox.event_types.schemas import Schema, escape_step, unescape_step

__all__ = ["Mark", "MarkedMember", "Marks"]

#: What a payload is not held against as it travels, where it may ask for what is sealed.
_VALUES = ("not", "contains", "minContains", "maxContains")


@dataclass(slots=True)
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
        compiler = Compiler(schema)
        compiler.refuse_documents_within()
        self._schema = schema
        self._root = compiler.place(schema)
        self._places = compiler.places
        if self._root.carried:
            raise ValueError("a mark belongs on members, not on the whole payload.")
        compiler.refuse_marks_out_of_reach()
        self._refuse_half_marked()
        self._position = _Position([self._root], {})

    def members(self, payload: Any, mark: Mark) -> Iterator[MarkedMember]:
        """The marked members that are present, outermost only: what is inside one is not listed."""
        if mark in self._position.held:
            yield from _walk(self._position, payload, "", "", mark)

    def cover(self, pointer: str, mark: Mark) -> bool:
        """Whether the member at the JSON pointer, or one around it, bears the mark."""
        places = [self._root]
        for step in pointer.split("/")[1:]:
            places = of_step(places, unescape_step(step))
            if any(mark in place.carried for place in places):
                return True
        return False

    def describe(self, pointer: str) -> bool:
        """Whether the schema names the member at the JSON pointer at all."""
        places = [self._root]
        for step in pointer.split("/")[1:]:
            places = of_step(places, unescape_step(step))
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
            left_out.update(CONDITIONS)
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
            waiting += [of_member(places, name) for name in names]
            waiting += [[below] for place in here for _, below in place.patterns]
            waiting += [[below for place in here for below in place.others]]
            waiting += [of_item(places, index) for index in range(longest + 1)]


class _Position:
    """The places of one position together. Walked at each enqueue, so what is below is kept.

    Positions with the same places are one: their number depends on the schema, not on payloads.
    """

    __slots__ = ("_items", "_known", "_members", "_names", "_places", "carried", "held")

    def __init__(self, places: list[Place], known: dict[frozenset[int], _Position]) -> None:
        self._places = places
        self._known = known
        here = [found for place in places for found in place.here]
        self._names = {name for place in here for name in place.members}
        self._members: dict[str, _Position] = {}
        self._items: list[_Position | None] = [None] * (
            1 + max((len(place.leading) for place in here), default=0)
        )
        # Tuples: a mark in a set would be hashed, in Python, at each step.
        self.carried = tuple({mark for place in places for mark in place.carried})
        self.held = tuple({mark for place in places for mark in place.held})

    def is_named(self, name: str) -> bool:
        """Whether the schema names this member."""
        return name in self._names

    def member(self, name: str) -> _Position:
        found = self._members.get(name)
        if found is None:
            found = self._of(of_member(self._places, name))
            if name in self._names:
                self._members[name] = found
        return found

    def item(self, index: int) -> _Position:
        # Beyond prefixItems one item is like the other.
        index = min(index, len(self._items) - 1)
        found = self._items[index]
        if found is None:
            found = self._items[index] = self._of(of_item(self._places, index))
        return found

    def _of(self, places: list[Place]) -> _Position:
        key = frozenset(map(id, places))
        return self._known.get(key) or self._known.setdefault(key, _Position(places, self._known))


def _walk(
    position: _Position, value: Any, pointer: str, shown: str, mark: Mark
) -> Iterator[MarkedMember]:
    """``shown``: the pointer, without names that the schema does not give."""
    __traceback_hide__ = True
    if isinstance(value, dict):
        for name, below in value.items():
            found = position.member(name)
            if mark in found.held:
                step = f"/{escape_step(name)}"
                seen = shown + (step if position.is_named(name) else "/*")
                if mark in found.carried:
                    yield MarkedMember(pointer + step, seen, value, name)
                else:
                    yield from _walk(found, below, pointer + step, seen, mark)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            found = position.item(index)
            if mark in found.held:
                step = f"/{index}"
                if mark in found.carried:
                    yield MarkedMember(pointer + step, shown + step, value, index)
                else:
                    yield from _walk(found, below, pointer + step, shown + step, mark)
