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
_GCM_TAG_BYTES = 16
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
        sealed = nonce + self._aead.encrypt(nonce, plaintext, self._data(tag))
        token = self._header + tokens.encode_bytes(sealed)
        return token if tag is None else f"{tag}{tokens.BAR}{token}"

    def open(self, body: bytes, tag: str | None) -> bytes:
        """The value. Raises ``InvalidTag`` or ``ValueError``."""
        return self._aead.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], self._data(tag))

    def _data(self, tag: str | None) -> bytes:
        if tag is None:
            return self._bare_data
        encoded = tag.encode()
        return self._tagged_data + struct.pack("<Q", len(encoded)) + encoded


@lru_cache(maxsize=_CACHED_CIPHERS)
def _cipher(secret: bytes, kid: str, context: str) -> ContextCipher:
    return ContextCipher(secret, kid, context)


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
    token = tokens.parse(stored)
    key = keyring.opening(token.kid)
    try:
        body = tokens.decode_bytes(token.body)
        if len(body) < NONCE_BYTES + _GCM_TAG_BYTES:
            raise ValueError
        return _cipher(key.secret, key.kid, context).open(body, token.tag)
    except (InvalidTag, ValueError):
        raise DecryptionFailed(FAILED, kid=token.kid) from None


def forget_ciphers() -> None:
    """Drop every cached cipher, as after a keyring was replaced."""
    _cipher.cache_clear()
