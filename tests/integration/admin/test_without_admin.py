"""A project without Django's admin renders its templates all the same."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_outbox"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
import django
django.setup()
from django.template import engines
print(engines["django"].from_string("{% load outbox_admin %}{{ 1200|outbox_number }}").render())
"""


def test_the_template_library_needs_no_admin() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1,200"
