"""What an error of the client means for one message. Pure: errors go by their names.

Names: https://docs.confluent.io/platform/current/clients/librdkafka/html/rdkafka_8h.html; those that
begin with an underscore are the client's own, the others the broker's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Meaning(Enum):
    """What an error says about the message that it came for."""

    REJECTED = auto()
    """It cannot be delivered as things stand."""
    FAILED = auto()
    """This attempt failed."""
    DOWN = auto()
    """The broker takes no messages."""
    UNKNOWN = auto()
    """Its time was up: the broker itself has to be asked whether it is there."""
    TOO_LARGE = auto()
    """It, or the batch that the client had put it into."""


_MEANINGS: Final = {
    Meaning.REJECTED: {
        "INVALID_CONFIG",
        "INVALID_RECORD",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    },
    Meaning.TOO_LARGE: {"INVALID_MSG_SIZE", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"},
    Meaning.DOWN: {
        "BROKER_NOT_AVAILABLE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "_ALL_BROKERS_DOWN",
        "_AUTHENTICATION",
        "_DESTROY",
        "_FATAL",
        "_RESOLVE",
        "_SSL",
        "_TRANSPORT",
        "_UNSUPPORTED_FEATURE",
    },
    Meaning.UNKNOWN: {
        "_MSG_TIMED_OUT",
        "_PURGE_INFLIGHT",
        "_PURGE_QUEUE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
    },
}
#: After these, and after any time-out, a producer's sequence numbers and the broker's may differ.
_ENDS: Final = {
    "INVALID_PRODUCER_EPOCH",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "PRODUCER_FENCED",
    "UNKNOWN_PRODUCER_ID",
    "_FATAL",
    "_FENCED",
}
_BY_NAME: Final = {name: meaning for meaning, names in _MEANINGS.items() for name in names}


def meaning_of(name: str) -> Meaning:
    """What the error of this name says. What nobody has heard of is a failed attempt."""
    return _BY_NAME.get(name, Meaning.FAILED)


def ends_producer(name: str) -> bool:
    """Whether the next round had better have a producer of its own, with a new producer id."""
    return name in _ENDS or meaning_of(name) is Meaning.UNKNOWN
