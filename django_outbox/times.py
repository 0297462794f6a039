"""Times and durations as people read them, in the current time zone."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def local(moment: datetime) -> datetime:
    """The moment on the clock of the current time zone; a naive one is left as it is."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def shown(moment: datetime) -> str:
    """Date and time, short, to the second: at the end of a night it is seconds that count."""
    return f"{formats.date_format(local(moment), 'SHORT_DATE_FORMAT')} {local(moment):%H:%M:%S}"


def as_element(moment: datetime | None) -> SafeString | str:
    """A ``<time>`` element, which programs read to the microsecond; a dash for None."""
    if moment is None:
        return "-"
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), shown(moment))


def in_words(duration: timedelta) -> str:
    """The two largest units of a duration: "3 min 5 s", "2 d 4 h", "0.35 s"."""
    seconds = abs(duration.total_seconds())
    if seconds < 10:
        exact = round(seconds, 2)
        number = formats.number_format(int(exact) if exact.is_integer() else exact)
        return _("%(number)s s") % {"number": number}
    left, words = round(seconds), list[str]()
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {name}")
        if len(words) == 2 or (words and not count):
            break
    return " ".join(words)
