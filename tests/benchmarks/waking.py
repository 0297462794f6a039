"""The children of bench_latency: who sleeps until something is committed, and then publishes it."""

from __future__ import annotations

import pika
from django.conf import settings
from django.db import connection

from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from tests.support.children import Say
from tests.support.relay_children import rabbitmq_outbox

TABLE = "django_outbox_outboxmessage"


def by_hand(say: Say, url: str, exchange: str) -> None:
    """The child of ``bare``."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    with connection.cursor() as cursor:
        cursor.execute("LISTEN bare")
        say("started")
        while True:
            # Django's connection holds psycopg's own.
            list(connection.connection.notifies(stop_after=1))
            cursor.execute(
                f"SELECT id, message_id, payload::text FROM {TABLE} WHERE status = 'pending'"
            )
            for row_id, message_id, payload in cursor.fetchall():
                properties = pika.BasicProperties(message_id=str(message_id), delivery_mode=2)
                channel.basic_publish(exchange, "a.b", payload.encode(), properties, mandatory=True)
                cursor.execute(
                    f"UPDATE {TABLE} SET status = 'published', published_at = now() WHERE id = %s",
                    [row_id],
                )


def by_relay(say: Say, url: str, exchange: str, wakeup: str) -> None:
    """The child of ``notify`` and ``poll``."""
    settings.OUTBOX = rabbitmq_outbox(url, exchange, WAKEUP=wakeup)
    relay = Relay()
    say("started")
    relay.run(Stop())
