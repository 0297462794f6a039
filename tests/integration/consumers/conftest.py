from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.consumers.registry import isolated_registry


@pytest.fixture(autouse=True)
def no_consumers() -> Iterator[None]:
    """Each test declares the consumers it needs."""
    with isolated_registry():
        yield
