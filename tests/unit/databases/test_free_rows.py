from __future__ import annotations

import re
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from django_outbox.batches import Limits
from django_outbox.databases.free_rows import (
    EVERYTHING,
    NOTHING,
    Dialect,
    free_rows,
    selected,
)
from django_outbox.topics import EVERY_TOPIC, NO_TOPIC, TopicSelection

DIALECT = Dialect(now="NOW()", matches="topic ~ %s")


def limits(**selections: TopicSelection) -> Limits:
    return Limits(rows=1, bytes=1, lease=timedelta(seconds=1), **selections)


def test_what_is_not_limited_is_not_asked_for() -> None:
    free = free_rows(DIALECT, "t", limits(unordered=EVERY_TOPIC))
    assert free.with_busy == ("", ())
    assert free.condition == ("(lease_expires_at IS NULL OR lease_expires_at <= NOW())", ())


def test_dead_rows_are_read_only_where_some_block() -> None:
    assert "'dead'" not in free_rows(DIALECT, "t", limits()).with_busy[0]
    blocking = free_rows(DIALECT, "t", limits(blocking=TopicSelection.only(["a.*"])))
    assert "'dead'" in blocking.with_busy[0]


def test_parameters_stand_in_the_order_of_their_places() -> None:
    free = free_rows(
        DIALECT,
        "t",
        limits(
            topics=TopicSelection.only(["a.one"]),
            unordered=TopicSelection.only(["b.one"]),
            blocking=TopicSelection.only(["c.one"]),
        ),
    )
    for sql, params in (free.with_busy, free.condition):
        assert sql.count("%s") == len(params)
    assert free.with_busy[1] == (r"^b\.one$", r"^c\.one$")
    assert free.condition[1] == (r"^a\.one$", r"^b\.one$")


def test_everything_and_nothing_are_constants() -> None:
    assert selected(EVERY_TOPIC, DIALECT) == EVERYTHING
    assert selected(NO_TOPIC, DIALECT) == NOTHING


_words = st.sampled_from(["a", "b", "*", "#"])
_patterns = st.lists(_words, min_size=1, max_size=3).map(".".join)
_topics = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(st.tuples(_patterns, st.booleans()), max_size=4), st.booleans(), _topics)
def test_sql_says_what_the_selection_says(
    rules: list[tuple[str, bool]], default: bool, topic: str
) -> None:
    selection = TopicSelection(tuple(rules), default)
    assert evaluate(*selected(selection, DIALECT), topic) == (topic in selection)


def evaluate(sql: str, params: tuple[str, ...], topic: str) -> bool:
    """Run the CASE as a database would: the first branch whose pattern matches."""
    results = re.findall(r"(?:THEN|ELSE) (TRUE|FALSE)", sql) or [sql]
    for pattern, result in zip(params, results, strict=False):
        if re.search(pattern, topic):
            return result == "TRUE"
    return results[-1] == "TRUE"
