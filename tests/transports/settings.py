"""Settings of the worker processes of transport tests: the database and the outbox of the test."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

DATABASES["default"] = json.loads(os.environ["CHILD_DATABASE"])
OUTBOX = json.loads(os.environ["CHILD_OUTBOX"])
INSTALLED_APPS = [*INSTALLED_APPS, "tests.transports"]
if level := os.environ.get("CHILD_LOG", "INFO"):
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "loggers": {"django_outbox": {"handlers": ["console"], "level": level}},
    }
