"""How the admin's templates write numbers and times.

Django imports this in every project that renders templates, with the admin or without: nothing here may
need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import template
from django.utils import formats

from django_outbox.times import as_element

if TYPE_CHECKING:
    from django_outbox.operations.counts import Count

register = template.Library()
register.filter("outbox_time", as_element)


@register.filter
def outbox_number(number: int) -> str:
    """With the language's separators, whatever the settings say: five digits and more are compared."""
    return formats.number_format(number, force_grouping=True)


@register.filter
def outbox_count(count: Count | None) -> str:
    """A count, an estimate with a tilde; a dash where nothing was counted."""
    if count is None:
        return "-"
    return f"{'~' if count.is_estimate else ''}{outbox_number(count.number)}"


@register.filter
def outbox_rate(rate: float) -> str:
    """Messages a minute: whole ones, but for the slow."""
    number = round(rate, 1)
    return (
        outbox_number(round(rate)) if rate >= 10 or number == 0 else formats.number_format(number)
    )
