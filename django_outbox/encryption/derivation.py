"""One root key, many purposes: a key of its own for each.

``HK(root, parts…) = HKDF-SHA256(root, no salt, info = pae("django-outbox", "v1", parts…), 32 bytes)``
(RFC 5869). ``pae`` is the pre-authentication encoding of PASETO: no two lists of parts give the same
bytes. The constants are part of the stored format and never change.
"""

from __future__ import annotations

import hmac
import struct
from functools import lru_cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
_PURPOSE = ("django-outbox", "v1")
#: Distinct (root, parts) kept derived. A field, a topic or an index takes one for each key.
_CACHED_KEYS = 4096


def pae(*parts: str | bytes) -> bytes:
    """The parts as one unambiguous byte string.

    A little-endian 64-bit count, then each part's little-endian 64-bit length and its bytes (text
    as UTF-8).
    """
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return struct.pack("<Q", len(encoded)) + b"".join(
        struct.pack("<Q", len(part)) + part for part in encoded
    )


def format_pae(*parts: str | bytes) -> bytes:
    """``pae`` under this format's name and version: what keys and additional data are made of."""
    return pae(*_PURPOSE, *parts)


@lru_cache(maxsize=_CACHED_KEYS)
def derive(root: bytes, *parts: str) -> bytes:
    """The 32-byte key of this purpose. The same arguments give the same key, for ever."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=b"", info=format_pae(*parts)).derive(root)


def fingerprint(root: bytes) -> str:
    """What tells two root keys apart without telling either: 16 hex digits."""
    return derive(root, "fingerprint")[:8].hex()


def blind_tag(root: bytes, context: str, normalised: str, index: str = "default") -> str:
    """The value's blind-index tag in this context: the first 16 bytes of HMAC-SHA256, in hex.

    Equal values have equal tags, and without the key a tag says nothing about its value.
    """
    __traceback_hide__ = True
    key = derive(root, "bidx", context, index)
    return hmac.digest(key, normalised.encode(), "sha256")[:16].hex()


def forget_derived_keys() -> None:
    """Drop every derived key from memory, as after a keyring was replaced."""
    derive.cache_clear()
