"""The text form of a sealed value: ``[<tag>|]ob1.g.<kid>.<base64url(nonce ‖ ciphertext ‖ tag)>``.

``ob1`` is the version, ``g`` stands for AES-256-GCM. Before the bar stands, where the field has a
blind index, ``<index kid>:<32 hex digits>``. Base64url is unpadded (RFC 4648, section 5) and has one
spelling for each byte string, so a token has exactly one spelling too.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

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
#: "+", "/" and "=" become what no base64 has: they do not belong to this spelling.
_TO_STANDARD = bytes.maketrans(b"-_+/=", b"+/!!!")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_PADDING = (b"", b"", b"==", b"=")
#: What a text may end with, by its length modulo 4.
_LAST = ("", "", "AQgw", "AEIMQUYcgkosw048")


class Token(NamedTuple):
    """A stored value taken apart. ``tag`` is None where no blind index stands before it."""

    tag: str | None
    kid: str
    body: str


def header(kid: str) -> str:
    """How every token under this key begins; part of what is authenticated."""
    return f"{PREFIX}{kid}."


def kid_of(header: str) -> str:
    """The key's id in what ``header`` made."""
    return header[len(PREFIX) : -1]


def parse(stored: str) -> Token:
    """Take a stored value apart. Raises ``DecryptionFailed`` when it is no well-formed token."""
    match = _TOKEN.fullmatch(stored)
    if match is None:
        raise DecryptionFailed("the stored value is damaged: it is no well-formed token.")
    return Token._make(match.groups())


def looks_sealed(stored: str) -> bool:
    """Whether this begins as a sealed value does, damaged or not. Proves nothing."""
    return _SEALED.match(stored) is not None


def encode_bytes(raw: bytes) -> str:
    """Unpadded base64url (RFC 4648, section 5)."""
    return b2a_base64(raw, newline=False).translate(_TO_URL, b"=").decode("ascii")


def encode_parts(*parts: bytes) -> str:
    """The parts in base64url, a dot between each: JOSE's compact form (RFC 7515, section 7.1)."""
    joined = b".".join([b2a_base64(part, newline=False) for part in parts])
    return joined.translate(_TO_URL, b"=").decode("ascii")


def decode_bytes(text: str) -> bytes:
    """The bytes of an unpadded base64url text. Raises ``ValueError`` for any other spelling."""
    odd = len(text) % 4
    # The last character may carry bits that decoding drops: only one spelling is right.
    if odd and text[-1] not in _LAST[odd]:
        raise ValueError("not base64url")
    try:
        standard = text.encode("ascii").translate(_TO_STANDARD)
        return a2b_base64(standard + _PADDING[odd], strict_mode=True)
    except (Base64Error, UnicodeEncodeError):
        raise ValueError("not base64url") from None
