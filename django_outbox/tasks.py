"""Tasks for Celery beat: a relay that works now and then, and the pruning.

Both may overlap themselves: leases keep two relays apart, and a second pruner leaves at once.
Schedules: docs/howto/celery.md.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import shared_task

from django_outbox.operations.prune import prune as prune_now
from django_outbox.relay.loop import Relay


@shared_task(name="django_outbox.tasks.relay", ignore_result=True)
def relay(max_seconds: float = 50.0) -> dict[str, Any]:
    """Publish what is due, for at most that many seconds and what is under way then.

    A process of its own (``manage.py outbox_relay``) publishes sooner and is the better choice where
    one can be run.
    """
    return asdict(Relay().drain(max_seconds))


@shared_task(name="django_outbox.tasks.prune", ignore_result=True)
def prune(max_seconds: float = 300.0) -> dict[str, Any]:
    """Delete what is older than ``OUTBOX["RETENTION"]``; what is left then is for the next time."""
    return asdict(prune_now(max_seconds=max_seconds))
