"""How durations and charts are written, and that what is explained is what the code writes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from django_outbox.admin.charts import bars
from django_outbox.admin.explanations import _EXPLANATIONS, explain
from django_outbox.operations.history import Minute
from django_outbox.times import in_words

ROOT = Path(__file__).parents[3] / "django_outbox"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.346, "0.35 s"),
        (9.994, "9.99 s"),
        (10, "10 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (3_720, "1 h 2 min"),
        (90_000, "1 d 1 h"),
        (86_460, "1 d"),
        (-75, "1 min 15 s"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words


def minutes(*numbers: int) -> list[Minute]:
    noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    return [Minute(noon + timedelta(minutes=i), number) for i, number in enumerate(numbers)]


def heights(*numbers: int) -> list[float]:
    return [float(h) for h in re.findall(r'<rect[^>]* height="([\d.]+)"', bars(minutes(*numbers)))]


def test_the_highest_bar_fills_the_chart_and_the_others_are_in_proportion() -> None:
    assert heights(10, 5, 0) == [48, 24, 1]


def test_a_few_beside_very_many_can_still_be_seen() -> None:
    assert heights(1_000_000, 1) == [48, 2]


def test_a_chart_of_nothing_is_a_line() -> None:
    assert heights(0, 0) == [1, 1]
    assert heights() == []


def test_a_chart_says_in_words_what_it_shows() -> None:
    assert 'aria-label="Published in each of the last 2 minutes, at most 1,200"' in bars(
        minutes(7, 1200)
    )


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in _EXPLANATIONS])
def test_what_is_explained_is_what_is_written(pattern: str) -> None:
    """Each alternative stands in the code that writes it, or is a word of the broker's own."""
    code = "\n".join(
        path.read_text("utf-8") for path in ROOT.rglob("*.py") if path.name != "explanations.py"
    )
    brokers_own = {"NOT_FOUND", "ACCESS_REFUSED", "PRECONDITION_FAILED", "too large"}
    for alternative in pattern.removeprefix("^").split("|"):
        words = alternative.replace("\\", "").replace("consumer '", "consumer {name!r}")
        assert words in brokers_own or words in code, words


def test_what_is_unheard_of_is_not_explained() -> None:
    assert explain("something else") == ""
