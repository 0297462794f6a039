"""Signs of life of a relay, for whatever watches processes: is it alive, and can it publish?

Alive is a relay whose loop goes round, also while a broker or the database is away: a restart would
bring neither back. Ready is one that reaches the database and every broker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from django_outbox.publishers.base import Publisher

logger = logging.getLogger(__name__)

#: Seconds between two signs of life, at least: a busy relay makes hundreds of turns a second.
TOUCH_INTERVAL: Final = 1.0
#: Seconds between two questions to the brokers of a relay that has nothing to publish.
PROBE_INTERVAL: Final = 10.0
#: Seconds that the end of a relay waits for an answer, so that no question outlives its publisher.
_GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """How a relay is, after one turn of its loop."""

    database_answers: bool = True
    brokers_down: tuple[str, ...] = ()
    """Publishers whose breaker is open."""
    is_stopping: bool = False

    @property
    def can_publish(self) -> bool:
        """Whether nothing that the relay knows of keeps messages back."""
        return self.database_answers and not self.brokers_down and not self.is_stopping

    def __str__(self) -> str:
        if self.is_stopping:
            return "Stopping."
        if not self.database_answers:
            return "Waiting for the database."
        if self.brokers_down:
            names = ", ".join(map(repr, self.brokers_down))
            return f"Waiting for the broker of {names}."
        return "At work."


#: Is told how the relay is; raises nothing.
Watcher: TypeAlias = Callable[[Condition], object]


class LivenessFile:
    """A file that is touched while the relay's loop goes round."""

    def __init__(self, path: Path) -> None:
        self._file = _MarkerFile(path)
        self._next = 0.0

    def __call__(self, condition: Condition | None = None) -> None:
        """The loop went round, whatever the condition."""
        if monotonic() >= self._next:
            self._next = monotonic() + TOUCH_INTERVAL
            self._file.touch()

    def close(self) -> None:
        """The relay ends."""
        self._file.remove()


class ReadinessFile:
    """A file that exists while the relay reaches its database and its brokers.

    A relay with nothing to publish would not notice that its broker is gone, so the brokers are asked
    at the start and every few seconds, in a thread of its own. An open breaker asks by itself.
    """

    def __init__(self, path: Path, publishers: Mapping[str, Publisher]) -> None:
        self._file = _MarkerFile(path)
        self._publishers = publishers
        self._brokers_answer = False
        self._asking: threading.Thread | None = None
        self._next_question = 0.0
        self._file.remove()

    def __call__(self, condition: Condition) -> None:
        """The loop went round."""
        if condition.brokers_down:
            # The breakers close only when the broker has answered.
            self._brokers_answer = True
            self._next_question = monotonic() + PROBE_INTERVAL
        elif not condition.is_stopping:
            self._ask()
        if condition.can_publish and self._brokers_answer:
            self._file.touch()
        else:
            self._file.remove()

    def close(self) -> None:
        """The relay ends."""
        self._file.remove()
        if self._asking is not None:
            self._asking.join(_GRACE)

    def _ask(self) -> None:
        is_asking = self._asking is not None and self._asking.is_alive()
        if not is_asking and monotonic() >= self._next_question:
            self._next_question = monotonic() + PROBE_INTERVAL
            self._asking = threading.Thread(target=self._hear, name="outbox readiness", daemon=True)
            self._asking.start()

    def _hear(self) -> None:
        answers = []
        for alias, publisher in self._publishers.items():
            try:
                answers.append(publisher.probe())
            except Exception as error:
                answers.append(f"the probe of {alias!r} raised {type(error).__name__}")
        self._brokers_answer = not any(answers)


class _MarkerFile:
    """A file that only exists or does not. A disk that is full stops no relay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_failed = False

    def touch(self) -> None:
        self._try(self._path.touch)

    def remove(self) -> None:
        self._try(lambda: self._path.unlink(missing_ok=True))

    def _try(self, change: Callable[[], object]) -> None:
        try:
            change()
        except OSError as error:
            if not self._has_failed:
                logger.error(
                    "Cannot write %s: %s. Whoever watches it will take the relay for dead.",
                    self._path,
                    type(error).__name__,
                    extra={"event": "marker_file_failed", "path": str(self._path)},
                )
            self._has_failed = True
        else:
            self._has_failed = False
