"""Keep a client from reading the properties of received messages. Pure: bytes in, bytes out.

Every content header frame gets new properties, whose only header holds the old ones as bytes. The
client has nothing left to stumble over, and whoever gets the message finds in it what came.
See docs/decisions/headers-of-every-type.md.

Format: AMQP 0-9-1, 4.2.3 and 4.2.6.
"""

from __future__ import annotations

import struct
from typing import Any, Final

#: The header that holds the properties as they came.
RAW: Final = "raw"

_FRAME = struct.Struct(">BHI")  # type, channel, size
_END: Final = b"\xce"
#: What a server that speaks another version answers instead of a frame.
_OTHER_PROTOCOL: Final = b"AMQP"
_HEADER_FRAME: Final = 2
#: Class, weight and body size: what stands before the properties in a content header.
_BEFORE_PROPERTIES: Final = 12
#: Properties that are headers only, up to where the table's length is written.
_HEADERS_ONLY: Final = struct.pack(">H", 1 << 13)
_ENTRY: Final = bytes((len(RAW),)) + RAW.encode() + b"x"
_LENGTH = struct.Struct(">I")


class PropertiesWrapper:
    """The filter for one connection: what was received goes in piece by piece, in any cut."""

    def __init__(self) -> None:
        self._waiting = b""

    def __call__(self, data: bytes) -> bytes:
        """What the client may read now; a frame that is not complete stays here."""
        data = self._waiting + data if self._waiting else data
        if data.startswith(_OTHER_PROTOCOL):
            return data
        done: list[bytes] = []
        copied = at = 0
        while len(data) - at >= _FRAME.size:
            kind, channel, size = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + size + 1
            if end > len(data):
                break
            if kind == _HEADER_FRAME:
                done += (data[copied:at], _wrapped(channel, data[at + _FRAME.size : end - 1]))
                copied = end
            at = end
        done.append(data[copied:at])
        self._waiting = data[at:]
        return b"".join(done)


def raw_properties(properties: Any) -> bytes:
    """The properties as they came, out of what the client made of the wrapped ones."""
    raw: bytes = properties.headers[RAW]
    return raw


def _wrapped(channel: int, payload: bytes) -> bytes:
    properties = payload[_BEFORE_PROPERTIES:]
    table = _ENTRY + _LENGTH.pack(len(properties)) + properties
    payload = payload[:_BEFORE_PROPERTIES] + _HEADERS_ONLY + _LENGTH.pack(len(table)) + table
    return _FRAME.pack(_HEADER_FRAME, channel, len(payload)) + payload + _END
