"""What every database does, a partitioned outbox does as well: the same tests on it."""

from __future__ import annotations

from types import ModuleType

from tests.contract import (
    test_database_claim,
    test_database_insert,
    test_database_order,
    test_database_settle,
)
from tests.support.isolation import isolation
from tests.support.partitioned import database, partitioned

__all__ = ["database", "isolation", "partitioned"]


def _of(module: ModuleType) -> dict[str, object]:
    """Its tests, under names of their own."""
    part = module.__name__.rpartition("_")[2]
    return {
        name.replace("test_", f"test_{part}_", 1): test
        for name, test in vars(module).items()
        if name.startswith("test_") and callable(test)
    }


for each in (test_database_claim, test_database_insert, test_database_order, test_database_settle):
    globals().update(_of(each))
