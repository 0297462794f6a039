"""Where a task's messages go: as the options say, else as the Celery app routes them itself."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from celery import Celery
from celery.app.utils import find_app
from kombu import Queue
from kombu.utils.url import parse_url

from django_outbox.publishers.celery.options import CeleryOptions


@dataclass(frozen=True, slots=True)
class Address:
    """Where a call goes: the task, and what leads to its queue."""

    task: str
    exchange: str
    routing_key: str
    queue: Queue | None = None
    """Declared before a message, as Celery itself does; None: that is somebody else's part."""


def load_app(path: str) -> Celery:
    """The Celery app of this path. Raises what its import raises."""
    found: Celery = find_app(path)
    return found


def speaks_amqp(app: Celery) -> bool:
    """Whether the app's broker is RabbitMQ."""
    return bool(app.connection_for_write().transport.driver_type == "amqp")


def address_of(options: CeleryOptions, app: Celery | None, task: str, topic: str) -> Address:
    """Where the call of a task goes. Raises ``QueueNotFound`` where the app knows no such queue."""
    if options.exchange:
        return Address(task, options.exchange, options.routing_key or topic)
    if app is None:
        return Address(task, "", options.queue)
    route = app.amqp.router.route({"queue": options.queue} if options.queue else {}, task)
    return _as_celery_would(task, route)


def connection_options(app: Celery) -> dict[str, Any]:
    """How the app reaches its RabbitMQ, in the words of ``OUTBOX["PUBLISHERS"]``."""
    connection = app.connection_for_write()
    tls = connection.ssl or connection.transport_cls == "amqps"
    urls = connection.alt or [connection.as_uri(include_password=True)]
    options: dict[str, Any] = {"URL": [_url(url, tls=bool(tls)) for url in urls]}
    if isinstance(connection.ssl, dict):
        named = {"ca": "ca_certs", "cert": "certfile", "key": "keyfile"}
        files = {ours: connection.ssl.get(theirs) for ours, theirs in named.items()}
        options["TLS"] = {name: path for name, path in files.items() if path}
        options["TLS"]["verify"] = connection.ssl.get("cert_reqs") != ssl.CERT_NONE
    return options


def _as_celery_would(task: str, route: dict[str, Any]) -> Address:
    queue: Any = route.get("queue")
    exchange, key = route.get("exchange"), route.get("routing_key")
    kind = getattr(getattr(queue, "exchange", None), "type", None) or "direct"
    if queue is not None and kind == "direct" and not (exchange and key):
        return Address(task, "", queue.name, queue)
    if exchange is None:
        exchange, key = queue.exchange.name, key or queue.routing_key
    return Address(task, exchange or "", key or "", queue)


def _url(url: str, *, tls: bool) -> str:
    parts = parse_url(url)
    user = quote(parts["userid"] or "guest", safe="")
    password = quote(parts["password"] or "guest", safe="")
    vhost = quote(parts["virtual_host"] or "/", safe="")
    port = parts["port"] or (5671 if tls else 5672)
    return f"amqp{'s' * tls}://{user}:{password}@{parts['hostname'] or 'localhost'}:{port}/{vhost}"
