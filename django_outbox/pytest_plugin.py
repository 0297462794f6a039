"""Fixtures for the tests of projects that use the outbox.

Loaded by pytest before Django is configured, so nothing of Django is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_outbox.testing import Outbox


@pytest.fixture
def outbox(request: pytest.FixtureRequest) -> Outbox:
    """The outbox as a test sees it: ``messages``, ``drain()``, ``assert_enqueued(topic, payload)``.

    Gives access to the database as pytest-django's ``db`` does, unless the test has asked for
    another form of it (``transactional_db``, ``@pytest.mark.django_db(...)``). Starts with an empty
    ``locmem.outbox``.
    """
    request.getfixturevalue("db")
    from django_outbox.publishers import locmem
    from django_outbox.testing import Outbox

    locmem.outbox.clear()
    return Outbox()
