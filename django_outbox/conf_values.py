"""The values of ``settings.OUTBOX``, each read and judged on its own.

A converter returns the typed value or raises ``WrongValue``, which says what is wrong, where in the
value, and what to write instead. What it says never holds a value that could be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from django_outbox.policies import (
    ArchiveConfig,
    ConsumerSettings,
    PublisherConfig,
    Retention,
    RetryPolicy,
)
from django_outbox.routing import OnDead, Ordering, Route, Routes
from django_outbox.topics import pattern_regex


class WrongValue(Exception):
    """What is wrong with a value, a hint, and where in it."""

    def __init__(self, what: str, hint: str = "", where: str = "") -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where


def unknown_key(container: str, key: object, known: Collection[str]) -> tuple[str, str]:
    """The problem and the hint for a key that does not exist, with the nearest that does."""
    return (
        f"{container}[{key!r}] is not a setting.{_guess(key, known)}",
        f"Known keys: {', '.join(sorted(known))}.",
    )


def _no_such_key(key: object, known: Collection[str]) -> tuple[str, str]:
    return (
        f"has no key {key!r}.{_guess(key, known)}",
        f"Known keys: {', '.join(sorted(known))}.",
    )


def _guess(key: object, known: Collection[str]) -> str:
    close = difflib.get_close_matches(str(key), known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _str(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise WrongValue(f"must be a non-empty string, not {type(value).__name__}.")
    return value


def read_source(value: Any) -> str:
    source = _str(value)
    if len(source.encode(errors="replace")) > 255:
        raise WrongValue(
            "is longer than 255 bytes, more than AMQP carries.", "A short path will do."
        )
    return source


def read_alias(value: Any) -> str | None:
    return None if value is None else _str(value)


def read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(
            f"must be True or False, not {type(value).__name__}.",
            "With django-environ read it by env.bool(…).",
        )
    return value


def read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongValue(
            "must be a whole number above 0.", "With django-environ read it by env.int(…)."
        )
    return value


def read_attempts(value: Any) -> int:
    attempts = read_count(value)
    if attempts > 32_000:
        raise WrongValue("must be at most 32,000, the size of its column.")
    return attempts


def read_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise WrongValue("must be a timedelta or a number of seconds.")
    if not 0 < seconds < 10**9:
        raise WrongValue("must be more than 0 seconds and less than thirty years.")
    return timedelta(seconds=seconds)


def read_interval(value: Any) -> tuple[timedelta, timedelta]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise WrongValue(
            "must be a pair: the shortest and the longest wait.", "For example (0.2, 1.0)."
        )
    shortest, longest = read_duration(value[0]), read_duration(value[1])
    if shortest > longest:
        raise WrongValue("has a minimum above its maximum.", "Write the shorter wait first.")
    return shortest, longest


def read_wakeup(value: Any) -> Literal["poll", "notify"]:
    if value == "poll":
        return "poll"
    if value == "notify":
        return "notify"
    raise WrongValue("must be 'poll' or 'notify'.", "'notify' needs PostgreSQL.")


def read_publishers(value: Any) -> Mapping[str, PublisherConfig]:
    if not isinstance(value, Mapping) or not value:
        raise WrongValue('must be a dict of aliases: {"default": {"BACKEND": "…", …}}.')
    configs: dict[str, PublisherConfig] = {}
    for alias, entry in value.items():
        where = f"[{alias!r}]"
        if not isinstance(entry, Mapping):
            raise WrongValue('must be a dict: {"BACKEND": "…", …}.', where=where)
        options = dict(entry)
        backend = options.pop("BACKEND", None)
        if not isinstance(backend, str):
            raise WrongValue("needs a BACKEND, the path of a publisher class.", where=where)
        configs[str(alias)] = PublisherConfig(backend, options)
    return configs


def read_routes(value: Any) -> Routes:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise WrongValue('must be a list of pairs: [("invoice.*", {"publisher": "default"})].')
    return Routes(tuple(_route(position, entry) for position, entry in enumerate(value)))


def _route(position: int, entry: Any) -> Route:
    where = f"[{position}]"
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
        raise WrongValue("must be a pair: (topic pattern, options).", where=where)
    pattern, options = entry[0], entry[1]
    if not isinstance(pattern, str) or not isinstance(options, Mapping):
        raise WrongValue("must be a pair: (topic pattern, options).", where=where)
    known = {"publisher", "ordering", "on_dead"}
    for name in options:
        if name not in known:
            raise WrongValue(*_no_such_key(name, known), where=where)
    try:
        pattern_regex(pattern)
        return Route(
            pattern=pattern,
            publisher=str(options.get("publisher", "default")),
            ordering=Ordering(options.get("ordering", Ordering.STRICT)),
            on_dead=OnDead(options.get("on_dead", OnDead.PASS)),
        )
    except ValueError as error:
        raise WrongValue(f"is wrong: {error}", where=where) from None


def read_retention(value: Any) -> Retention:
    if not isinstance(value, Mapping):
        raise WrongValue('must be a dict of durations: {"published": timedelta(days=7)}.')
    defaults = Retention()
    known = {"published", "discarded", "dead", "processed"}
    kept: dict[str, timedelta | None] = {}
    for name, duration in value.items():
        if name not in known:
            raise WrongValue(*_no_such_key(name, known))
        if duration is None:
            kept[name] = None
        elif name == "published" and duration in (0, timedelta(0)):
            kept[name] = timedelta(0)
        else:
            try:
                kept[name] = read_duration(duration)
            except WrongValue as wrong:
                raise WrongValue(wrong.what, wrong.hint, where=f"[{name!r}]") from None
    return Retention(**{name: kept.get(name, getattr(defaults, name)) for name in known})


def read_archive(value: Any) -> ArchiveConfig | None:
    if value is None:
        return None
    options = {"BACKEND": value} if isinstance(value, str) else value
    backend = options.get("BACKEND") if isinstance(options, Mapping) else None
    if not isinstance(backend, str) or not backend:
        raise WrongValue(
            "must be the path of a callable, or a dict with one under BACKEND.",
            'For example {"BACKEND": "django_outbox.operations.archive.JsonLinesArchive",'
            ' "STORAGE": "default"}.',
        )
    return ArchiveConfig(backend, {key: each for key, each in options.items() if key != "BACKEND"})


def read_consumers(value: Any) -> ConsumerSettings:
    if not isinstance(value, Mapping):
        raise WrongValue('must be a dict: {"MAX_ATTEMPTS": 10, "SEEN_IN": "cache"}.')
    defaults = ConsumerSettings()
    readers: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "BACKOFF_BASE": (read_duration, defaults.retry.base),
        "BACKOFF_CAP": (read_duration, defaults.retry.cap),
        "MAX_ATTEMPTS": (read_attempts, defaults.retry.max_attempts),
        "SEEN_IN": (_seen_in, defaults.seen_in),
        "CACHE": (_str, defaults.cache),
    }
    read = {name: default for name, (_, default) in readers.items()}
    for name, given in value.items():
        if name not in readers:
            raise WrongValue(*_no_such_key(name, readers))
        try:
            read[name] = readers[name][0](given)
        except WrongValue as wrong:
            raise WrongValue(wrong.what, wrong.hint, where=f"[{name!r}]") from None
    if read["BACKOFF_BASE"] > read["BACKOFF_CAP"]:
        raise WrongValue("has a BACKOFF_BASE longer than its BACKOFF_CAP.")
    return ConsumerSettings(
        retry=RetryPolicy(read["BACKOFF_BASE"], read["BACKOFF_CAP"], read["MAX_ATTEMPTS"]),
        seen_in=read["SEEN_IN"],
        cache=read["CACHE"],
    )


def _seen_in(value: Any) -> Literal["table", "cache"]:
    if value == "table":
        return "table"
    if value == "cache":
        return "cache"
    raise WrongValue("must be 'table' or 'cache'.", "The cache named by CACHE forgets on its own.")
