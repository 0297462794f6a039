"""A relay as an operator runs it: the command in a process of its own, on the database of the test."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management import call_command

from tests.support.children import Child, Say


def relay_process(outbox: dict[str, Any], *arguments: str) -> Child:
    """``manage.py outbox_relay`` with these settings for ``OUTBOX``, started."""
    return Child(run_relay, json.dumps(outbox), *arguments)


def run_relay(say: Say, outbox: str, *arguments: str) -> None:
    """The child's side."""
    settings.OUTBOX = json.loads(outbox)
    say("started")
    call_command("outbox_relay", *arguments)


def rabbitmq_outbox(url: str, exchange: str, **keys: Any) -> dict[str, Any]:
    """Settings that publish to this exchange; publisher options are given in lower case."""
    options = {name.upper(): value for name, value in keys.items() if name.islower()}
    publisher = {
        "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
        "URL": url,
        "EXCHANGE": exchange,
        **options,
    }
    others = {name: value for name, value in keys.items() if not name.islower()}
    return {"PUBLISHERS": {"default": publisher}, **others}
