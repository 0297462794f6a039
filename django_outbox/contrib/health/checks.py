"""The check for django-health-check, from version 4: ``"django_outbox.contrib.health.checks.Outbox"``."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable

from django_outbox.contrib.health.looking import look


@dataclasses.dataclass
class Outbox(HealthCheck):  # type: ignore[misc] # it has no types
    """The outbox is read, relays work, their brokers answer, and no message waits for too long.

    Give options as ``("django_outbox.contrib.health.checks.Outbox", {"max_dead": 0})``.
    """

    database: str | None = None
    """The alias; None: the one that is written to."""
    max_age: timedelta | None = None
    """How long a message may be due; None: ``OUTBOX["ALERT_AGE"]``."""
    max_dead: int | None = None
    """How many messages may be dead; None: any number."""
    require_relay: bool = True
    """Whether a relay has to be alive."""

    def run(self) -> None:
        """Raises ``ServiceUnavailable`` with everything that is wrong."""
        _, found = look(self.database, self.max_age, self.max_dead, self.require_relay)
        if found:
            raise ServiceUnavailable(" ".join(each.text for each in found))
