"""What a project lists in INSTALLED_APPS can be listed there, as the pages say."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: In a process of its own: Django imports apps before any model exists, which a running test cannot show.
START = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", *{apps}],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
"""


@pytest.mark.parametrize("extra", ["opentelemetry", "prometheus", "sentry"])
def test_a_project_starts_with_the_app_in_either_order(extra):
    app = f"django_outbox.contrib.{extra}"
    for apps in (["django_outbox", app], [app, "django_outbox"]):
        started = subprocess.run(
            [sys.executable, "-c", START.format(apps=apps)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert started.returncode == 0, started.stderr
