"""Which changes of a published schema break somebody.

The rule is strict on purpose: messages of the old schema may still wait in queues while consumers of
the old schema may still read new ones, so a version that has been published may only gain optional
members where others were allowed anyway, and texts for people. Everything else is a new version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django_outbox.event_types.registry import EventType
from django_outbox.event_types.schemas import escape_step

#: Keywords that say nothing about which payloads are valid.
_ANNOTATIONS = frozenset(
    {"title", "description", "examples", "default", "$comment", "deprecated", "$id", "$schema"}
)
#: Keywords that hold named schemas.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})

Snapshot = Mapping[str, Mapping[str, Any]]


def snapshot(event_types: list[EventType]) -> dict[str, dict[str, Any]]:
    """The schemas of all event types as plain JSON: topic -> version -> schema. To be committed."""
    taken: dict[str, dict[str, Any]] = {}
    for event_type in event_types:
        taken.setdefault(event_type.topic, {})[str(event_type.version)] = dict(event_type.schema)
    return taken


def breaking_changes(old: Snapshot, new: Snapshot) -> list[str]:
    """What changed between two snapshots in a way that breaks a producer, a consumer or a queue."""
    found: list[str] = []
    for topic, versions in sorted(old.items()):
        for version, schema in sorted(versions.items()):
            now = new.get(topic, {}).get(version)
            name = f"{topic} version {version}"
            if now is None:
                found.append(f"{name}: removed, but its messages may still be on their way")
            else:
                found += [f"{name}: {change}" for change in _changes(schema, now, "")]
    return found


def _changes(old: Any, new: Any, pointer: str) -> Iterator[str]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield f"{pointer or '/'}: changed"
        return
    for keyword in sorted((set(old) | set(new)) - _ANNOTATIONS):
        at = f"{pointer}/{keyword}"
        if keyword == "properties":
            yield from _property_changes(old, new, at)
        elif keyword == "required":
            yield from _required_changes(old.get(keyword, []), new.get(keyword, []), at)
        elif keyword not in old:
            yield f"{at}: added"
        elif keyword not in new:
            yield f"{at}: removed"
        elif keyword in _NAMED:
            yield from _named_changes(old[keyword], new[keyword], at)
        else:
            yield from _changes(old[keyword], new[keyword], at)


def _property_changes(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    closed = old.get("additionalProperties", old.get("unevaluatedProperties", True)) is False
    for name in sorted(set(after) - set(before)):
        if closed:
            yield (
                f"{at}/{escape_step(name)}: added, but the published schema refuses members that"
                " it does not name"
            )
    yield from _named_changes(before, {name: after[name] for name in after if name in before}, at)


def _named_changes(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for name in sorted(old):
        if name not in new:
            yield f"{at}/{escape_step(name)}: removed"
        else:
            yield from _changes(old[name], new[name], f"{at}/{escape_step(name)}")


def _required_changes(old: list[str], new: list[str], at: str) -> Iterator[str]:
    for name in sorted(set(new) - set(old)):
        yield f"{at}: {name!r} is now required, but messages without it may still be on their way"
    for name in sorted(set(old) - set(new)):
        yield f"{at}: {name!r} is no longer required, but consumers may rely on it"
