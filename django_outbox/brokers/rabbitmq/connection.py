"""How to reach RabbitMQ, as pika's parameters. Used by both directions; read in options.py.

No ``repr`` made here holds a user name or a password.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pika


@dataclass(frozen=True, slots=True)
class Address:
    """One broker of the URL option."""

    host: str
    port: int
    tls: bool
    username: str = field(repr=False)
    password: str = field(repr=False)
    virtual_host: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Options that the URL's query gives."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files of the TLS option, and whether the broker's certificate is checked."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    server_hostname: str | None = None

    def context(self) -> ssl.SSLContext:
        """A client context. Raises ``OSError`` or ``ssl.SSLError`` where a file cannot be used."""
        made = ssl.create_default_context(cafile=self.ca)
        if not self.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if self.cert:
            made.load_cert_chain(self.cert, self.key)
        return made


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to connect. Times in seconds."""

    addresses: tuple[Address, ...]
    """Tried in this order until one answers."""
    virtual_host: str | None = None
    """None: the one in each URL."""
    heartbeat: int = 30
    """A silent connection is given up after this long, and five seconds."""
    blocked_connection_timeout: float = 300.0
    """A connection that the broker keeps blocked for this long is given up."""
    socket_timeout: float = 4.0
    """For the TCP connection to one address."""
    stack_timeout: float = 8.0
    """For TCP, TLS and AMQP together, over all addresses: each has an equal share."""
    tls: TlsOptions | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def connect_timeout(self) -> float:
        """Seconds after which a connection is there or given up, all addresses tried."""
        return sum(self._share(address) for address in self.addresses)

    def parameters(self, connection_name: str) -> list[pika.ConnectionParameters]:
        """pika's parameters, one for each address, in order.

        The name is what the broker's own tools show for the connection; this host and process are
        added to it. Raises ``OSError`` or ``ssl.SSLError`` where a TLS file cannot be used.
        """
        name = f"{connection_name} {socket.gethostname()}:{os.getpid()}"
        properties = {"connection_name": name, **self.client_properties}
        needs_tls = any(address.tls for address in self.addresses)
        context = (self.tls or TlsOptions()).context() if needs_tls else None
        return [self._parameters(address, context, properties) for address in self.addresses]

    def _parameters(
        self, address: Address, context: ssl.SSLContext | None, properties: dict[str, Any]
    ) -> pika.ConnectionParameters:
        given = address.overrides
        stack_timeout = self._share(address)
        server_hostname = (self.tls and self.tls.server_hostname) or address.host
        return pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=self.virtual_host or address.virtual_host,
            credentials=pika.PlainCredentials(address.username, address.password),
            heartbeat=given.get("HEARTBEAT", self.heartbeat),
            blocked_connection_timeout=given.get(
                "BLOCKED_CONNECTION_TIMEOUT", self.blocked_connection_timeout
            ),
            socket_timeout=min(given.get("SOCKET_TIMEOUT", self.socket_timeout), stack_timeout),
            stack_timeout=stack_timeout,
            ssl_options=pika.SSLOptions(context, server_hostname) if address.tls else None,
            client_properties=properties,
            connection_attempts=1,
        )

    def _share(self, address: Address) -> float:
        timeout: float = address.overrides.get("STACK_TIMEOUT", self.stack_timeout)
        return timeout / len(self.addresses)
