"""The text form of a sealed value: ``[<tag>|]ob1.g.<kid>.<base64url(nonce ‖ ciphertext ‖ tag)>``.

``ob1`` is the version, ``g`` stands for AES-256-GCM. Before the bar stands, where the field has a
blind index, ``<index kid>:<32 hex digits>``. Base64url is unpadded (RFC 4648, section 5) and has one
spelling for each byte string, so a token has exactly one spelling too.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from dataclasses import dataclass

from django_outbox.encryption.exceptions import DecryptionFailed
from django_outbox.encryption.keyrings import KID_CHARACTERS, KID_LENGTH

VERSION = "ob1"
ALGORITHM = "g"
PREFIX = f"{VERSION}.{ALGORITHM}."
BAR = "|"
TAG_HEX_DIGITS = 32
#: The longest ``<index kid>:<32 hex digits>``.
TAG_LENGTH = KID_LENGTH + 1 + TAG_HEX_DIGITS

_KID = rf"[{KID_CHARACTERS}]{{1,{KID_LENGTH}}}"
_TOKEN = re.compile(
    rf"(?:({_KID}:[0-9a-f]{{{TAG_HEX_DIGITS}}})\|)?{VERSION}\.{ALGORITHM}\.({_KID})\.([A-Za-z0-9_-]+)"
)
_SEALED = re.compile(rf"{VERSION}\.|{_KID}:[0-9a-f]{{{TAG_HEX_DIGITS}}}\|")
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_TO_URL = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class Token:
    """A stored value taken apart. ``tag`` is None where no blind index stands before it."""

    kid: str
    body: str
    tag: str | None = None


def header(kid: str) -> str:
    """How every token under this key begins; part of what is authenticated."""
    return f"{PREFIX}{kid}."


def parse(stored: str) -> Token:
    """Take a stored value apart. Raises ``DecryptionFailed`` when it is no well-formed token."""
    match = _TOKEN.fullmatch(stored)
    if match is None:
        raise DecryptionFailed("the stored value is damaged: it is no well-formed token.")
    tag, kid, body = match.groups()
    return Token(kid, body, tag)


def looks_sealed(stored: str) -> bool:
    """Whether this begins as a sealed value does, damaged or not. Proves nothing."""
    return _SEALED.match(stored) is not None


def encode_bytes(raw: bytes) -> str:
    """Unpadded base64url (RFC 4648, section 5)."""
    return b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URL).decode("ascii")


def decode_bytes(text: str) -> bytes:
    """The bytes of an unpadded base64url text. Raises ``ValueError`` for any other spelling."""
    try:
        encoded = text.encode("ascii")
        raw = a2b_base64(
            encoded.translate(_TO_STANDARD) + b"==="[: -len(encoded) % 4], strict_mode=True
        )
    except (Base64Error, UnicodeEncodeError):
        raise ValueError("not base64url") from None
    # The last character may carry bits that decoding drops: only one spelling is right.
    if (
        b2a_base64(raw[len(raw) // 3 * 3 :], newline=False).rstrip(b"=").translate(_TO_URL)
        != (encoded[len(raw) // 3 * 4 :])
    ):
        raise ValueError("not base64url")
    return raw
