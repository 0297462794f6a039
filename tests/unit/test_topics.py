import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.topics import TopicSelection, matches, pattern_regex

WORDS = st.text("abz09_-", min_size=1, max_size=3)
TOPICS = st.lists(WORDS, min_size=1, max_size=5).map(".".join)
PATTERNS = st.lists(WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=5).map(".".join)


def amqp_matches(pattern: list[str], topic: list[str]) -> bool:
    """The specification's rule, word by word: an independent reading to compare with."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(amqp_matches(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("*", topic[0]) and amqp_matches(pattern[1:], topic[1:])


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("invoice.*", "invoice.issued", True),
        ("invoice.*", "invoice", False),
        ("invoice.*", "invoice.line.added", False),
        ("invoice.#", "invoice", True),
        ("invoice.#", "invoice.line.added", True),
        ("#", "anything.at.all", True),
        ("#.added", "added", True),
        ("#.added", "invoice.line.added", True),
        ("*.line.#", "invoice.line", True),
        ("a.#.b", "a.b", True),
        ("a+b.*", "a+b.c", True),
        ("a.*", "axb", False),
    ],
)
def test_patterns_mean_what_amqp_says(pattern, topic, expected):
    assert matches(pattern, topic) is expected


@given(PATTERNS, TOPICS)
def test_every_pattern_agrees_with_the_specification(pattern, topic):
    assert matches(pattern, topic) is amqp_matches(pattern.split("."), topic.split("."))


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", "a*", "in#voice.x"])
def test_a_faulty_pattern_is_refused(pattern):
    with pytest.raises(ValueError, match=re.escape(repr(pattern))):
        pattern_regex(pattern)


def test_the_first_rule_that_matches_decides():
    selection = TopicSelection((("invoice.paid", False), ("invoice.*", True)), default=False)
    assert "invoice.issued" in selection
    assert "invoice.paid" not in selection
    assert "order.placed" not in selection
