"""The child of bench_prune: a pruner, until it is killed."""

from __future__ import annotations

import time

from django.db import connections

from django_outbox.operations.prune import prune
from tests.support.children import Say
from tests.support.isolation import isolation_option


def prune_on(say: Say, isolation: str) -> None:
    """The child's side. ``isolation`` is a level, or empty for the database's own."""
    use_isolation(isolation)
    say("ready")
    while True:
        prune()
        time.sleep(0.1)


def use_isolation(level: str) -> None:
    """From here on connections of this process have the level."""
    options = connections["default"].settings_dict["OPTIONS"]
    options.pop("isolation_level", None)
    if level:
        options |= isolation_option(connections["default"].vendor, level)
    connections["default"].close()
