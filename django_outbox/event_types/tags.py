"""The keyed tag by which support finds a person's messages without reading any.

HMAC-SHA256 of the normalised value under the index keyring (docs/reference/encryption.md), the same
for every topic, so that one question finds the messages of all. Without the key a tag says nothing but
that two messages name the same person.
"""

from __future__ import annotations

from typing import Any

from django_outbox.encryption.conf import INDEX, keyring
from django_outbox.encryption.derivation import blind_tag
from django_outbox.encryption.fingerprints import verify_for_searching, verify_for_writing
from django_outbox.encryption.keyrings import Key
from django_outbox.encryption.normalisers import normalise
from django_outbox.event_types.registry import EventType, all_event_types
from django_outbox.event_types.schemas import member_at

CONTEXT = "django_outbox.outboxmessage.index_tag"


def tag_of(event_type: EventType, payload: Any, using: str) -> str:
    """The tag of the member that ``index_by`` names, in a payload that is not sealed; empty: none.

    Raises what the index keyring raises where it cannot be used on this database.
    """
    __traceback_hide__ = True
    value = member_at(payload, event_type.index_by)
    if value is None or isinstance(value, dict | list):
        return ""
    key = verify_for_writing(keyring(INDEX), using)
    return _tag(key, str(value), event_type.index_normalisers)


def tags_to_search(value: str, using: str) -> list[str]:
    """The tags that messages about this value can have: under every active index key."""
    __traceback_hide__ = True
    keys = verify_for_searching(keyring(INDEX), using)
    ways = {each.index_normalisers for each in all_event_types() if each.index_by}
    return sorted({_tag(key, value, way) for key in keys for way in ways} - {""})


def _tag(key: Key, value: str, normalisers: tuple[str, ...]) -> str:
    __traceback_hide__ = True
    normalised = normalise(value, normalisers)
    return f"{key.kid}:{blind_tag(key.secret, CONTEXT, normalised)}" if normalised else ""
