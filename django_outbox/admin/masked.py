"""A payload as people see it: pretty, its personal members masked or, on request, opened.

Personal is what the schema of any version of the topic marks, and whatever is sealed. A member that
cannot be opened says why, and the others are shown all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from django_outbox.encryption.conf import keyring
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.encryption.jwe import WRAPPER, is_wrapper, member_kid, open_member
from django_outbox.encryption.masking import MASK
from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import all_event_types
from django_outbox.event_types.schemas import escape_step
from django_outbox.models import OutboxMessage

#: Characters of a payload that are shown; one of a mebibyte would stop a browser.
SHOWN = 100_000


def masked_payload(message: OutboxMessage) -> SafeString:
    """The payload without anything personal."""
    return _rendered(message, _masked)


def revealed_payload(message: OutboxMessage) -> SafeString:
    """The payload with its personal members opened: for who may see them, and never to be cached."""
    return _rendered(message, _opened)


def has_personal(message: OutboxMessage) -> bool:
    """Whether the payload holds anything that is masked."""
    return bool(_personal(message.topic, [message.payload]))


def pretty(value: Any) -> str:
    """JSON with an indent of two, cut off where a browser would choke on it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, cls=DjangoJSONEncoder)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n…"


@dataclass(frozen=True, slots=True)
class _Member:
    """A personal member of a payload, in the list or object that holds it."""

    pointer: str
    container: Any = field(repr=False)
    key: str | int = field(repr=False)


def _rendered(
    message: OutboxMessage, show: Callable[[OutboxMessage, str, Any], SafeString]
) -> SafeString:
    __traceback_hide__ = True
    # What is shown in place of members is put into the finished text, where stand-ins mark the places:
    # texts that no payload can hold, since nobody knows them beforehand.
    nonce = uuid4().hex
    holder = [deepcopy(message.payload)]
    shown: list[SafeString] = []
    for member in _personal(message.topic, holder):
        shown.append(show(message, member.pointer, member.container[member.key]))
        member.container[member.key] = f"{nonce}:{len(shown) - 1}"
    text = escape(pretty(holder[0]))
    stand_in = re.compile(rf"&quot;{nonce}:(\d+)&quot;")
    # Escaped is the text; what is put in was made by format_html.
    return mark_safe(stand_in.sub(lambda found: shown[int(found[1])], text))  # noqa: S308


def _personal(topic: str, holder: list[Any]) -> list[_Member]:
    """What is marked by any version of the topic, or sealed: outermost members only."""
    found = {
        member.pointer: _Member(member.pointer, member.container, member.key)
        for each in all_event_types()
        if each.topic == topic
        for mark in Mark
        for member in each.marks.members(holder[0], mark)
    }
    found |= {member.pointer: member for member in _sealed(holder, 0, "")}
    outermost: list[_Member] = []
    for pointer in sorted(found):
        if not outermost or not pointer.startswith(f"{outermost[-1].pointer}/"):
            outermost.append(found[pointer])
    return outermost


def _sealed(container: Any, key: str | int, pointer: str) -> Iterator[_Member]:
    value = container[key]
    if is_wrapper(value):
        yield _Member(pointer, container, key)
    elif isinstance(value, dict):
        for name in value:
            yield from _sealed(value, name, f"{pointer}/{escape_step(str(name))}")
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _sealed(value, index, f"{pointer}/{index}")


def _masked(message: OutboxMessage, pointer: str, value: Any) -> SafeString:
    if not is_wrapper(value):
        return format_html('<span class="outbox-masked">{}</span>', MASK)
    try:
        about = _("sealed under the key %(kid)s") % {"kid": member_kid(value[WRAPPER])}
    except EncryptionError:
        about = _("sealed, and damaged")
    return format_html(
        '<span class="outbox-masked">{} <span class="outbox-note">{}</span></span>', MASK, about
    )


def _opened(message: OutboxMessage, pointer: str, value: Any) -> SafeString:
    __traceback_hide__ = True
    if is_wrapper(value):
        try:
            clear = open_member(
                value[WRAPPER],
                keyring=keyring(),
                topic=message.topic,
                message_id=message.message_id,
                pointer=pointer,
            )
            value = json.loads(clear)
        except EncryptionError as error:
            # The error's own text names places and keys, never values.
            return format_html(
                '<span class="outbox-masked">{} <strong class="outbox-unreadable">{}</strong></span>',
                MASK,
                str(error),
            )
        except ValueError:
            return format_html('<span class="outbox-masked">{}</span>', MASK)
    return format_html('<mark class="outbox-revealed">{}</mark>', pretty(value))
