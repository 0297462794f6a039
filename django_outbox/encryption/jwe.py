"""Sealed members of event payloads: JWE compact strings (RFC 7516) in a wrapper.

``{"customer_name": {"$jwe": "eyJ…"}}``: ``A256KW`` over a fresh content key (RFC 7518, section 4.4)
and ``A256GCM``. The wrapping key is ``HK(root, "payload", topic)``, so a consumer of one topic can be
handed the key of that topic alone. The protected header says for which message (``msg``), place
(``ptr``, a JSON pointer, RFC 6901) and topic (``top``) the member was sealed; opening checks all
three.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import (
    InvalidUnwrap,
    aes_key_unwrap,
    aes_key_wrap,
)

from django_outbox.encryption.derivation import derive
from django_outbox.encryption.exceptions import DecryptionFailed, UnknownKey
from django_outbox.encryption.keyrings import Key, Keyring, is_kid
from django_outbox.encryption.tokens import decode_bytes, encode_bytes, encode_parts

#: The only member of a sealed member's wrapper.
WRAPPER = "$jwe"
_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_json = json.JSONEncoder().encode
_FAILED = "the sealed member does not open: it is damaged, or its key is not the one it names."


def seal_member(
    plaintext_json: str,
    *,
    keyring: Keyring,
    topic: str,
    message_id: UUID | str,
    pointer: str,
    content_key: bytes | None = None,
    nonce: bytes | None = None,
) -> str:
    """Seal one member, given as its compact JSON, and return the JWE.

    ``content_key`` and ``nonce`` are for test vectors only; each member gets fresh random ones.
    """
    __traceback_hide__ = True
    key = keyring.primary
    header = (
        f'{{"alg":"A256KW","enc":"A256GCM","kid":{_json(key.kid)},"msg":{_json(str(message_id))},'
        f'"ptr":{_json(pointer)},"top":{_json(topic)}}}'
    )
    protected = encode_bytes(header.encode())
    content_key = os.urandom(_KEY_BYTES) if content_key is None else content_key
    nonce = os.urandom(_NONCE_BYTES) if nonce is None else nonce
    sealed = AESGCM(content_key).encrypt(nonce, plaintext_json.encode(), protected.encode())
    wrapped = aes_key_wrap(wrapping_key(key, topic), content_key)
    rest = encode_parts(wrapped, nonce, sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:])
    return f"{protected}.{rest}"


def open_member(
    token: str, *, keyring: Keyring, topic: str, message_id: UUID | str, pointer: str
) -> str:
    """Open one member where it was sealed, and return its JSON.

    Raises ``DecryptionFailed`` when it is damaged or was sealed for another message, topic or place,
    and ``UnknownKey``, ``KeyDisabled`` or ``KeyDestroyed``.
    """
    __traceback_hide__ = True
    protected, *encoded = _parts(token)
    header = _header(protected)
    key = keyring.opening(header["kid"])
    for name, expected in (("top", topic), ("msg", str(message_id)), ("ptr", pointer)):
        if header.get(name) != expected:
            raise DecryptionFailed(
                f"the sealed member was sealed for another {_WORDS[name]}.", kid=key.kid
            )
    try:
        wrapped, nonce, ciphertext, tag = map(decode_bytes, encoded)
        if (len(wrapped), len(nonce), len(tag)) != (_KEY_BYTES + 8, _NONCE_BYTES, _TAG_BYTES):
            raise ValueError
        content_key = aes_key_unwrap(wrapping_key(key, topic), wrapped)
        return AESGCM(content_key).decrypt(nonce, ciphertext + tag, protected.encode()).decode()
    except (InvalidTag, InvalidUnwrap, ValueError):
        raise DecryptionFailed(_FAILED, kid=key.kid) from None


def member_kid(token: str) -> str:
    """Which key a sealed member names. Proves nothing: the member is not opened."""
    kid: str = _header(_parts(token)[0])["kid"]
    return kid


def wrapping_key(key: Key, topic: str) -> bytes:
    """The key that wraps the content keys of this topic's members."""
    return derive(key.secret, "payload", topic)


def exported_jwk(keyring: Keyring, topic: str, kid: str | None = None) -> dict[str, str]:
    """The topic's key as a JWK (RFC 7517): all that another program needs to open its members.

    The primary key's, unless ``kid`` says which. Holds a secret: never log it.
    """
    key = keyring.primary if kid is None else keyring.opening(kid)
    return {
        "kty": "oct",
        "kid": key.kid,
        "alg": "A256KW",
        "k": encode_bytes(wrapping_key(key, topic)),
    }


def wrap(token: str) -> dict[str, str]:
    """What stands in the payload in place of the member."""
    return {WRAPPER: token}


def is_wrapper(value: object) -> bool:
    """Whether this has the form of a sealed member. Proves nothing about what is inside."""
    return (
        isinstance(value, Mapping)
        and len(value) == 1
        and isinstance(value.get(WRAPPER), str)
        and value[WRAPPER].count(".") == 4
    )


_WORDS: dict[str, str] = {"top": "topic", "msg": "message", "ptr": "place in its payload"}


def _parts(token: str) -> list[str]:
    parts = token.split(".")
    if len(parts) != 5:
        raise DecryptionFailed("the sealed member is damaged: it is no JWE in compact form.")
    return parts


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. A name that stands twice would be one thing here and another elsewhere."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError
    return found


def _header(protected: str) -> dict[str, Any]:
    try:
        header = json.loads(decode_bytes(protected).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise DecryptionFailed("the sealed member is damaged: its header is no JSON.") from None
    if not isinstance(header, dict):
        raise DecryptionFailed("the sealed member is damaged: its header is no object.")
    # "zip" would change what the plaintext means, "crit" asks for what is not known here.
    if (
        header.get("alg") != "A256KW"
        or header.get("enc") != "A256GCM"
        or "zip" in header
        or "crit" in header
    ):
        raise DecryptionFailed("the sealed member is not of the form A256KW with A256GCM.")
    if not is_kid(header.get("kid")):
        # Not repeated in the error: what a stranger wrote there may be anything.
        raise UnknownKey("the sealed member names no key that could be ours.")
    return header
