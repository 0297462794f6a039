"""Times as people type them: ``90s``, ``15m``, ``2h``, ``3d``, or a date."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


def duration(text: str) -> timedelta:
    """``90`` or ``90s``, ``15m``, ``2h``, ``3d``, ``1w``. For ``add_argument(type=…)``."""
    found = _DURATION.fullmatch(text.strip())
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2] or "s"]: float(found[1])})
    except OverflowError:
        pass
    raise ArgumentTypeError(f"{text!r} is no duration: write 90s, 15m, 2h, 3d or 1w")


def moment_or_age(text: str) -> datetime | timedelta:
    """A date or time in ISO form, in the project's time zone unless it names one; or an age, as ``2h``.

    For ``add_argument(type=…)``.
    """
    if _DURATION.fullmatch(text.strip()):
        return duration(text)
    try:
        day = parse_date(text.strip())
        found = datetime(day.year, day.month, day.day) if day else parse_datetime(text.strip())  # noqa: DTZ001 - the next line gives it one
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(
            f"{text!r} is no time: write 2026-12-01, 2026-12-01T08:30+01:00, or an age as 2h or 3d"
        )
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def spoken(span: timedelta) -> str:
    """A duration for people, in its two largest units."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
