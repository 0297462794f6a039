"""``OUTBOX["TOPOLOGY"]`` read and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from django_outbox.brokers.options import OptionReader, Problem, WrongOption, text
from django_outbox.brokers.rabbitmq.options import CONNECTION_KEYS
from django_outbox.brokers.rabbitmq.topology import DEFAULT_EXCHANGE, Topology, WorkQueue
from django_outbox.conf import outbox_settings
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.topics import pattern_regex

WHERE: Final = "OUTBOX['TOPOLOGY']"

_KEYS: Final = frozenset({"EXCHANGE", "DEAD_LETTER_EXCHANGE", "QUEUES"}) | CONNECTION_KEYS
_QUEUE_KEYS: Final = frozenset(
    {"BINDINGS", "TYPE", "DELIVERY_LIMIT", "RETRY_DELAYS", "PARTITIONS", "ARGUMENTS"}
)


def topology() -> Topology:
    """What ``OUTBOX["TOPOLOGY"]`` asks for. Raises ``ImproperlyConfiguredOutbox`` where it is wrong."""
    raw = outbox_settings().extra("TOPOLOGY", {})  # noqa: S610 - a setting, no QuerySet
    read, problems = read_topology(raw, _published_to())
    if problems:
        raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
    return read


def connection_settings() -> tuple[Mapping[str, Any], str]:
    """The options that say how to connect, and where in the settings they stand.

    Those of ``OUTBOX["TOPOLOGY"]`` where it has a URL, else those of the publisher ``default``.
    """
    settings = outbox_settings()
    raw = settings.extra("TOPOLOGY", {})  # noqa: S610 - a setting, no QuerySet
    if not (isinstance(raw, Mapping) and "URL" in raw) and "default" in settings.publishers:
        options = settings.publishers["default"].options
        if "URL" in options:
            return _connecting(options), "OUTBOX['PUBLISHERS']['default']"
    return _connecting(raw if isinstance(raw, Mapping) else {}), WHERE


def read_topology(
    raw: object, published_to: str = DEFAULT_EXCHANGE
) -> tuple[Topology, list[Problem]]:
    """The topology, and all that is wrong with the settings as (problem, hint).

    ``published_to`` is the exchange where the settings name none.
    """
    if not isinstance(raw, Mapping):
        return Topology(), [(f"{WHERE} must be a dict.", 'Write {"QUEUES": {"ledger": {…}}}.')]
    reader = OptionReader(raw, WHERE)
    exchange = reader.read("EXCHANGE", _name, published_to)
    dead = reader.read("DEAD_LETTER_EXCHANGE", _name, f"{exchange}.dead")
    none: Mapping[str, Mapping[str, Any]] = {}
    named = reader.read("QUEUES", _queues, none)
    reader.find_unknown(_KEYS)
    queues = []
    for name, options in named.items():
        queue, problems = _read_queue(name, options)
        reader.problems += problems
        queues.append(queue)
    return Topology(exchange, dead, tuple(queues)), reader.problems


def _published_to() -> str:
    """The exchange of the publisher ``default``, where it has one that may be declared."""
    default = outbox_settings().publishers.get("default")
    try:
        return _name(default.options["EXCHANGE"]) if default else DEFAULT_EXCHANGE
    except (KeyError, WrongOption):
        return DEFAULT_EXCHANGE


def _connecting(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in CONNECTION_KEYS}


def _read_queue(name: str, options: Mapping[str, Any]) -> tuple[WorkQueue, list[Problem]]:
    reader = OptionReader(options, f"{WHERE}['QUEUES'][{name!r}]")
    defaults = WorkQueue(name)
    queue = WorkQueue(
        name=name,
        patterns=reader.read("BINDINGS", _patterns, ()),
        kind=reader.read("TYPE", _kind, defaults.kind),
        delivery_limit=reader.read("DELIVERY_LIMIT", _whole(1), defaults.delivery_limit),
        retry_delays=reader.read("RETRY_DELAYS", _delays, defaults.retry_delays),
        partitions=reader.read("PARTITIONS", _whole(0), 0),
        arguments=reader.read("ARGUMENTS", _arguments, {}),
    )
    reader.find_unknown(_QUEUE_KEYS)
    return queue, reader.problems


def _name(value: Any) -> str:
    name = text(value)
    if len(name.encode()) > 200 or name.startswith("amq."):
        raise WrongOption("must be at most 200 bytes long and must not begin with 'amq.'.")
    return name


def _queues(value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise WrongOption('must be a dict of dicts: {"ledger": {"BINDINGS": ["invoice.*"]}}.')
    return {_name(name): options for name, options in value.items()}


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise WrongOption('must be a list of topic patterns: ["invoice.*"].')
    for pattern in value:
        try:
            pattern_regex(pattern if isinstance(pattern, str) else "")
        except ValueError as error:
            raise WrongOption(f"is wrong: {error}") from None
    return tuple(value)


def _kind(value: Any) -> Literal["quorum", "classic"]:
    if value == "quorum":
        return "quorum"
    if value == "classic":
        return "classic"
    raise WrongOption("must be 'quorum' or 'classic'.")


def _whole(least: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10_000:
            raise WrongOption(f"must be a whole number from {least} to 10,000.")
        return value

    return convert


def _delays(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise WrongOption("must be a list of whole seconds: [1, 10, 60, 300].")
    for delay in value:
        if isinstance(delay, bool) or not isinstance(delay, int) or not 1 <= delay <= 86_400:
            raise WrongOption("must hold whole seconds from 1 to 86,400.")
    if list(value) != sorted(set(value)):
        raise WrongOption("must be ascending, each delay once.")
    return tuple(value)


def _arguments(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise WrongOption('must be a dict of queue arguments: {"x-max-length": 100000}.')
    return dict(value)
