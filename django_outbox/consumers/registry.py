"""@consumer: which handler takes which topics, under which name.

Plain data, filled while ``consumers.py`` modules are imported: no database, no settings, no broker.
A slip inside one declaration raises there and then. What only shows between declarations, one name
given twice, is reported by ``registry_problems`` for the system checks, and refused at use: two
handlers under one name would share their inbox rows, and each would skip what the other has done.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, TypeVar

from django.db import connections

from django_outbox.exceptions import ImproperlyConfiguredOutbox, UnknownConsumer
from django_outbox.topics import matches, pattern_regex

#: Takes a Message, or a list of them where the consumer has a batch size. What it returns is ignored.
Handler: TypeAlias = Callable[[Any], object]
F = TypeVar("F", bound=Handler)

#: The size of the column ``ProcessedMessage.consumer``.
MAX_NAME = 100
MAX_ATTEMPTS = 32_000
_ASYNC = (
    "the handler is async, and a transaction of Django cannot span an await. Write a plain"
    " function; call async code in it through asgiref.sync.async_to_sync."
)


class Mode(StrEnum):
    """When a message is recorded as processed."""

    TRANSACTIONAL = "transactional"
    """In the transaction of the effect, before the handler runs: an effect exactly once."""
    SEEN = "seen"
    """After the handler has returned, outside of any transaction: at least once, for handlers that
    are idempotent already or that call other systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A named handler of topics. The name is its identity in the inbox: keep it when code moves."""

    name: str
    patterns: tuple[str, ...] = ()
    """Topic patterns, as in AMQP: ``*`` is one word, ``#`` any number of words."""
    handler: Handler = field(repr=False)
    mode: Mode = Mode.TRANSACTIONAL
    drop_stale: bool = False
    """Skip a message whose sequence is not above what its aggregate has seen already."""
    max_attempts: int | None = None
    """Deliveries before the dead-letter queue; None: ``OUTBOX["CONSUMERS"]["MAX_ATTEMPTS"]``."""
    batch: int | None = None
    """The handler takes a list of up to this many messages; None: one message."""
    database: str | None = None
    """The alias that the inbox row and the effect are written to; None: what the routers say."""
    open: bool = True
    """Open the payload's sealed members for the handler; False: it gets them as they travelled."""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ImproperlyConfiguredOutbox(f"@consumer(name={self.name!r}): {problem}")

    def call(self, argument: object) -> None:
        """Call the handler. Raises where it turns out to be async: nothing would have been done."""
        returned = self.handler(argument)
        if inspect.iscoroutine(returned):
            returned.close()
            raise ImproperlyConfiguredOutbox(f"@consumer(name={self.name!r}): {_ASYNC}")

    def takes(self, topic: str) -> bool:
        """Whether one of the patterns covers the topic."""
        return any(matches(pattern, topic) for pattern in self.patterns)


_registered: dict[str, list[Consumer]] = {}


def consumer(
    *patterns: str,
    name: str,
    mode: Mode | str = Mode.TRANSACTIONAL,
    drop_stale: bool = False,
    max_attempts: int | None = None,
    batch: int | None = None,
    database: str | None = None,
    open: bool = True,  # noqa: A002 - what it does to the sealed members
) -> Callable[[F], F]:
    """Make the function the consumer ``name`` of the topics that the patterns cover.

    Two consumers of one topic are two names and two inbox rows. The function itself stays as it is
    and can be called in tests. Raises ``ImproperlyConfiguredOutbox`` for a declaration that cannot
    work; the options are the fields of :class:`Consumer`.
    """
    if not patterns:
        raise ImproperlyConfiguredOutbox(
            f'@consumer(name={name!r}): names no topic. Write @consumer("invoice.issued", …).'
        )

    def register(handler: F) -> F:
        _add(
            Consumer(
                name=name,
                patterns=patterns,
                handler=handler,
                mode=_mode(name, mode),
                drop_stale=drop_stale,
                max_attempts=max_attempts,
                batch=batch,
                database=database,
                open=open,
            )
        )
        return handler

    return register


def consumers_for(topic: str) -> list[Consumer]:
    """The consumers that take this topic, by name. Raises where one name is taken twice."""
    return [found for found in all_consumers() if found.takes(topic)]


def consumer_named(name: str) -> Consumer:
    """The consumer of this name. Raises ``UnknownConsumer``, or where the name is taken twice."""
    found = _registered.get(name)
    if not found:
        raise UnknownConsumer(name, sorted(_registered))
    return _the_only(found)


def is_registered(name: str) -> bool:
    """Whether a consumer of this name was declared."""
    return name in _registered


def all_consumers() -> list[Consumer]:
    """Every consumer, by name. Raises ``ImproperlyConfiguredOutbox`` where a name is taken twice."""
    return [_the_only(_registered[name]) for name in sorted(_registered)]


def registry_problems() -> list[tuple[str, str]]:
    """What only shows when all declarations are there, as (problem, hint), for the system checks."""
    shared = (
        "The name is a consumer's identity in the inbox: two handlers that share one each skip"
        " what the other has done. Give every handler a name of its own."
    )
    missing = f"Known aliases: {', '.join(connections)}."
    declared = [_registered[name] for name in sorted(_registered)]
    return [(_taken_twice(found), shared) for found in declared if len(found) > 1] + [
        (
            f"The consumer {each.name!r} writes to the database {each.database!r}, which is not in DATABASES.",
            missing,
        )
        for found in declared
        for each in found
        if each.database is not None and each.database not in connections
    ]


@contextmanager
def isolated_registry() -> Iterator[None]:
    """An empty registry while the block lasts, for tests that declare consumers of their own."""
    before = dict(_registered)
    _registered.clear()
    try:
        yield
    finally:
        _registered.clear()
        _registered.update(before)


def _add(new: Consumer) -> None:
    # A module that is imported again replaces its own; one function declared twice does not.
    others = [
        old
        for old in _registered.get(new.name, [])
        if old.handler is new.handler or _home(old) != _home(new)
    ]
    _registered[new.name] = [*others, new]


def _the_only(found: list[Consumer]) -> Consumer:
    if len(found) > 1:
        raise ImproperlyConfiguredOutbox(_taken_twice(found))
    return found[0]


def _taken_twice(found: list[Consumer]) -> str:
    homes = " and ".join(_home(each) for each in found)
    return f"The consumer name {found[0].name!r} is taken more than once: by {homes}."


def _home(declared: Consumer) -> str:
    handler = inspect.unwrap(declared.handler)
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', '?')}.{name}"


def _mode(name: str, mode: Mode | str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Mode)
        raise ImproperlyConfiguredOutbox(
            f"@consumer(name={name!r}): mode={mode!r} does not exist. Known modes: {known}."
        ) from None


def _problems(declared: Consumer) -> Iterator[str]:
    if not declared.name or len(declared.name) > MAX_NAME or not declared.name.isprintable():
        yield f"a name has 1 to {MAX_NAME} printable characters."
    for pattern in declared.patterns:
        try:
            pattern_regex(pattern)
        except ValueError as error:
            yield str(error)
    if declared.max_attempts is not None and not 1 <= declared.max_attempts <= MAX_ATTEMPTS:
        yield f"max_attempts must be between 1 and {MAX_ATTEMPTS:,}."
    if declared.batch is not None and declared.batch < 1:
        yield "batch must be a number above 0, or None for one message at a time."
    if declared.mode is Mode.SEEN and declared.drop_stale:
        yield (
            "drop_stale needs mode='transactional': the aggregate's cursor must move in the"
            " transaction of the effect, or a crash between the two drops a message."
        )
    if declared.mode is Mode.SEEN and declared.batch is not None:
        yield (
            "batch needs mode='transactional': a batch is recorded and taken apart in one"
            " transaction."
        )
    yield from _handler_problems(declared)


def _handler_problems(declared: Consumer) -> Iterator[str]:
    handler: Any = declared.handler
    if not callable(handler):
        yield "the handler cannot be called."
        return
    is_function = inspect.isroutine(handler) or isinstance(handler, partial)
    call = handler if is_function else type(handler).__call__
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        yield _ASYNC
    elif inspect.isgeneratorfunction(call):
        yield "the handler is a generator: calling it would do nothing. Write a plain function."
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        takes = "one list of messages" if declared.batch else "one message"
        yield f"the handler must be callable with one positional argument, {takes}."
    except ValueError:
        return  # a builtin that does not tell its signature
