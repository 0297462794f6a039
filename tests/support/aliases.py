"""The alias ``default`` as another project would have set it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections


@contextmanager
def set_up(**changes: Any) -> Iterator[None]:
    """Other settings of the alias, for all connections that are opened meanwhile."""
    settings = connections.settings["default"]
    options = {**settings.get("OPTIONS", {}), **changes.pop("OPTIONS", {})}
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = {**settings, "OPTIONS": options, **changes}
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = settings
