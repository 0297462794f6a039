"""What people see where a personal value stands: always the same, whatever the value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

#: Stands for any value. Its length says nothing.
MASK = "••••••"


def mask(value: object) -> str:
    """The mask for a value; an empty string for None, since NULL is no secret."""
    return "" if value is None else MASK


def masked(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A copy of the mapping in which the named members are masked, for logs and audit trails."""
    return {name: mask(value) if name in names else value for name, value in values.items()}
