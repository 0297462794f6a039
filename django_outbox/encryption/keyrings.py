"""Keys with ids and states, and the rings that hold them. No Django, no I/O.

Of a ring one key is *primary* (it seals, or tags); the others are *retired* (still open and search),
*disabled* (present, refused) or *destroyed* (only a fingerprint is left). A ring never changes:
another state of affairs is another ring.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise

from django_outbox.encryption.derivation import KEY_BYTES, fingerprint
from django_outbox.encryption.exceptions import (
    KeyDestroyed,
    KeyDisabled,
    KeyringError,
    UnknownKey,
)

KID_CHARACTERS = "A-Za-z0-9_-"
KID_LENGTH = 32
_KID = re.compile(rf"[{KID_CHARACTERS}]{{1,{KID_LENGTH}}}")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_URL_ALPHABET = str.maketrans("-_", "+/")


class KeyState(StrEnum):
    """What a key may still do."""

    PRIMARY = "primary"
    RETIRED = "retired"
    DISABLED = "disabled"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class Key:
    """A root key under its id. ``secret`` is empty when the key is destroyed."""

    kid: str
    state: KeyState
    secret: bytes = field(repr=False)
    fingerprint: str

    @classmethod
    def of(cls, kid: str, secret: bytes, state: KeyState = KeyState.PRIMARY) -> Key:
        """A key of 32 bytes. Raises ``KeyringError`` for a bad id (form) or a bad length (length)."""
        __traceback_hide__ = True
        _check_kid(kid)
        if len(secret) != KEY_BYTES:
            raise KeyringError(
                f"has {len(secret)} bytes; a key is {KEY_BYTES} random bytes in base64. Make one"
                " with: manage.py outbox_keys generate",
                cause="length",
                kid=kid,
            )
        return cls(kid, state, bytes(secret), fingerprint(bytes(secret)))

    @classmethod
    def destroyed(cls, kid: str, fingerprint: str) -> Key:
        """What is kept of a destroyed key, so that it cannot come back unnoticed."""
        __traceback_hide__ = True
        _check_kid(kid)
        if not _FINGERPRINT.fullmatch(fingerprint):
            raise KeyringError(
                "is destroyed: write its fingerprint (16 hex digits, see outbox_keys status) in"
                " place of the key.",
                kid=kid,
            )
        return cls(kid, KeyState.DESTROYED, b"", fingerprint)


@dataclass(frozen=True, slots=True, eq=False)
class Keyring:
    """Keys by their ids. Raises ``KeyringError`` when made of keys that do not go together.

    Its cause is ``no-primary``, ``primaries`` (more than one), ``same-kid`` or ``same-key``.
    """

    name: str
    keys: Mapping[str, Key] = field(repr=False)
    #: The key that seals and tags.
    primary: Key = field(repr=False)
    #: The keys that open and search: the primary one, then the retired ones.
    active: tuple[Key, ...] = field(repr=False)

    @classmethod
    def of(cls, name: str, keys: Iterable[Key]) -> Keyring:
        """The ring of these keys."""
        by_kid: dict[str, Key] = {}
        by_fingerprint: dict[str, str] = {}
        # Databases may compare without case, so ids that differ in nothing else are the same.
        spelled: set[str] = set()
        for key in keys:
            if key.kid.lower() in spelled:
                raise KeyringError("is there twice.", cause="same-kid", kid=key.kid, place=name)
            spelled.add(key.kid.lower())
            twin = by_fingerprint.setdefault(key.fingerprint, key.kid)
            if twin != key.kid:
                raise KeyringError(
                    f"is the same key as {twin!r}. Each id needs a key of its own.",
                    cause="same-key",
                    kid=key.kid,
                    place=name,
                )
            by_kid[key.kid] = key
        primaries = [key.kid for key in by_kid.values() if key.state is KeyState.PRIMARY]
        if not primaries:
            raise KeyringError(
                "has no primary key, so nothing could be sealed.", cause="no-primary", place=name
            )
        if len(primaries) > 1:
            raise KeyringError(
                f"has {len(primaries)} primary keys ({', '.join(primaries)}); all but the newest"
                " are retired.",
                cause="primaries",
                place=name,
            )
        primary = by_kid[primaries[0]]
        retired = (key for key in by_kid.values() if key.state is KeyState.RETIRED)
        return cls(name, by_kid, primary, (primary, *retired))

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys.values())

    def opening(self, kid: str) -> Key:
        """The key to open with. Raises ``UnknownKey``, ``KeyDisabled`` or ``KeyDestroyed``."""
        key = self.keys.get(kid)
        if key is None:
            raise UnknownKey(
                f"is not in the keyring {self.name!r}. Was it removed, or is this a value of"
                " another installation?",
                kid=kid,
            )
        if key.state is KeyState.DISABLED:
            raise KeyDisabled(f"is disabled in the keyring {self.name!r}.", kid=kid)
        if key.state is KeyState.DESTROYED:
            raise KeyDestroyed("has been destroyed; its values cannot be read again.", kid=kid)
        return key


def parse_keyring(text: str, name: str = "default") -> Keyring:
    """A ring from its short form, as an environment variable or a file holds it.

    ``kid:state:key`` entries, separated by commas or white space, the key in base64 (either
    alphabet), or the fingerprint when the state is ``destroyed``. Lines that begin with ``#`` are
    comments. Raises ``KeyringError`` (form, length, no-primary, primaries, same-kid, same-key).
    """
    __traceback_hide__ = True
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    entries = re.split(r"[,\s]+", "\n".join(lines).strip(", \t\n"))
    if entries == [""]:
        raise KeyringError("has no keys.", cause="empty", place=name)
    keys: list[Key] = []
    try:
        # A loop: until Python 3.12 a comprehension is a frame, and its variables are keys.
        for number, entry in enumerate(entries, 1):
            keys.append(_parse_entry(number, entry))
        return Keyring.of(name, keys)
    except KeyringError as error:
        error.place = name
        raise


def key_from_text(kid: str, state: str, text: str) -> Key:
    """One key from its base64 text (or fingerprint). Raises ``KeyringError`` (form, length)."""
    __traceback_hide__ = True
    try:
        known = KeyState(state)
    except ValueError:
        states = ", ".join(KeyState)
        raise KeyringError(f"has a state that is none of {states}.", kid=_shown(kid)) from None
    if known is KeyState.DESTROYED:
        return Key.destroyed(kid, text)
    raw = _base64(text)
    if raw is None:
        raise KeyringError("is not base64.", kid=_shown(kid))
    return Key.of(kid, raw, known)


def entry_of(key: Key) -> str:
    """The key in the short form of ``parse_keyring``. Holds the secret: never log it."""
    text = base64.b64encode(key.secret).decode() if key.secret else key.fingerprint
    return f"{key.kid}:{key.state}:{text}"


def weakness(secret: bytes, secret_keys: Iterable[str] = ()) -> str | None:
    """Why this key must not be used: a sample, a passphrase or a Django SECRET_KEY; else None."""
    if len(set(secret)) < KEY_BYTES // 2:
        return "repeats the same few bytes (all zeros, a sample)"
    if len({(b - a) % 256 for a, b in pairwise(secret)}) == 1:
        return "is a sequence of bytes (a sample)"
    if all(0x20 <= byte < 0x7F for byte in secret):
        return "is readable text, not random bytes"
    for setting in secret_keys:
        if secret in _keys_made_of(setting):
            return "is made of SECRET_KEY, which changes for other reasons than this key"
    return None


def _keys_made_of(setting: str) -> list[bytes]:
    raw = setting.encode()
    made = [raw, raw[:KEY_BYTES], sha256(raw).digest()]
    decoded = _base64(setting)
    return made if decoded is None else [*made, decoded]


def _base64(text: str) -> bytes | None:
    """The bytes of a base64 text in either alphabet, padded or not; None if it is none."""
    bare = text.rstrip("=").translate(_URL_ALPHABET)
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None


def _parse_entry(number: int, entry: str) -> Key:
    __traceback_hide__ = True
    parts = entry.split(":")
    if len(parts) != 3:
        # Not the entry itself: it may be a key without its id.
        raise KeyringError(f"entry {number} is not of the form kid:state:key.")
    return key_from_text(*parts)


def is_kid(text: object) -> bool:
    """Whether this can be a key's id."""
    return isinstance(text, str) and _KID.fullmatch(text) is not None


def _check_kid(kid: str) -> None:
    __traceback_hide__ = True  # A key, where somebody wrote the two the wrong way round.
    if not is_kid(kid):
        raise KeyringError(
            f"A key id has 1 to {KID_LENGTH} letters, digits, hyphens or underscores."
        )


def _shown(kid: str) -> str | None:
    """The id for an error, unless what stands in its place may be a key."""
    return kid if is_kid(kid) else None
