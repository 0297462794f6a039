"""One look at the outbox, for the view and the check alike."""

from __future__ import annotations

from datetime import timedelta

from django.db import Error as DatabaseError

from django_outbox.conf import outbox_settings
from django_outbox.databases import outbox_alias
from django_outbox.databases.borrowing import borrowed_connection
from django_outbox.operations.health import Limits, Trouble, database_trouble, troubles
from django_outbox.operations.stats import Stats, collect_stats


def look(
    database: str | None,
    max_age: timedelta | None,
    max_dead: int | None,
    require_relay: bool,
) -> tuple[Stats | None, list[Trouble]]:
    """The state, and what is wrong with it; None where the database does not answer."""
    alias = database or outbox_alias()
    if max_age is None:
        max_age = outbox_settings().alert_age
    limits = Limits(max_age, max_dead, require_relay)
    try:
        with borrowed_connection(alias):
            stats = collect_stats(database=alias)
    except DatabaseError as error:
        return None, [database_trouble(alias, error)]
    return stats, troubles(stats, limits)
