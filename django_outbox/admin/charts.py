"""Charts as SVG, drawn here: no script, no style attribute; their colours are classes of admin.css."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils import formats
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_outbox.operations.history import Minute
from django_outbox.times import local

#: User units; the element is as wide as its container.
_WIDTH, _HEIGHT, _GAP = 300, 48, 2


def bars(minutes: Sequence[Minute]) -> SafeString:
    """One bar a minute, the present one paler: it is not over. Named for those who cannot see it."""
    most = max((minute.published for minute in minutes), default=0)
    step = _WIDTH / max(len(minutes), 1)
    drawn = format_html_join(
        "",
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (
                "outbox-bar" if index < len(minutes) - 1 else "outbox-bar outbox-bar-now",
                f"{index * step:.2f}",
                f"{_HEIGHT - height:.2f}",
                f"{max(step - _GAP, 1):.2f}",
                f"{height:.2f}",
                _("%(time)s: %(number)s")
                % {
                    "time": f"{local(minute.begins):%H:%M}",
                    "number": formats.number_format(minute.published, force_grouping=True),
                },
            )
            for index, minute in enumerate(minutes)
            for height in [_height(minute.published, most)]
        ),
    )
    name = _("Published in each of the last %(minutes)d minutes, at most %(most)s") % {
        "minutes": len(minutes),
        "most": formats.number_format(most, force_grouping=True),
    }
    return format_html(
        '<svg class="outbox-chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>',
        _WIDTH,
        _HEIGHT,
        name,
        drawn,
    )


def _height(number: int, most: int) -> float:
    if not number:
        return 1.0  # a line on the ground: a minute without messages is a minute all the same
    return max(number / most * _HEIGHT, 2.0)
