"""Ports for servers that a test starts itself."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
