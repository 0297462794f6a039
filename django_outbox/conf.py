"""The settings: one frozen, typed, validated object over ``settings.OUTBOX``.

Read at first use and again after Django's ``setting_changed``; never at import. Everything that is
wrong is found at once and reported together, with a guess where a key is misspelt.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, TypeVar

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.routing import OnDead, Ordering, Route, Routes
from django_outbox.topics import pattern_regex

LOCAL_PUBLISHER = "django_outbox.publishers.local.LocalPublisher"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PublisherConfig:
    """One entry of ``OUTBOX["PUBLISHERS"]``: the class's path and what it is made with."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failed message waits, and when it is given up."""

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(hours=1)
    max_attempts: int = 10


@dataclass(frozen=True, slots=True)
class Retention:
    """How long settled rows are kept. None: for ever. Zero for published: deleted at settle."""

    published: timedelta | None = timedelta(days=7)
    discarded: timedelta | None = timedelta(days=30)
    dead: timedelta | None = None
    processed: timedelta | None = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """``OUTBOX["ARCHIVE"]``: the path of a callable, or of a class and what it is made with."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """``OUTBOX["CONSUMERS"]``: how often a failed delivery is repeated, and where "seen" is kept."""

    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(cap=timedelta(minutes=5)))
    seen_in: Literal["table", "cache"] = "table"
    cache: str = "default"
    """The alias in ``CACHES``, where ``seen_in`` is the cache."""


@dataclass(frozen=True)
class OutboxSettings:
    """``settings.OUTBOX`` with every default filled in. See docs/reference/settings.md."""

    database: str | None = None
    source: str = ""
    publishers: Mapping[str, PublisherConfig] = field(
        default_factory=lambda: {"default": PublisherConfig(LOCAL_PUBLISHER)}
    )
    routes: Routes = field(default_factory=lambda: Routes((Route("#"),)))
    require_event_types: bool = False
    max_message_bytes: int = 1024 * 1024
    batch_size: int = 500
    batch_bytes: int = 4 * 1024 * 1024
    lease: timedelta = timedelta(seconds=60)
    confirm_timeout: timedelta = timedelta(seconds=20)
    poll_interval: tuple[timedelta, timedelta] = (timedelta(seconds=0.2), timedelta(seconds=1))
    wakeup: Literal["poll", "notify"] = "poll"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker_cap: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=20)
    alert_age: timedelta = timedelta(minutes=5)
    retention: Retention = field(default_factory=Retention)
    archive: ArchiveConfig | None = None
    consumers: ConsumerSettings = field(default_factory=ConsumerSettings)

    def extra(self, key: str, default: Any = None) -> Any:
        """The raw value of a key that a part above this one understands (listed in EXTRA_KEYS)."""
        return _raw().get(key, default)


#: Keys that other modules parse for themselves; named here so that a slip of the pen is still found.
EXTRA_KEYS: frozenset[str] = frozenset({"TOPOLOGY"})


def outbox_settings() -> OutboxSettings:
    """The settings in force. Raises ``ImproperlyConfiguredOutbox`` naming every key that is wrong."""
    parsed, problems = _read()
    if problems:
        raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
    return parsed


def settings_problems() -> list[tuple[str, str]]:
    """All that is wrong with ``settings.OUTBOX``, as (problem, hint), for the system checks."""
    return list(_read()[1])


def _raw() -> Mapping[str, Any]:
    raw = getattr(django_settings, "OUTBOX", {})
    return raw if isinstance(raw, Mapping) else {}


@lru_cache(maxsize=1)
def _read() -> tuple[OutboxSettings, tuple[tuple[str, str], ...]]:
    raw = getattr(django_settings, "OUTBOX", {})
    if not isinstance(raw, Mapping):
        problem = f"OUTBOX must be a dict, not {type(raw).__name__}."
        return OutboxSettings(), ((problem, 'Write OUTBOX = {"PUBLISHERS": {…}} in the settings.'),)
    reader = _Reader(raw)
    parsed = reader.parse()
    return parsed, tuple(reader.problems)


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == "OUTBOX":
        _read.cache_clear()


setting_changed.connect(_reset, dispatch_uid="django_outbox.conf")


class _Reader:
    """Takes ``settings.OUTBOX`` apart and collects what is wrong instead of stopping at it."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.problems: list[tuple[str, str]] = []
        self.known: set[str] = set(EXTRA_KEYS)

    def parse(self) -> OutboxSettings:
        defaults = OutboxSettings()
        publishers = self.read("PUBLISHERS", _publishers, defaults.publishers)
        parsed = OutboxSettings(
            database=self.read("DATABASE", _optional_str, defaults.database),
            source=self.read("SOURCE", _source, "") or _default_source(),
            publishers=publishers,
            routes=self.read("ROUTES", _routes, defaults.routes),
            require_event_types=self.read("REQUIRE_EVENT_TYPES", _bool, False),
            max_message_bytes=self.read("MAX_MESSAGE_BYTES", _positive, defaults.max_message_bytes),
            batch_size=self.read("BATCH_SIZE", _positive, defaults.batch_size),
            batch_bytes=self.read("BATCH_BYTES", _positive, defaults.batch_bytes),
            lease=self.read("LEASE", _duration, defaults.lease),
            confirm_timeout=self.read("CONFIRM_TIMEOUT", _duration, defaults.confirm_timeout),
            poll_interval=self.read("POLL_INTERVAL", _interval, defaults.poll_interval),
            wakeup=self.read("WAKEUP", _wakeup, defaults.wakeup),
            retry=RetryPolicy(
                base=self.read("BACKOFF_BASE", _duration, defaults.retry.base),
                cap=self.read("BACKOFF_CAP", _duration, defaults.retry.cap),
                max_attempts=self.read("MAX_ATTEMPTS", _attempts, defaults.retry.max_attempts),
            ),
            breaker_cap=self.read("BREAKER_CAP", _duration, defaults.breaker_cap),
            shutdown_timeout=self.read("SHUTDOWN_TIMEOUT", _duration, defaults.shutdown_timeout),
            alert_age=self.read("ALERT_AGE", _duration, defaults.alert_age),
            retention=self.read("RETENTION", _retention, defaults.retention),
            archive=self.read("ARCHIVE", _archive, None),
            consumers=self.read("CONSUMERS", _consumers, defaults.consumers),
        )
        self.find_unknown_keys()
        self.find_contradictions(parsed)
        return parsed

    def read(self, key: str, convert: Callable[[Any], T], default: T) -> T:
        self.known.add(key)
        if key not in self.raw:
            return default
        try:
            return convert(self.raw[key])
        except _Wrong as wrong:
            self.add(f"OUTBOX[{key!r}]{wrong.where} {wrong.what}", wrong.hint)
            return default

    def find_unknown_keys(self) -> None:
        for key in self.raw:
            if key not in self.known:
                self.add(*unknown_key("OUTBOX", key, self.known))

    def find_contradictions(self, parsed: OutboxSettings) -> None:
        for route in parsed.routes.routes:
            if route.publisher not in parsed.publishers:
                self.add(
                    f"OUTBOX['ROUTES'] sends {route.pattern!r} to the publisher"
                    f" {route.publisher!r}, which is not in OUTBOX['PUBLISHERS'].",
                    f"Known publishers: {', '.join(sorted(parsed.publishers))}.",
                )
        if parsed.lease / 2 < parsed.confirm_timeout:
            self.add(
                f"OUTBOX['LEASE'] ({parsed.lease.total_seconds():g} s) leaves no time for"
                f" OUTBOX['CONFIRM_TIMEOUT'] ({parsed.confirm_timeout.total_seconds():g} s).",
                "Messages are handed to the broker until half of the lease is spent and may then"
                " wait for their confirm: make LEASE at least twice CONFIRM_TIMEOUT, or a second"
                " relay sends the same messages.",
            )
        if parsed.retry.base > parsed.retry.cap:
            self.add(
                "OUTBOX['BACKOFF_BASE'] is longer than OUTBOX['BACKOFF_CAP'].",
                "The base is the first wait, the cap the longest one.",
            )
        if parsed.archive is not None and parsed.retention.published == timedelta(0):
            self.add(
                "OUTBOX['ARCHIVE'] is set, but OUTBOX['RETENTION']['published'] is 0: the relay deletes"
                " what it has published, and the archive never sees it.",
                "Keep published messages for a while, an hour will do, or leave ARCHIVE out.",
            )
        kept_in_mind = parsed.retention.processed
        if kept_in_mind and kept_in_mind < parsed.lease + parsed.retry.cap:
            self.add(
                "OUTBOX['RETENTION']['processed'] is shorter than OUTBOX['LEASE'] and"
                " OUTBOX['BACKOFF_CAP'] together.",
                "A message whose confirm was lost is sent again that much later, and a consumer that has"
                " forgotten it by then handles it twice.",
            )
        for name in ("published", "discarded", "dead"):
            kept: timedelta | None = getattr(parsed.retention, name)
            if kept and kept < parsed.lease:
                at_settle = ", or 0 to delete at settle" if name == "published" else ""
                self.add(
                    f"OUTBOX['RETENTION'][{name!r}] is shorter than OUTBOX['LEASE'].",
                    f"Keep settled rows at least as long as a lease{at_settle}.",
                )

    def add(self, problem: str, hint: str) -> None:
        self.problems.append((problem, hint))


class _Wrong(Exception):
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


def _default_source() -> str:
    module = getattr(django_settings, "ROOT_URLCONF", None) or "django"
    return "/" + str(module).split(".", 1)[0]


def _str(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong(f"must be a non-empty string, not {type(value).__name__}.")
    return value


def _source(value: Any) -> str:
    source = _str(value)
    if len(source.encode(errors="replace")) > 255:
        raise _Wrong("is longer than 255 bytes, more than AMQP carries.", "A short path will do.")
    return source


def _optional_str(value: Any) -> str | None:
    return None if value is None else _str(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(
            f"must be True or False, not {type(value).__name__}.",
            "With django-environ read it by env.bool(…).",
        )
    return value


def _positive(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _Wrong(
            "must be a whole number above 0.", "With django-environ read it by env.int(…)."
        )
    return value


def _attempts(value: Any) -> int:
    attempts = _positive(value)
    if attempts > 32_000:
        raise _Wrong("must be at most 32,000, the size of its column.")
    return attempts


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise _Wrong("must be a timedelta or a number of seconds.")
    if not 0 < seconds < 10**9:
        raise _Wrong("must be more than 0 seconds and less than thirty years.")
    return timedelta(seconds=seconds)


def _interval(value: Any) -> tuple[timedelta, timedelta]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _Wrong(
            "must be a pair: the shortest and the longest wait.", "For example (0.2, 1.0)."
        )
    shortest, longest = _duration(value[0]), _duration(value[1])
    if shortest > longest:
        raise _Wrong("has a minimum above its maximum.", "Write the shorter wait first.")
    return shortest, longest


def _wakeup(value: Any) -> Literal["poll", "notify"]:
    if value == "poll":
        return "poll"
    if value == "notify":
        return "notify"
    raise _Wrong("must be 'poll' or 'notify'.", "'notify' needs PostgreSQL.")


def _publishers(value: Any) -> Mapping[str, PublisherConfig]:
    if not isinstance(value, Mapping) or not value:
        raise _Wrong('must be a dict of aliases: {"default": {"BACKEND": "…", …}}.')
    configs: dict[str, PublisherConfig] = {}
    for alias, entry in value.items():
        where = f"[{alias!r}]"
        if not isinstance(entry, Mapping):
            raise _Wrong('must be a dict: {"BACKEND": "…", …}.', where=where)
        options = dict(entry)
        backend = options.pop("BACKEND", None)
        if not isinstance(backend, str):
            raise _Wrong("needs a BACKEND, the path of a publisher class.", where=where)
        configs[str(alias)] = PublisherConfig(backend, options)
    return configs


def _routes(value: Any) -> Routes:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _Wrong('must be a list of pairs: [("invoice.*", {"publisher": "default"})].')
    return Routes(tuple(_route(position, entry) for position, entry in enumerate(value)))


def _route(position: int, entry: Any) -> Route:
    where = f"[{position}]"
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
        raise _Wrong("must be a pair: (topic pattern, options).", where=where)
    pattern, options = entry[0], entry[1]
    if not isinstance(pattern, str) or not isinstance(options, Mapping):
        raise _Wrong("must be a pair: (topic pattern, options).", where=where)
    known = {"publisher", "ordering", "on_dead"}
    for name in options:
        if name not in known:
            raise _Wrong(*_no_such_key(name, known), where=where)
    try:
        pattern_regex(pattern)
        return Route(
            pattern=pattern,
            publisher=str(options.get("publisher", "default")),
            ordering=Ordering(options.get("ordering", Ordering.STRICT)),
            on_dead=OnDead(options.get("on_dead", OnDead.PASS)),
        )
    except ValueError as error:
        raise _Wrong(f"is wrong: {error}", where=where) from None


def _retention(value: Any) -> Retention:
    if not isinstance(value, Mapping):
        raise _Wrong('must be a dict of durations: {"published": timedelta(days=7)}.')
    defaults = Retention()
    known = {"published", "discarded", "dead", "processed"}
    kept: dict[str, timedelta | None] = {}
    for name, duration in value.items():
        if name not in known:
            raise _Wrong(*_no_such_key(name, known))
        if duration is None:
            kept[name] = None
        elif name == "published" and duration in (0, timedelta(0)):
            kept[name] = timedelta(0)
        else:
            try:
                kept[name] = _duration(duration)
            except _Wrong as wrong:
                raise _Wrong(wrong.what, wrong.hint, where=f"[{name!r}]") from None
    return Retention(**{name: kept.get(name, getattr(defaults, name)) for name in known})


def _archive(value: Any) -> ArchiveConfig | None:
    if value is None:
        return None
    options = {"BACKEND": value} if isinstance(value, str) else value
    backend = options.get("BACKEND") if isinstance(options, Mapping) else None
    if not isinstance(backend, str) or not backend:
        raise _Wrong(
            "must be the path of a callable, or a dict with one under BACKEND.",
            'For example {"BACKEND": "django_outbox.operations.archive.JsonLinesArchive",'
            ' "STORAGE": "default"}.',
        )
    return ArchiveConfig(backend, {key: each for key, each in options.items() if key != "BACKEND"})


def _consumers(value: Any) -> ConsumerSettings:
    if not isinstance(value, Mapping):
        raise _Wrong('must be a dict: {"MAX_ATTEMPTS": 10, "SEEN_IN": "cache"}.')
    defaults = ConsumerSettings()
    readers: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "BACKOFF_BASE": (_duration, defaults.retry.base),
        "BACKOFF_CAP": (_duration, defaults.retry.cap),
        "MAX_ATTEMPTS": (_attempts, defaults.retry.max_attempts),
        "SEEN_IN": (_seen_in, defaults.seen_in),
        "CACHE": (_str, defaults.cache),
    }
    read = {name: default for name, (_, default) in readers.items()}
    for name, given in value.items():
        if name not in readers:
            raise _Wrong(*_no_such_key(name, readers))
        try:
            read[name] = readers[name][0](given)
        except _Wrong as wrong:
            raise _Wrong(wrong.what, wrong.hint, where=f"[{name!r}]") from None
    if read["BACKOFF_BASE"] > read["BACKOFF_CAP"]:
        raise _Wrong("has a BACKOFF_BASE longer than its BACKOFF_CAP.")
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
    raise _Wrong("must be 'table' or 'cache'.", "The cache named by CACHE forgets on its own.")
