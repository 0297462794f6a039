"""What tells consumers and aggregates apart is compared byte for byte, whatever the database's collation."""

from __future__ import annotations

from itertools import permutations

import pytest

from django_outbox.consumers import Consumer, Processed, process_once
from django_outbox.consumers.external import once_outside
from django_outbox.context import context
from django_outbox.models import AggregateCursor
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)

#: Equal to many a collation: by case, by accent, by trailing space, by normal form, by emoji.
ALIKE = [
    "ledger",
    "Ledger",
    "lédger",
    "le\u0301dger",
    "ledger ",
    "straße",
    "strasse",
    "\U0001f600",
    "\U0001f601",
]


def test_consumers_with_similar_names_have_inboxes_of_their_own(database):
    message = received()
    for name in ALIKE:
        assert process_once(name, message, lambda m: None) is Processed.HANDLED
        assert process_once(name, message, lambda m: None) is Processed.DUPLICATE


@pytest.mark.parametrize("part", ["aggregate_type", "aggregate_id"])
def test_similar_aggregates_have_cursors_of_their_own(database, part):
    view = Consumer(name="view", drop_stale=True, handler=lambda m: None)
    for sequence, name in enumerate(reversed(ALIKE)):
        aggregate = {"aggregate_type": "shop.invoice", "aggregate_id": "7", part: name}
        message = received(**aggregate, sequence=100 - sequence)
        assert process_once(view, message) is Processed.HANDLED
    assert AggregateCursor.objects.count() == len(ALIKE)


def test_calls_with_similar_names_are_made_each(database):
    calls: list[str] = []
    message = received()
    for name, consumer in permutations(ALIKE[:3], 2):
        with context(consumer=consumer):
            once_outside(message, calls.append, name=name)
    assert len(calls) == 6
