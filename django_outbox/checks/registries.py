"""Consumers and event types against the routes: topics that would go nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.checks import CheckMessage, Error

from django_outbox.conf import LOCAL_PUBLISHER, outbox_settings, settings_problems
from django_outbox.consumers.registry import all_consumers, registry_problems
from django_outbox.event_types.registry import all_event_types


def check_consumers(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Each consumer can be told from the others, and can be reached where everything is local."""
    problems: list[CheckMessage] = [
        wrong_consumer(problem, hint) for problem, hint in registry_problems()
    ]
    if problems or settings_problems():
        return problems
    settings = outbox_settings()
    if any(config.backend != LOCAL_PUBLISHER for config in settings.publishers.values()):
        return []  # through a broker, other programs may publish what is consumed here
    return [
        unreachable_consumer(consumer.name, pattern)
        for consumer in all_consumers()
        for pattern in consumer.patterns
        if not _is_wild(pattern) and settings.routes.route_for(pattern) is None
    ]


def check_event_types(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Each registered topic has a route."""
    if settings_problems():
        return []
    routes = outbox_settings().routes
    topics = sorted({event_type.topic for event_type in all_event_types()})
    return [topic_without_route(topic) for topic in topics if routes.route_for(topic) is None]


def _is_wild(pattern: str) -> bool:
    return "*" in pattern or "#" in pattern


def wrong_consumer(problem: str, hint: str) -> Error:
    return Error(problem, hint=hint or None, id="django_outbox.E005")


def unreachable_consumer(name: str, topic: str) -> checks.Warning:
    return checks.Warning(
        f"The consumer {name!r} waits for {topic!r}, which no route of OUTBOX['ROUTES'] sends.",
        hint="With the local publisher nobody else can send it: add a route for it.",
        id="django_outbox.W004",
    )


def topic_without_route(topic: str) -> checks.Warning:
    return checks.Warning(
        f"The event type {topic!r} is registered, but no route of OUTBOX['ROUTES'] matches it:"
        " enqueue refuses it.",
        hint="Add a route, or ignore this where the project only consumes the topic.",
        id="django_outbox.W005",
    )
