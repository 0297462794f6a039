"""The worker's view of one delivery to a consumer task: when it is acknowledged, and when it ends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from celery.exceptions import Reject
from celery.worker import state
from celery.worker.request import Request

from django_outbox.consumers.celery.sending import SetAside

logger = logging.getLogger("django_outbox.consumers.celery")


class ConsumerRequest(Request):
    """The worker's view of one delivery: what kills its process does not come back for ever.

    Celery requeues the message of a lost process or of a hard time limit, at once and without end.
    Here it is rejected, to the dead-letter exchange, when its deliveries are used up: as a quorum
    queue counts them; a classic queue only tells a second delivery from a first.
    """

    _process_died = False

    def on_timeout(self, soft: bool, timeout: float) -> None:
        with self._charging(not soft):
            super().on_timeout(soft, timeout)

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, SetAside):
            self.acknowledge()  # its copy is where it belongs
        # A delivery that is put back because nothing could be sent is no death of a process.
        with self._charging(not isinstance(error, Reject)):
            return super().on_failure(exc_info, *args, **kwargs)

    def reject(self, requeue: bool = False) -> None:
        """Reject the delivery; ``requeue`` is granted while deliveries are left."""
        if self.acknowledged:
            return  # Celery rejects a hard time limit twice
        if requeue and self._process_died and not state.should_terminate:
            requeue = not self._is_used_up()
        super().reject(requeue=requeue)

    @contextlib.contextmanager
    def _charging(self, died: bool) -> Iterator[None]:
        self._process_died = died
        try:
            yield
        finally:
            self._process_died = False

    def _is_used_up(self) -> bool:
        task: Any = self.task
        headers: dict[str, Any] = self.request_dict
        counted = headers.get("x-delivery-count")
        before = counted if isinstance(counted, int) else 0
        # A classic queue does not count: there a second delivery may be any later one.
        is_uncounted = not isinstance(counted, int) and bool(self.delivery_info.get("redelivered"))
        attempt = int(headers.get("retries") or 0) + before + 1
        used_up = is_uncounted or attempt >= task.retry_policy.max_attempts
        if used_up:
            logger.error(
                "%s: message %s ended its worker process again and is rejected to the"
                " dead-letter exchange.",
                task.name,
                self.id,
                extra={
                    "event": "delivery_set_aside",
                    "consumer": task.name,
                    "message_id": str(self.id),
                },
            )
        return bool(used_up)
