"""What the tests of the checks share: running them as manage.py does, and aliases of their own."""

from __future__ import annotations

import copy

import pytest
from django.conf import settings
from django.core import checks
from django.db import connections

OURS = "django_outbox"


@pytest.fixture
def run_checks(django_db_setup):
    """The messages of this package's checks, by id, in their order."""

    def run(*, deploy=False, databases=None):
        tags = [OURS, checks.Tags.database] if databases else [OURS]
        found = checks.run_checks(tags=tags, include_deployment_checks=deploy, databases=databases)
        return [message for message in found if message.id.startswith(f"{OURS}.")]

    return run


@pytest.fixture
def ids(run_checks):
    """The ids alone."""
    return lambda **options: [message.id for message in run_checks(**options)]


@pytest.fixture
def add_database():
    """Another alias for the time of a test: a copy of one that exists, with other settings."""
    added = []

    def add(alias, base="sqlite", **changes):
        connections.settings[alias] = {**copy.deepcopy(connections.settings[base]), **changes}
        added.append(alias)
        return connections[alias]

    yield add
    for alias in added:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
    assert set(connections.settings) == set(settings.DATABASES)
