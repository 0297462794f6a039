"""Seal and open text columns: AES-256-GCM under a key of each context's own.

The key is ``HK(root, "field", context)``; the additional data names version, key, context and the
blind-index tag, so that a value opens only where it was sealed and only beside its own tag. Nonces
are random: at most 2³² values for each key and context (NIST SP 800-38D, section 8.3).
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from django_outbox.encryption import tokens
from django_outbox.encryption.derivation import derive, format_pae
from django_outbox.encryption.exceptions import DecryptionFailed
from django_outbox.encryption.keyrings import Key, Keyring

NONCE_BYTES = 12
#: Distinct (key, context) kept ready. A field takes one for each key.
_CACHED_CIPHERS = 2048

FAILED = (
    "the value does not open: it is damaged, was sealed for another column, or its key is not the"
    " one it was sealed under."
)


class ContextCipher:
    """One key in one context, ready to use. Safe for any number of threads."""

    __slots__ = ("_aead", "_bare_data", "_header", "_tagged_data")

    def __init__(self, secret: bytes, kid: str, context: str) -> None:
        self._aead = AESGCM(derive(secret, "field", context))
        self._header = tokens.header(kid)
        self._bare_data = format_pae("field", self._header, context)
        # pae() of one part more, cut off where that part begins.
        self._tagged_data = format_pae("field", self._header, context, b"")[:-8]

    def seal(self, plaintext: bytes, tag: str | None, nonce: bytes) -> str:
        """The stored form of the value, its tag before it."""
        data = self._bare_data if tag is None else self._data(tag)
        token = self._header + tokens.encode_bytes(
            nonce + self._aead.encrypt(nonce, plaintext, data)
        )
        return token if tag is None else f"{tag}{tokens.BAR}{token}"

    def open(self, body: bytes, tag: str | None) -> bytes:
        """The value. Raises ``InvalidTag`` or ``ValueError``."""
        data = self._bare_data if tag is None else self._data(tag)
        return self._aead.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], data)

    def _data(self, tag: str) -> bytes:
        encoded = tag.encode()
        return self._tagged_data + struct.pack("<Q", len(encoded)) + encoded


@lru_cache(maxsize=_CACHED_CIPHERS)
def _cipher(secret: bytes, kid: str, context: str) -> ContextCipher:
    return ContextCipher(secret, kid, context)


@lru_cache(maxsize=_CACHED_CIPHERS)
def _ciphers(keyring: Keyring, context: str) -> dict[str, ContextCipher]:
    """The ring's active keys in this context, by how their tokens begin."""
    return {tokens.header(key.kid): _cipher(key.secret, key.kid, context) for key in keyring.active}


def seal(
    plaintext: bytes, key: Key, context: str, tag: str | None = None, *, nonce: bytes | None = None
) -> str:
    """Seal a value for one context. ``nonce`` is for test vectors only: a nonce is never reused."""
    __traceback_hide__ = True
    if nonce is None:
        nonce = os.urandom(NONCE_BYTES)
    return _cipher(key.secret, key.kid, context).seal(plaintext, tag, nonce)


def open_stored(stored: str, keyring: Keyring, context: str) -> bytes:
    """Open a stored value in the context it was sealed for.

    Raises ``DecryptionFailed`` when it is damaged or belongs elsewhere, and ``UnknownKey``,
    ``KeyDisabled`` or ``KeyDestroyed``.
    """
    __traceback_hide__ = True
    before, dot, body = stored.rpartition(".")
    tag, bar, header = before.rpartition(tokens.BAR)
    cipher = _ciphers(keyring, context).get(header + dot)
    if cipher is None:
        # Damaged, or under a key that may not open: this finds out which, and raises.
        keyring.opening(tokens.parse(stored).kid)
        raise DecryptionFailed(FAILED)
    try:
        # What is too short to hold a nonce and a tag does not open either.
        return cipher.open(tokens.decode_bytes(body), tag if bar else None)
    except (InvalidTag, ValueError):
        raise DecryptionFailed(FAILED, kid=tokens.kid_of(header + dot)) from None


def forget_ciphers() -> None:
    """Drop every cached cipher, as after a keyring was replaced."""
    _ciphers.cache_clear()
    _cipher.cache_clear()
