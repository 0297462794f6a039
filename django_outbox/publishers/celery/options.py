"""The options of the Celery publisher, read and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django_outbox.brokers.options import OptionReader, Problem, WrongOption, flag, seconds, text
from django_outbox.brokers.rabbitmq.options import CONNECTION_KEYS, read_connection_options
from django_outbox.publishers.rabbitmq import DEFAULT_CONFIRM_TIMEOUT
from django_outbox.topics import matches, pattern_regex

_KEYS: Final = CONNECTION_KEYS | {
    "APP",
    "TASKS",
    "QUEUE",
    "EXCHANGE",
    "ROUTING_KEY",
    "MANDATORY",
    "CONFIRM_TIMEOUT",
}
_TASKS_HINT: Final = 'Write {"invoice.*": "ledger.tasks.book_invoice"}; the first match counts.'


@dataclass(frozen=True, slots=True)
class CeleryOptions:
    """The options of one publisher, read."""

    tasks: Mapping[str, str]
    """Topic pattern -> name of the task, in order."""
    app: str = ""
    """The path of a Celery app, whose broker and routing are used. Empty: ``connection`` says it."""
    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The options that say how to connect, unread."""
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    """Empty: the topic."""
    mandatory: bool = True
    confirm_timeout: float = DEFAULT_CONFIRM_TIMEOUT.total_seconds()
    """Seconds."""

    def task_for(self, topic: str) -> str | None:
        """The name of the task that takes the topic."""
        for pattern, task in self.tasks.items():
            if matches(pattern, topic):
                return task
        return None


def read_options(alias: str, options: Mapping[str, Any]) -> tuple[CeleryOptions, list[Problem]]:
    """The options, and all that is wrong with them as (problem, hint)."""
    where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
    reader = OptionReader(options, where)
    nothing: Mapping[str, str] = {}
    read = CeleryOptions(
        tasks=reader.read("TASKS", _tasks, nothing, required=_TASKS_HINT),
        app=reader.read("APP", text, ""),
        connection={key: value for key, value in options.items() if key in CONNECTION_KEYS},
        queue=reader.read("QUEUE", text, ""),
        exchange=reader.read("EXCHANGE", text, ""),
        routing_key=reader.read("ROUTING_KEY", text, ""),
        mandatory=reader.read("MANDATORY", flag, True),
        confirm_timeout=reader.read(
            "CONFIRM_TIMEOUT", seconds, DEFAULT_CONFIRM_TIMEOUT.total_seconds()
        ),
    )
    reader.find_unknown(_KEYS)
    _find_contradictions(reader, read)
    if not read.app:
        reader.problems += read_connection_options(read.connection, where)[1]
    return read, reader.problems


def _find_contradictions(reader: OptionReader, read: CeleryOptions) -> None:
    if read.app and read.connection:
        reader.add(
            f"{reader.where} has both 'APP' and {sorted(read.connection)[0]!r}.",
            "With APP the app's own settings say how to connect; give one or the other.",
        )
    if read.queue and read.exchange:
        reader.add(
            f"{reader.where} has both 'QUEUE' and 'EXCHANGE'.",
            "A queue is addressed directly; an exchange decides by the routing key.",
        )
    if not read.app and not read.queue and not read.exchange:
        reader.add(
            f"{reader.where} does not say where tasks go.",
            "Name the QUEUE that the workers consume, or an EXCHANGE.",
        )


def _tasks(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise WrongOption("must be a dict: topic pattern -> name of a task.", _TASKS_HINT)
    for pattern, task in value.items():
        if not isinstance(task, str) or not task:
            raise WrongOption("names a task that is not a non-empty string.", _TASKS_HINT)
        try:
            pattern_regex(pattern if isinstance(pattern, str) else "")
        except ValueError as error:
            raise WrongOption(f"is wrong: {error}") from None
    return dict(value)
