"""What identifies an idempotent HTTP request: its key, its scope, and what it asks for.

The key is the client's (draft-ietf-httpapi-idempotency-key-header): an RFC 9651 string in quotes, or
bare, as Stripe's clients send it. Only digests leave this module: the stored rows hold neither a key
nor anything that a request's body could be guessed from.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.http import HttpRequest

#: Characters; Stripe's bound.
MAX_KEY = 255
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"', re.ASCII)
_BARE = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]+", re.ASCII)  # visible, no quote, no comma
_ESCAPE = re.compile(r"\\(.)")


class MalformedKey(ValueError):
    """The header is no usable key. The text says why and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Two digests: which request this claims to be, and what it asks for."""

    key_digest: str
    """Of scope, method, path and key: the same for every retry."""
    fingerprint: str = field(repr=False)
    """Of query, content type and body, under the key: differs when a key is used for another request."""


def parse_key(header: str) -> str:
    """The key in an ``Idempotency-Key`` header. Raises ``MalformedKey``."""
    text = header.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        key = _ESCAPE.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise MalformedKey("is neither a quoted string (RFC 9651) nor visible ASCII characters")
    if not 1 <= len(key) <= MAX_KEY:
        raise MalformedKey(f"must have 1 to {MAX_KEY} characters")
    return key


def identify(request: HttpRequest, key: str, scope: str) -> RequestIdentity:
    """Digest the request. Reads its body; what Django raises for a body too large is raised on."""
    parts = [scope, request.method or "", request.path, key]
    fingerprint = hmac.new(key.encode(), digestmod=hashlib.sha256)
    fingerprint.update(_packed([request.META.get("QUERY_STRING", ""), request.content_type or ""]))
    for piece in _body(request):
        fingerprint.update(piece)
    return RequestIdentity(hashlib.sha256(_packed(parts)).hexdigest(), fingerprint.hexdigest())


def default_scope(request: HttpRequest) -> str:
    """Who is asking: the user, else the credentials in ``Authorization``, else anybody.

    Where clients renew tokens between retries without a Django session, pass a ``scope`` that says
    whose token it is.
    """
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user {user.pk}"
    credentials = request.headers.get("Authorization", "")
    return f"credentials {credentials}" if credentials else "anybody"


def _packed(parts: list[str]) -> bytes:
    return json.dumps(parts).encode()


def _body(request: HttpRequest) -> Iterator[bytes]:
    if request.content_type != "multipart/form-data":
        yield request.body
        return
    # A retry has another boundary between the same parts, and reading a form uses up the body.
    yield json.dumps(sorted(request.POST.lists())).encode()
    for name, files in sorted(request.FILES.lists()):
        for file in files:
            yield json.dumps([name, file.name, file.content_type, file.size]).encode()
            yield from file.chunks()
            file.seek(0)
