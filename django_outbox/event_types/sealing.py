"""Seal the personal members of a payload, and open them again.

Which members are personal is decided by the schema's marks and by nothing else. Each is sealed for its
place: a member moved to another message, topic or path does not open.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django_outbox.encryption.exceptions import DecryptionFailed, EncryptionError, PlaintextFound
from django_outbox.encryption.jwe import WRAPPER, is_wrapper, open_member, seal_member, wrap
from django_outbox.encryption.keyrings import Keyring
from django_outbox.event_types.marks import Mark, Marks

_compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def seal_members(
    payload: Any, *, marks: Marks, keyring: Keyring, topic: str, message_id: UUID
) -> None:
    """Replace every sensitive member that is present by its sealed form, in place."""
    __traceback_hide__ = True
    for member in marks.members(payload, Mark.SENSITIVE):
        clear = _compact_json(member.value)
        token = seal_member(
            clear, keyring=keyring, topic=topic, message_id=message_id, pointer=member.pointer
        )
        member.replace(wrap(token))


def open_members(
    payload: Any, *, marks: Marks, keyring: Keyring, topic: str, message_id: UUID
) -> None:
    """Replace every sealed member by what it holds, in place.

    Raises ``PlaintextFound`` where a sensitive member is not sealed, ``DecryptionFailed`` for one
    that is damaged or was sealed for another place, and ``UnknownKey``, ``KeyDisabled`` or
    ``KeyDestroyed``.
    """
    __traceback_hide__ = True
    for member in marks.members(payload, Mark.SENSITIVE):
        sealed = member.value
        if not is_wrapper(sealed):
            raise PlaintextFound("a member that must be sealed is not.", place=member.shown)
        try:
            clear = open_member(
                sealed[WRAPPER],
                keyring=keyring,
                topic=topic,
                message_id=message_id,
                pointer=member.pointer,
            )
        except EncryptionError as error:
            error.place = member.shown
            raise
        try:
            member.replace(json.loads(clear))
        except (ValueError, RecursionError):
            raise DecryptionFailed("the sealed member holds no JSON.", place=member.shown) from None
