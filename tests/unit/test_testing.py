"""How a payload that a test asks for is compared with one that was enqueued."""

from __future__ import annotations

import pytest

from django_outbox.testing import _matches


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}),
        ({"a": [{"b": 1}, 2]}, {"a": [{"b": 1, "c": 2}, 2]}),
        ([1, 2], [1, 2]),
        (None, None),
        ("a", "a"),
        (1, 1.0),
    ],
)
def test_it_matches_where_each_member_that_is_named_does(wanted, found):
    assert _matches(wanted, found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2}),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"a": {}}, {"a": []}),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ([], {}),
        (True, 1),
        (0, False),
        ("1", 1),
        (None, 0),
    ],
)
def test_it_does_not_match_where_one_is_missing_or_differs(wanted, found):
    assert not _matches(wanted, found)
