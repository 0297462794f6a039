"""JSON Schema 2020-12, compiled once; errors that say where and which rule, never what stood there.

The validator's own texts quote the instance, so they are thrown away: only the path and the keyword
are kept. A path can hold a value as well (an object keyed by e-mail address), so a step that the
schema does not name is shown as ``*``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

Schema = Mapping[str, Any]

#: How many violations are listed; one is enough to refuse a payload.
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that a payload breaks: where (a JSON pointer, RFC 6901) and the schema's keyword."""

    pointer: str
    keyword: str

    def __str__(self) -> str:
        return f"{self.pointer or '(the whole payload)'} breaks '{self.keyword}'"


class CompiledSchema:
    """A schema ready to validate many payloads. Safe to share between threads.

    Raises ``ValueError`` for what is no valid schema, or refers to another document: nothing is ever
    fetched.
    """

    def __init__(self, schema: Schema) -> None:
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(schema), validate_formats=True, offline=True
            )
        except jsonschema_rs.ValidationError as error:
            where = "/".join(map(str, error.instance_path)) or "its root"
            raise ValueError(
                f"not a valid JSON Schema 2020-12, at {where}: {error.kind.name}"
            ) from None
        except jsonschema_rs.ReferencingError as error:
            raise ValueError(f"a $ref of the schema cannot be resolved: {error}") from None

    def violations(self, payload: Any) -> list[Violation]:
        """The rules that the payload breaks, at most five; empty where it is valid."""
        __traceback_hide__ = True
        if self._validator.is_valid(payload):
            return []
        found: list[Violation] = []
        for error in self._validator.iter_errors(payload):
            path = error.evaluation_path
            keyword = error.kind.name
            if keyword == "falseSchema":
                # `"additionalProperties": false` is reported as the schema `false` that it holds.
                keyword = next((step for step in reversed(path) if isinstance(step, str)), keyword)
            found.append(Violation(_shown_pointer(error.instance_path, path), keyword))
            if len(found) == _LISTED:
                break
        return found


class NamePattern:
    """Which names a regular expression of a schema matches: the validator's own reading of it.

    Python's differs (``\\s``, ``\\D``, ``$``), and a member that the validator lets through under a
    marked pattern must not escape the mark.
    """

    def __init__(self, pattern: str) -> None:
        self._validator = jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True)

    def matches(self, name: str) -> bool:
        """Whether it is found anywhere in the name."""
        return self._validator.is_valid(name)


def _shown_pointer(instance_path: Iterable[str | int], schema_path: Iterable[str | int]) -> str:
    named = {step for step in schema_path if isinstance(step, str)}
    steps = (str(step) if isinstance(step, int) or step in named else "*" for step in instance_path)
    return "".join("/" + escape_step(step) for step in steps)


def escape_step(step: str) -> str:
    """One member name as a step of a JSON pointer (RFC 6901, section 3)."""
    return step.replace("~", "~0").replace("/", "~1")


def unescape_step(step: str) -> str:
    """A step of a JSON pointer as the member name it stands for (RFC 6901, section 4)."""
    return step.replace("~1", "/").replace("~0", "~")


def position_of(step: str) -> int | None:
    """The array index that a step of a JSON pointer is (RFC 6901, section 4); None if it is none."""
    return int(step) if step.isascii() and step.isdecimal() else None


def member_at(payload: Any, pointer: str) -> Any:
    """What stands at the JSON pointer (RFC 6901); None where nothing does."""
    __traceback_hide__ = True
    found = payload
    for step in pointer.split("/")[1:]:
        name = unescape_step(step)
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list):
            position = position_of(name)
            found = found[position] if position is not None and position < len(found) else None
        else:
            return None
    return found
