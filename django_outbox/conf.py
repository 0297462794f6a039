"""The settings: one frozen, typed, validated object over ``settings.OUTBOX``.

Read at first use and again after Django's ``setting_changed``; never at import. Everything that is
wrong is found at once and reported together, with a guess where a key is misspelt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, TypeVar

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from django_outbox import conf_values as values
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.policies import (
    ArchiveConfig,
    ConsumerSettings,
    PublisherConfig,
    Retention,
    RetryPolicy,
)
from django_outbox.routing import Route, Routes

LOCAL_PUBLISHER = "django_outbox.publishers.local.LocalPublisher"

T = TypeVar("T")


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
        publishers = self.read("PUBLISHERS", values.read_publishers, defaults.publishers)
        parsed = OutboxSettings(
            database=self.read("DATABASE", values.read_alias, defaults.database),
            source=self.read("SOURCE", values.read_source, "") or _default_source(),
            publishers=publishers,
            routes=self.read("ROUTES", values.read_routes, defaults.routes),
            require_event_types=self.read("REQUIRE_EVENT_TYPES", values.read_flag, False),
            max_message_bytes=self.read(
                "MAX_MESSAGE_BYTES", values.read_count, defaults.max_message_bytes
            ),
            batch_size=self.read("BATCH_SIZE", values.read_count, defaults.batch_size),
            batch_bytes=self.read("BATCH_BYTES", values.read_count, defaults.batch_bytes),
            lease=self.read("LEASE", values.read_duration, defaults.lease),
            confirm_timeout=self.read(
                "CONFIRM_TIMEOUT", values.read_duration, defaults.confirm_timeout
            ),
            poll_interval=self.read("POLL_INTERVAL", values.read_interval, defaults.poll_interval),
            wakeup=self.read("WAKEUP", values.read_wakeup, defaults.wakeup),
            retry=RetryPolicy(
                base=self.read("BACKOFF_BASE", values.read_duration, defaults.retry.base),
                cap=self.read("BACKOFF_CAP", values.read_duration, defaults.retry.cap),
                max_attempts=self.read(
                    "MAX_ATTEMPTS", values.read_attempts, defaults.retry.max_attempts
                ),
            ),
            breaker_cap=self.read("BREAKER_CAP", values.read_duration, defaults.breaker_cap),
            shutdown_timeout=self.read(
                "SHUTDOWN_TIMEOUT", values.read_duration, defaults.shutdown_timeout
            ),
            alert_age=self.read("ALERT_AGE", values.read_duration, defaults.alert_age),
            retention=self.read("RETENTION", values.read_retention, defaults.retention),
            archive=self.read("ARCHIVE", values.read_archive, None),
            consumers=self.read("CONSUMERS", values.read_consumers, defaults.consumers),
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
        except values.WrongValue as wrong:
            self.add(f"OUTBOX[{key!r}]{wrong.where} {wrong.what}", wrong.hint)
            return default

    def find_unknown_keys(self) -> None:
        for key in self.raw:
            if key not in self.known:
                self.add(*values.unknown_key("OUTBOX", key, self.known))

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


def _default_source() -> str:
    module = getattr(django_settings, "ROOT_URLCONF", None) or "django"
    return "/" + str(module).split(".", 1)[0]
