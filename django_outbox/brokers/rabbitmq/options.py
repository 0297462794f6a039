"""The options of a RabbitMQ connection, read and judged.

Everything that is wrong is found at once, as (problem, hint). None of it holds a URL, a user name or
a password: not even the reasons that the standard library gives for a URL it cannot read, because
those quote it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django_outbox.brokers.options import OptionReader, Problem, WrongOption, seconds, text
from django_outbox.brokers.rabbitmq.connection import Address, ConnectionOptions, TlsOptions
from django_outbox.conf_values import unknown_key

#: The options that say how to connect; publishers and consumers add their own.
CONNECTION_KEYS: Final = frozenset(
    {
        "URL",
        "VIRTUAL_HOST",
        "HEARTBEAT",
        "BLOCKED_CONNECTION_TIMEOUT",
        "SOCKET_TIMEOUT",
        "STACK_TIMEOUT",
        "TLS",
        "CLIENT_PROPERTIES",
    }
)
_TLS_KEYS: Final = frozenset({"ca", "cert", "key", "verify", "server_hostname"})
_QUERY_KEYS: Final = {
    "heartbeat": "HEARTBEAT",
    "blocked_connection_timeout": "BLOCKED_CONNECTION_TIMEOUT",
    "socket_timeout": "SOCKET_TIMEOUT",
    "stack_timeout": "STACK_TIMEOUT",
}
_URL_HINT: Final = (
    "Write amqp://user:password@host:5672/vhost, or amqps:// for TLS. Percent-encode special"
    " characters of user name, password and virtual host: '/' is %2F, '@' is %40."
)


def read_connection_options(
    options: Mapping[str, Any], where: str
) -> tuple[ConnectionOptions | None, list[Problem]]:
    """The options in force, or None and all that is wrong with them.

    ``where`` names the place in the settings: ``OUTBOX['PUBLISHERS']['default']``. Keys that are not
    in ``CONNECTION_KEYS`` are the caller's to judge.
    """
    reader = OptionReader(options, where)
    defaults = ConnectionOptions(())
    read = ConnectionOptions(
        addresses=reader.read("URL", _addresses, (), required=_URL_HINT),
        virtual_host=reader.read("VIRTUAL_HOST", text, None),
        heartbeat=reader.read("HEARTBEAT", _heartbeat, defaults.heartbeat),
        blocked_connection_timeout=reader.read(
            "BLOCKED_CONNECTION_TIMEOUT", seconds, defaults.blocked_connection_timeout
        ),
        socket_timeout=reader.read("SOCKET_TIMEOUT", seconds, defaults.socket_timeout),
        stack_timeout=reader.read("STACK_TIMEOUT", seconds, defaults.stack_timeout),
        tls=reader.read("TLS", _tls, None),
        client_properties=reader.read("CLIENT_PROPERTIES", _properties, {}),
    )
    if read.tls and not all(address.tls for address in read.addresses):
        reader.add(
            f"{where} has TLS options, but its URL begins with amqp://, which is not encrypted.",
            "Write amqps:// (port 5671 unless another is given).",
        )
    return (None if reader.problems else read), reader.problems


def _addresses(value: Any) -> tuple[Address, ...]:
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, Sequence) or isinstance(urls, bytes) or not urls:
        raise WrongOption("must be a URL or a list of URLs.", _URL_HINT)
    return tuple(_address(url) for url in urls)


def _address(url: Any) -> Address:
    # The reasons that urllib gives quote parts of the URL, which may be parts of the password.
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        port = parts.port if parts else None
    except ValueError:
        raise WrongOption("is no URL: host and port cannot be told apart.", _URL_HINT) from None
    if parts is None or parts.scheme not in {"amqp", "amqps"}:
        raise WrongOption("must begin with amqp:// or amqps://.", _URL_HINT)
    if not parts.hostname:
        raise WrongOption("names no host.", _URL_HINT)
    if (parts.username is None) != (parts.password is None):
        raise WrongOption("needs both a user name and a password, or neither.", _URL_HINT)
    tls = parts.scheme == "amqps"
    return Address(
        host=parts.hostname,
        port=port or (5671 if tls else 5672),
        tls=tls,
        username=unquote(parts.username) if parts.username else "guest",
        password=unquote(parts.password) if parts.password else "guest",
        virtual_host=_virtual_host(parts),
        overrides=_query(parts),
    )


def _virtual_host(parts: SplitResult) -> str:
    path = parts.path.removeprefix("/")
    if "/" in path or parts.fragment:
        raise WrongOption("has more than a virtual host behind the port.", _URL_HINT)
    return unquote(path) or "/"


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _QUERY_KEYS:
            raise WrongOption(
                "has a parameter that is not known.",
                f"Known parameters: {', '.join(_QUERY_KEYS)}; everything else is an option.",
            )
        key = _QUERY_KEYS[name]
        try:
            found[key] = _heartbeat(int(value)) if key == "HEARTBEAT" else seconds(float(value))
        except (ValueError, WrongOption):
            raise WrongOption(f"has a parameter {name!r} that is not a usable number.") from None
    return found


def _heartbeat(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65_535:
        raise WrongOption(
            "must be a whole number of seconds from 1 to 65,535.",
            "Without heartbeats a dead connection looks alive until something is published.",
        )
    return value


def _properties(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise WrongOption('must be a dict of client properties: {"product": "billing"}.')
    return dict(value)


def _tls(value: Any) -> TlsOptions:
    if not isinstance(value, Mapping):
        raise WrongOption('must be a dict: {"ca": "/path/ca.pem"}.')
    for name in value:
        if name not in _TLS_KEYS:
            problem, hint = unknown_key("TLS", name, _TLS_KEYS)
            raise WrongOption(f"is wrong: {problem}", hint)
    verify = value.get("verify", True)
    if not isinstance(verify, bool):
        raise WrongOption("['verify'] must be True or False.")
    files = {name: _file(name, value.get(name)) for name in ("ca", "cert", "key")}
    if files["key"] and not files["cert"]:
        raise WrongOption("has a key without a cert.", "Both make the client's certificate.")
    server_hostname = value.get("server_hostname")
    tls = TlsOptions(**files, verify=verify, server_hostname=server_hostname)
    try:
        tls.context()
    except (OSError, ssl.SSLError) as error:
        raise WrongOption(
            f"cannot be used: {type(error).__name__}.",
            "ca, cert and key are PEM files; the key has no passphrase and belongs to the cert.",
        ) from None
    return tls


def _file(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)) or not os.path.isfile(value):  # noqa: PTH113 - any path-like
        raise WrongOption(f"[{name!r}] is not a file that can be read.")
    return os.fspath(value)
