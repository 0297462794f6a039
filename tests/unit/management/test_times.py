from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest

from django_outbox.management.times import duration, moment_or_age, spoken


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("3d", 259_200), ("1w", 604_800)],
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "h", "2 hours", "-5m", "5y", "9" * 30 + "d"])
def test_what_is_no_duration_is_refused_with_what_would_be(text):
    with pytest.raises(ArgumentTypeError, match="write 90s, 15m, 2h, 3d or 1w"):
        duration(text)


def test_a_time_is_in_the_projects_zone_unless_it_names_one(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    assert moment_or_age("2026-12-01") == datetime(2026, 11, 30, 23, tzinfo=UTC)
    assert moment_or_age("2026-12-01T08:30") == datetime(2026, 12, 1, 7, 30, tzinfo=UTC)
    assert moment_or_age("2026-12-01T08:30:15Z") == datetime(2026, 12, 1, 8, 30, 15, tzinfo=UTC)


def test_an_age_is_told_from_a_time():
    assert moment_or_age("2h") == timedelta(hours=2)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-12-01T25:00"])
def test_what_is_no_time_is_refused_with_what_would_be(text):
    with pytest.raises(ArgumentTypeError, match="is no time: write 2026-12-01"):
        moment_or_age(text)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(milliseconds=12), "12 ms"),
        (timedelta(seconds=5.25), "5.2 s"),
        (timedelta(minutes=3, seconds=4), "3 min 4 s"),
        (timedelta(hours=3, minutes=4), "3 h 4 min"),
        (timedelta(days=2, hours=5), "2 d 5 h"),
    ],
)
def test_a_duration_is_spoken_in_its_two_largest_units(span, text):
    assert spoken(span) == text
