"""What is wrong with ``settings.OUTBOX``, its publishers and its routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.checks import CheckMessage, Error

from django_outbox.conf import outbox_settings, settings_problems
from django_outbox.policies import PublisherConfig
from django_outbox.publishers.base import Publisher
from django_outbox.publishers.registry import lease_problems, make_publisher, publisher_class

#: Publishers that confirm a message and forget it, with the process that sent it.
_FORGETFUL = (
    "django_outbox.publishers.console.ConsolePublisher",
    "django_outbox.publishers.locmem.LocMemPublisher",
)
_METHODS = ("publish", "probe", "close", "check")


def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Every key that is unknown, of the wrong type, or contradicts another."""
    return [wrong_setting(problem, hint) for problem, hint in settings_problems()]


def check_publishers(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Each publisher can be imported, is one, and finds its own options right."""
    if settings_problems():
        return []
    found: list[CheckMessage] = []
    for alias, config in outbox_settings().publishers.items():
        found += _check_publisher(alias, config)
    return found


def check_routes(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """There are routes, and each of them can be reached."""
    if settings_problems():
        return []
    patterns = [route.pattern for route in outbox_settings().routes.routes]
    if not patterns:
        return [no_routes()]
    return [unreachable_route(pattern, earlier) for pattern, earlier in _unreachable(patterns)]


def check_lease(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """No publisher takes longer than half of the lease."""
    if settings_problems():
        return []
    settings = outbox_settings()
    made: dict[str, Publisher] = {}
    for alias in {route.publisher for route in settings.routes.routes}:
        # Where one cannot be made, check_publishers says why; whatever a class of somebody's raises.
        with suppress(Exception):
            made[alias] = make_publisher(alias)
    return [lease_too_short(*problem) for problem in lease_problems(settings, made)]


def check_publishers_for_production(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """With ``--deploy``: no route ends in a publisher that delivers to nobody."""
    if settings_problems():
        return []
    settings = outbox_settings()
    routed = {route.publisher for route in settings.routes.routes}
    return [
        forgetful_publisher(alias, config.backend)
        for alias, config in settings.publishers.items()
        if alias in routed and config.backend in _FORGETFUL
    ]


def _check_publisher(alias: str, config: PublisherConfig) -> list[CheckMessage]:
    try:
        backend = publisher_class(config.backend)
    except ImportError as error:
        return [publisher_not_found(alias, config.backend, error)]
    missing = [name for name in _METHODS if not callable(getattr(backend, name, None))]
    if missing or not isinstance(backend, type):
        return [not_a_publisher(alias, config.backend, missing)]
    return [
        wrong_publisher_option(problem, hint)
        for problem, hint in backend.check(alias, config.options)
    ]


def _unreachable(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Patterns behind one that takes everything they would take: the same again, or '#'."""
    for position, pattern in enumerate(patterns):
        for earlier in patterns[:position]:
            if earlier in ("#", pattern):
                yield pattern, earlier
                break


def wrong_setting(problem: str, hint: str) -> Error:
    return Error(problem, hint=hint or None, id="django_outbox.E001")


def publisher_not_found(alias: str, backend: str, error: ImportError) -> Error:
    return Error(
        f"OUTBOX['PUBLISHERS'][{alias!r}]['BACKEND'] is {backend!r}, which cannot be imported:"
        f" {error}",
        hint="Name the class by its full path, and install what it needs.",
        id="django_outbox.E002",
    )


def not_a_publisher(alias: str, backend: str, missing: Sequence[str]) -> Error:
    lacks = f" It lacks {', '.join(missing)}." if missing else " It is no class."
    return Error(
        f"OUTBOX['PUBLISHERS'][{alias!r}]['BACKEND'] is {backend!r}, which is no publisher.{lacks}",
        hint="A publisher has the methods of django_outbox.publishers.base.Publisher.",
        id="django_outbox.E003",
    )


def wrong_publisher_option(problem: str, hint: str) -> Error:
    return Error(problem, hint=hint or None, id="django_outbox.E004")


def lease_too_short(problem: str, hint: str) -> Error:
    return Error(problem, hint=hint, id="django_outbox.E006")


def no_routes() -> checks.Warning:
    return checks.Warning(
        "OUTBOX['ROUTES'] is empty: every enqueue is refused.",
        hint='Leave ROUTES out to send everything to the default publisher, or add ("#", {}).',
        id="django_outbox.W001",
    )


def unreachable_route(pattern: str, earlier: str) -> checks.Warning:
    return checks.Warning(
        f"The route {pattern!r} in OUTBOX['ROUTES'] is never taken: {earlier!r} stands before it.",
        hint="The first route that matches is taken. Put the special ones first.",
        id="django_outbox.W002",
    )


def forgetful_publisher(alias: str, backend: str) -> checks.Warning:
    name = backend.rsplit(".", 1)[1]
    return checks.Warning(
        f"OUTBOX['PUBLISHERS'][{alias!r}] is a {name}: messages are confirmed and reach nobody.",
        hint="It is for development and tests. Use the RabbitMQ, Celery or local publisher.",
        id="django_outbox.W003",
    )
