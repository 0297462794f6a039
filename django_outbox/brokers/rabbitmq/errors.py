"""What pika's errors mean, in words for people. No text here holds a password or a payload value."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator

from pika import exceptions

_LONGEST = 300
#: How pika wraps the broker's words where a connection was refused while it opened.
_QUOTED_REPLY = re.compile(r"\((\d{3})\) (['\"])(.*)\2")


def connection_trouble(error: BaseException | None) -> str:
    """Why a connection could not be made, or was lost."""
    for cause in _causes(error):
        reason = _meaning(cause)
        if reason:
            return reason
    return type(error).__name__ if error is not None else "the connection ended"


def reply(error: exceptions.ConnectionClosed | exceptions.ChannelClosed) -> str:
    """The broker's own words: code and text."""
    return f"{error.reply_code} {error.reply_text}"[:_LONGEST]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what is wrapped in it, innermost first: that is what people can act on."""
    if error is None:
        return
    # The connection workflow keeps its causes in attributes, pika's other errors in their arguments.
    tried = getattr(error, "exceptions", ())
    for wrapped in (getattr(error, "exception", None), *reversed(tried), *error.args):
        if isinstance(wrapped, BaseException):
            yield from _causes(wrapped)
    yield error


def _meaning(error: BaseException) -> str:
    match error:
        case exceptions.ConnectionClosedByBroker():
            return f"the broker closed the connection: {reply(error)}"
        case exceptions.ProbableAuthenticationError() | exceptions.AuthenticationError():
            return f"the broker refused the user name or the password{_quoted(error)}"
        case exceptions.ProbableAccessDeniedError():
            return f"the broker refused the virtual host{_quoted(error)}"
        case exceptions.AMQPHeartbeatTimeout():
            return "no heartbeat came from the broker"
        case exceptions.ConnectionBlockedTimeout():
            return "the broker kept the connection blocked (memory or disk alarm)"
        case exceptions.IncompatibleProtocolError():
            return "what answers there does not speak AMQP 0-9-1"
        case ssl.SSLCertVerificationError():
            return f"the broker's certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or type(error).__name__}"
        case socket.gaierror():
            return "the host name cannot be resolved"
        case ConnectionRefusedError():
            return "connection refused"
        case TimeoutError() | exceptions.ConnectionOpenAborted():
            return "no answer in time"
        case OSError():
            return f"{type(error).__name__}: {error.strerror or 'the connection broke'}"
        case exceptions.StreamLostError():
            return "the connection was lost"
    if "Timeout" in type(error).__name__:
        return "no answer in time"
    return ""


def _quoted(error: exceptions.AMQPConnectionError) -> str:
    found = _QUOTED_REPLY.search(" ".join(map(str, error.args)))
    return f": {found[1]} {found[3]}"[:_LONGEST] if found else ""
