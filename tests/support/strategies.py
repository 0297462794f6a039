"""Hypothesis strategies for messages, as wide as the tables and the wire allow."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

from hypothesis import strategies as st

from django_outbox.messages import Message

#: Unicode text as databases hold it: no NUL, no lone surrogate.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60)
WORD = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs",)))
TOPICS = st.lists(WORD.filter(bool).map(lambda w: w[:12]), min_size=1, max_size=5).map(".".join)
HEADER_NAMES = TEXT.filter(lambda name: 0 < len(name.encode()) <= 255)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
HEADER_VALUES = st.one_of(TEXT, INTEGERS, st.booleans(), st.none())
JSON_VALUES = st.recursive(
    st.one_of(TEXT, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=10,
)
TIMES = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - the zone comes with the strategy
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@st.composite
def messages(draw: st.DrawFn, *, headers: bool = True) -> Message:
    """Any message that ``enqueue`` would let through."""
    from django_outbox.wire.amqp import is_reserved

    own = draw(st.dictionaries(HEADER_NAMES, HEADER_VALUES, max_size=4)) if headers else {}
    return Message(
        id=draw(st.uuids().filter(lambda made: made != UUID(int=0))),
        topic=draw(TOPICS.filter(lambda topic: len(topic.encode()) <= 255)),
        body=json.dumps(draw(JSON_VALUES), ensure_ascii=False, separators=(",", ":")),
        headers={name: value for name, value in own.items() if not is_reserved(name)},
        schema_version=draw(st.integers(1, 32_767)),
        aggregate_type=draw(TEXT),
        aggregate_id=draw(TEXT),
        sequence=draw(st.none() | INTEGERS),
        correlation_id=draw(TEXT),
        causation_id=draw(TEXT),
        source=draw(TEXT.filter(lambda source: 0 < len(source.encode()) <= 255)),
        created_at=draw(st.none() | TIMES),
    )
