"""``manage.py outbox_requeue``: give dead messages another life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_outbox.management.selecting import SelectionCommand
from django_outbox.models import Status
from django_outbox.operations.requeue import requeue
from django_outbox.operations.selection import Selection


class Command(SelectionCommand):
    """Dead to pending, due now."""

    help = "Makes dead messages pending again, due now, their attempts starting over."
    statuses = (Status.DEAD,)
    verb, done = "requeue", "Requeued"

    def work(
        self, selection: Selection, progress: Callable[[int], object], options: dict[str, Any]
    ) -> tuple[int, int]:
        requeued = requeue(selection.messages(), progress=progress)
        return requeued.requeued, requeued.in_flight
