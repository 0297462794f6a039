"""Give sealed values another key, while the system runs.

A source is whatever holds sealed values: a column of a model, or what another app registers. One
pass walks it in batches by primary key and writes only where the stored text is still the one that
was read. What is done needs no note of it: it is seen from the stored text, so a run that was killed
goes on where it was. A run is done when a count finds nothing left, not when it reached the end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, router

from django_outbox.encryption import conf, fingerprints
from django_outbox.encryption.exceptions import KeyringError, StillInUse, UnknownKey
from django_outbox.encryption.keyrings import Key, KeyState
from django_outbox.encryption.models import KeyFingerprint

#: A pass that neither changed a row nor met a writer will not do better the next time; even under
#: constant writes there is an end.
_MOST_PASSES = 10


@dataclass(frozen=True, slots=True)
class Census:
    """How many values a source holds, by the key each names. Values that are NULL do not count."""

    kids: Mapping[str, int] = field(default_factory=dict)
    index_kids: Mapping[str, int] = field(default_factory=dict)
    #: In clear, or too damaged to name a key.
    keyless: int = 0
    #: Sealed, but without the tag that the source's blind index needs.
    untagged: int = 0

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.kids.values()) + self.keyless


@dataclass(frozen=True, slots=True)
class Failure:
    """A value that was left as it was. ``reason`` never holds it."""

    pk: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch came to. ``after`` is where the next begins; None when there is none."""

    after: Any
    changed: int = 0
    #: Written by somebody else between reading and writing; the next pass looks again.
    raced: int = 0
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of a source. ``index``: new tags too, under the primary index key."""

    using: str = "default"
    index: bool = False
    dry_run: bool = False
    limit: int = 500
    pause: timedelta = timedelta(0)


class Source(Protocol):
    """Something that holds sealed values and can give them the primary key.

    Each call is a unit of its own: ``step`` reads at most ``task.limit`` values above ``after``, and
    either writes a new one or leaves the old one whole.
    """

    name: str

    def databases(self) -> Iterable[str]:
        """The aliases of the databases that hold values of this source."""
        ...

    def census(self, using: str) -> Census:
        """Count the values by the keys that they name."""
        ...

    def remaining(self, task: Task) -> int:
        """Count the values that are not yet as the task wants them."""
        ...

    def step(self, task: Task, after: Any) -> Step:
        """Treat the next batch above ``after`` (None: from the start)."""
        ...


@dataclass(slots=True)
class Outcome:
    """What a whole run came to. Done only when nothing is left."""

    changed: int = 0
    raced: int = 0
    left: int = 0
    failures: dict[Any, str] = field(default_factory=dict)


_registered: dict[str, Source] = {}


def register_source(source: Source) -> None:
    """Let ``outbox_keys`` and ``outbox_reencrypt`` reach values that no model field holds.

    For an app's ``ready()``. Registering the same name again replaces the source.
    """
    _registered[source.name] = source


def sources() -> list[Source]:
    """Every encrypted field of every model, by its label, and what was registered."""
    # Imported here: an app registers its source before the models are ready.
    from django_outbox.encryption.field_source import FieldSource
    from django_outbox.encryption.registry import encrypted_fields

    columns = [FieldSource(each) for each in encrypted_fields(apps.get_models())]
    return [*sorted(columns, key=lambda source: source.name), *_registered.values()]


def databases_with(model: Any) -> Iterator[str]:
    """The databases on which the model's table exists, each under one alias; "default" goes first."""
    seen: set[tuple[str, ...]] = set()
    for alias in sorted(connections, key=lambda alias: alias != DEFAULT_DB_ALIAS):
        if place_of(alias) in seen or not router.allow_migrate_model(alias, model):
            continue
        if model._meta.db_table in connections[alias].introspection.table_names():
            seen.add(place_of(alias))
            yield alias


def place_of(alias: str) -> tuple[str, ...]:
    """What two aliases of one database have in common."""
    settings = connections[alias].settings_dict
    return tuple(str(settings[key]) for key in ("ENGINE", "HOST", "PORT", "NAME"))


def reencrypt(
    source: Source, task: Task, report: Callable[[Step], None] = lambda step: None
) -> Outcome:
    """Give every value of the source the primary key. ``report`` hears of each batch."""
    outcome = Outcome()
    for _ in range(1 if task.dry_run else _MOST_PASSES):
        moved = 0
        outcome.failures.clear()
        for step in _steps(source, task):
            moved += step.changed + step.raced
            outcome.changed += step.changed
            outcome.raced += step.raced
            outcome.failures |= {failure.pk: failure.reason for failure in step.failures}
            report(step)
        outcome.left = source.remaining(task)
        if not outcome.left or not moved:
            break
    return outcome


def census() -> dict[str, dict[str, Census]]:
    """Every source's values, by source and database."""
    return {
        source.name: {using: source.census(using) for using in source.databases()}
        for source in sources()
    }


def destroy(ring_name: str, kid: str) -> Key:
    """Give a key up for ever: its fingerprint stays, so that the id cannot come back unnoticed.

    Returns what is to stand in the keyring in its place; the key itself is removed there, by a
    person. Raises ``StillInUse`` while one value names it, ``KeyringError`` for the primary key.
    """
    ring = conf.keyring(ring_name)
    key = ring.keys.get(kid)
    if key is None:
        raise UnknownKey("is not in the keyring.", kid=kid, place=ring_name)
    if key.state is KeyState.PRIMARY:
        raise KeyringError(
            "is the primary key. Make another one primary first.", kid=kid, place=ring_name
        )
    in_use: Counter[str] = Counter()
    for name, by_database in census().items():
        for counted in by_database.values():
            kids = counted.index_kids if ring_name == conf.INDEX else counted.kids
            in_use[name] += kids.get(kid, 0)
    if in_use.total():
        where = ", ".join(f"{name} {count:,}" for name, count in in_use.items() if count)
        option = " --index" if ring_name == conf.INDEX else ""
        raise StillInUse(
            f"is in use: {where}. Run outbox_reencrypt{option} first. What it leaves alone, published"
            " messages for example, has to be pruned.",
            kid=kid,
            place=ring_name,
        )
    for alias in databases_with(KeyFingerprint):
        fingerprints.mark_destroyed(ring_name, kid, key.fingerprint, alias)
    return Key.destroyed(kid, key.fingerprint)


def _steps(source: Source, task: Task) -> Iterator[Step]:
    after: Any = None
    while True:
        step = source.step(task, after)
        yield step
        after = step.after
        if after is None:
            return
        if task.pause:
            time.sleep(task.pause.total_seconds())
