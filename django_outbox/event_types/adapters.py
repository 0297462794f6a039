"""Other ways to write a payload down than a schema: pydantic, msgspec, dataclasses.

None of the libraries is needed; each is used only where a project's own class comes from it.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from django_outbox.event_types.schemas import Schema


def schema_of(definition: type[Any]) -> Schema:
    """The JSON Schema of a class's payloads. Raises ``ValueError`` where none can be made."""
    schema = getattr(definition, "schema", None)
    if isinstance(schema, dict):
        return schema
    if _is_pydantic(definition):
        made: Schema = definition.model_json_schema(by_alias=True, mode="serialization")
        return made
    if _is_msgspec(definition):
        return _msgspec_schema(definition)
    if dataclasses.is_dataclass(definition):
        return _dataclass_schema(definition)
    raise ValueError(
        f"{definition.__qualname__} has no 'schema' dict and is neither a pydantic model, a msgspec"
        " Struct nor a dataclass."
    )


def plain_payload(payload: Any) -> Any:
    """The payload as JSON-like Python objects, where it is an instance of such a class."""
    __traceback_hide__ = True
    kind = type(payload)
    if kind in (dict, list, str, int, float, bool, type(None)):
        return payload
    if _is_pydantic(kind):
        return payload.model_dump(mode="json", by_alias=True)
    if _is_msgspec(kind):
        return sys.modules["msgspec"].to_builtins(payload)
    if dataclasses.is_dataclass(kind):
        return dataclasses.asdict(payload)
    return payload


def _is_pydantic(kind: type[Any]) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _is_msgspec(kind: type[Any]) -> bool:
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and issubclass(kind, msgspec.Struct)


def _msgspec_schema(definition: type[Any]) -> Schema:
    import msgspec

    document: dict[str, Any] = msgspec.json.schema(definition)
    return document


def _dataclass_schema(definition: type[Any]) -> Schema:
    """A dataclass's types are read by msgspec or pydantic, whichever is installed."""
    try:
        return _msgspec_schema(definition)
    except ImportError:
        pass
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise ValueError(
            f"{definition.__qualname__} is a dataclass: install msgspec or pydantic to read its"
            " types, or give the class a 'schema'."
        ) from None
    made: Schema = TypeAdapter(definition).json_schema(mode="serialization")
    return made
