"""System checks: what of a misconfiguration can be seen before anything goes wrong.

Ids are never reused; each has a paragraph in docs/reference/checks.md.
"""

from __future__ import annotations

from django.core import checks

from django_outbox.checks.archive import check_archive
from django_outbox.checks.databases import check_business_models, check_database, check_server
from django_outbox.checks.environment import check_environment
from django_outbox.checks.operating import check_operation
from django_outbox.checks.personal import check_personal_members
from django_outbox.checks.production import (
    check_dead_letters,
    check_retention,
    check_seen_in_cache,
)
from django_outbox.checks.registries import check_consumers, check_event_types
from django_outbox.checks.settings import (
    check_lease,
    check_publishers,
    check_publishers_for_production,
    check_routes,
    check_settings,
)

__all__ = ["register_checks"]


def register_checks() -> None:
    """Called once the apps are ready."""
    for check in (
        check_settings,
        check_publishers,
        check_lease,
        check_archive,
        check_routes,
        check_database,
        check_business_models,
        check_environment,
        check_consumers,
        check_event_types,
        check_personal_members,
    ):
        checks.register(check, "django_outbox")
    for check in (
        check_publishers_for_production,
        check_retention,
        check_seen_in_cache,
        check_dead_letters,
    ):
        checks.register(check, "django_outbox", deploy=True)
    # Without a tag of ours: asked for by a tag, Django 6.1 runs it though no database is named.
    checks.register(check_server, checks.Tags.database)
    checks.register(check_operation, checks.Tags.database, deploy=True)
