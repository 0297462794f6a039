"""A wrong key under a known id stops here, before anything is written.

Each process compares a key with the table of fingerprints once, at the key's first use on a
database. A key that is new there is recorded by ``migrate``, or else in the transaction of the first
value sealed under it: both stay or neither does.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import OperationalError, ProgrammingError, connections, router, transaction
from django.db.models.functions import Now

from django_outbox.encryption import conf
from django_outbox.encryption.aead import open_stored, seal
from django_outbox.encryption.derivation import blind_tag
from django_outbox.encryption.exceptions import EncryptionError, KeyDestroyed, WrongKey
from django_outbox.encryption.keyrings import Key, Keyring, KeyState
from django_outbox.encryption.models import KeyFingerprint

_Use = tuple[str, str, str, str]

CANARY_CONTEXT = "django_outbox_encryption.keyfingerprint.canary"
CANARY = "canary"

#: (database, ring, kid, fingerprint) that were compared and found right in this process.
_verified: set[_Use] = set()
#: Those that this process has recorded and not yet seen committed.
_uncommitted: set[_Use] = set()
#: The list of commit hooks with which each of them was last seen. Django makes another one at every
#: rollback, to a savepoint too: while it is the same, the row is still there.
_seen_with: dict[_Use, list[Any]] = {}
#: Those that were not recorded when a search looked, and when to look again (monotonic seconds).
_absent: dict[_Use, float] = {}
_ABSENT_FOR = 60.0


def _forget() -> None:
    _verified.clear()
    _seen_with.clear()
    _absent.clear()


conf.on_change.append(_forget)


def verify_for_writing(ring: Keyring, using: str) -> Key:
    """The ring's primary key, known on the database to be the right one; recorded when it is new.

    Raises ``WrongKey``, or ``KeyDestroyed`` when the id was given up before.
    """
    key = ring.primary
    if (using, ring.name, key.kid, key.fingerprint) not in _verified:
        _verify(ring, key, using, record=True)
    return key


def verify_for_searching(ring: Keyring, using: str) -> tuple[Key, ...]:
    """The ring's active keys, none of them another than is known under its id. Writes nothing.

    With a wrong index key every search would come back empty, without an error.
    """
    for key in ring.active:
        use = (using, ring.name, key.kid, key.fingerprint)
        if use not in _verified and _absent.get(use, 0.0) <= time.monotonic():
            _verify(ring, key, using, record=False)
    return ring.active


def known_fingerprints(using: str) -> dict[tuple[str, str], KeyFingerprint]:
    """Every fingerprint recorded beside the data of this database, by ring and kid."""
    rows = KeyFingerprint.objects.using(_home(using))
    return {(row.ring, row.kid): row for row in rows.order_by("ring", "kid")}


def compare(row: KeyFingerprint, key: Key, ring: Keyring) -> EncryptionError | None:
    """What is wrong between a recorded fingerprint and the key of that id, if anything."""
    if row.fingerprint != key.fingerprint:
        return WrongKey(
            f"is another key than the one first used under this id on {row.first_used_at:%Y-%m-%d}"
            f" (fingerprint {row.fingerprint}, now {key.fingerprint}). Put the old key back, and"
            " give the new one an id of its own.",
            kid=key.kid,
            place=ring.name,
        )
    if key.state is KeyState.DESTROYED:
        return None
    if row.destroyed_at is not None:
        return KeyDestroyed(
            f"was destroyed on {row.destroyed_at:%Y-%m-%d} and is back in the keyring.",
            kid=key.kid,
            place=ring.name,
        )
    if key.state is not KeyState.DISABLED and not _canary_opens(row.canary, key, ring):
        return WrongKey("does not open its canary.", kid=key.kid, place=ring.name)
    return None


def mark_destroyed(ring: str, kid: str, fingerprint: str, using: str) -> None:
    """Keep for ever that this key is gone."""
    KeyFingerprint.objects.using(_home(using)).update_or_create(
        ring=ring, kid=kid, defaults={"fingerprint": fingerprint, "destroyed_at": Now()}
    )


def record_after_migrate(*, using: str, **kwargs: Any) -> None:
    """Record the active keys while nothing else waits for it (Django's ``post_migrate``).

    Rings that are missing, wrong or far away are left to the first write and the checks.
    """
    connection = connections[using]
    if KeyFingerprint._meta.db_table not in connection.introspection.table_names():
        return
    if conf.settings_problems():
        return
    for name, provider in conf.encryption_settings().providers.items():
        if provider.local:
            with suppress(EncryptionError):
                ring = conf.keyring(name)
                for key in ring.active:
                    _verify(ring, key, using, record=True)


def _verify(ring: Keyring, key: Key, using: str, *, record: bool) -> None:
    home = _home(using)
    use = (using, ring.name, key.kid, key.fingerprint)
    if _seen_with.get(use) is connections[home].run_on_commit:
        return
    try:
        row = KeyFingerprint.objects.using(home).filter(ring=ring.name, kid=key.kid).first()
        if row is None and record:
            row = _record(ring, key, home)
            _uncommitted.add(use)
    except (ProgrammingError, OperationalError) as error:
        if isinstance(error, OperationalError) and "no such table" not in str(error):
            raise  # A lost connection or a deadlock: the caller knows what to do about those.
        raise EncryptionError(
            f"there is no table of key fingerprints on database {home!r}. Run migrate for"
            " django_outbox_encryption first; a migration that seals values depends on its"
            " 0001_initial.",
            kid=key.kid,
            place=ring.name,
        ) from error
    if row is None:
        # Never used for writing here: nothing to compare with, and nothing to find.
        _absent[use] = time.monotonic() + _ABSENT_FOR
        return
    wrong = compare(row, key, ring)
    if wrong is not None:
        raise wrong
    if use in _uncommitted:
        # A rollback would take the row away again, so only a commit makes it known.
        transaction.on_commit(partial(_committed, use), using=home)
        _seen_with[use] = connections[home].run_on_commit
    else:
        _verified.add(use)


def _record(ring: Keyring, key: Key, home: str) -> KeyFingerprint:
    rows = KeyFingerprint.objects.using(home)
    fresh = KeyFingerprint(
        ring=ring.name, kid=key.kid, fingerprint=key.fingerprint, canary=_canary(key, ring)
    )
    # Another process may be first: then its row counts.
    rows.bulk_create([fresh], ignore_conflicts=True)
    if connections[home].vendor == "mysql":
        # A snapshot of REPEATABLE READ would not show that row; a lock for update would deadlock
        # with others that are here too.
        table = connections[home].ops.quote_name(KeyFingerprint._meta.db_table)
        sql = f"SELECT * FROM {table} WHERE ring = %s AND kid = %s LOCK IN SHARE MODE"
        return rows.raw(sql, [ring.name, key.kid])[0]
    return rows.get(ring=ring.name, kid=key.kid)


def _committed(use: _Use) -> None:
    _uncommitted.discard(use)
    _seen_with.pop(use, None)
    _verified.add(use)


def _home(using: str) -> str:
    """The database of the fingerprints for values on ``using``: the same, unless routed away."""
    if router.allow_migrate_model(using, KeyFingerprint):
        return using
    return router.db_for_write(KeyFingerprint)


def _canary(key: Key, ring: Keyring) -> str:
    if ring.name == conf.INDEX:
        return blind_tag(key.secret, CANARY_CONTEXT, CANARY)
    return seal(CANARY.encode(), key, CANARY_CONTEXT)


def _canary_opens(canary: str, key: Key, ring: Keyring) -> bool:
    if ring.name == conf.INDEX:
        return canary == _canary(key, ring)
    try:
        return open_stored(canary, ring, CANARY_CONTEXT) == CANARY.encode()
    except EncryptionError:
        return False
