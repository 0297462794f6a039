"""What ``outbox_keys status`` tells: the keys of each ring, and how many values name each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django_outbox.encryption import conf, fingerprints, rotation
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.encryption.keyrings import Keyring
from django_outbox.encryption.models import KeyFingerprint


@dataclass(frozen=True, slots=True)
class KeyReport:
    """Ids, states, fingerprints and counts; no key and no value."""

    #: ring -> kid -> what is known of the key.
    keys: dict[str, dict[str, dict[str, Any]]]
    #: source -> database -> counts.
    values: dict[str, dict[str, rotation.Census]]
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {
            source: {
                using: {
                    "kids": dict(counted.kids),
                    "index_kids": dict(counted.index_kids),
                    "keyless": counted.keyless,
                    "untagged": counted.untagged,
                }
                for using, counted in by_database.items()
            }
            for source, by_database in self.values.items()
        }
        return {"keys": self.keys, "values": values, "problems": self.problems}

    def lines(self) -> Iterator[str]:
        """For people."""
        for ring, keys in self.keys.items():
            yield f"keyring {ring}"
            for kid, known in keys.items():
                used = known["first_used_at"]
                since = f"first used {used:%Y-%m-%d}" if used else "never used"
                yield f"  {kid:<12} {known['state']:<10} {known['fingerprint']}  {since}"
        for source, by_database in self.values.items():
            for using, counted in by_database.items():
                yield f"{source} ({using}): {counted.total:,} values{_counts(counted)}"
        for problem in self.problems:
            yield f"PROBLEM {problem}"


def collect(*, count: bool = True) -> KeyReport:
    """Look at the rings, the fingerprints and, where values are counted, at every source."""
    keys: dict[str, dict[str, dict[str, Any]]] = {}
    problems: list[str] = []
    rings: dict[str, Keyring] = {}
    for name in conf.encryption_settings().providers:
        try:
            rings[name] = conf.keyring(name)
        except EncryptionError as error:
            problems.append(str(error))
    for alias in rotation.databases_with(KeyFingerprint):
        known = fingerprints.known_fingerprints(alias)
        for ring in rings.values():
            for key in ring:
                row = known.get((ring.name, key.kid))
                entry = keys.setdefault(ring.name, {}).setdefault(
                    key.kid,
                    {
                        "state": str(key.state),
                        "fingerprint": key.fingerprint,
                        "first_used_at": None,
                    },
                )
                wrong = None if row is None else fingerprints.compare(row, key, ring)
                if row is not None and entry["first_used_at"] is None:
                    entry["first_used_at"] = row.first_used_at
                if wrong is not None:
                    problems.append(f"{wrong} (database {alias})")
    values = rotation.census() if count else {}
    problems += _unreadable(values, rings)
    return KeyReport(keys, values, problems)


def _unreadable(
    values: dict[str, dict[str, rotation.Census]], rings: dict[str, Keyring]
) -> Iterator[str]:
    for source, by_database in values.items():
        for using, counted in by_database.items():
            for name, kids in ((conf.DEFAULT, counted.kids), (conf.INDEX, counted.index_kids)):
                ring = rings.get(name)
                usable = {key.kid for key in ring.active} if ring else set()
                for kid in sorted(kids.keys() - usable):
                    yield (
                        f"{source} ({using}): {kids[kid]:,} values name the key {kid!r}, which the"
                        f" keyring {name!r} cannot use"
                    )


def _counts(counted: rotation.Census) -> str:
    parts = [f"{kid} {count:,}" for kid, count in sorted(counted.kids.items())]
    parts += [f"index {kid} {count:,}" for kid, count in sorted(counted.index_kids.items())]
    if counted.keyless:
        parts.append(f"in clear {counted.keyless:,}")
    if counted.untagged:
        parts.append(f"not indexed {counted.untagged:,}")
    return f": {', '.join(parts)}" if parts else ""
