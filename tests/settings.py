"""Settings of the tests: the three databases beside each other.

``default`` is whichever one a test asks for (fixture ``database``); it starts as PostgreSQL where
that answers, else SQLite.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.services import MYSQL_URL, POSTGRESQL_URL, answers, env, session_name

SECRET_KEY = "only-for-tests"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

_scratch = Path(tempfile.gettempdir()) / session_name()


def _database(url: str) -> dict[str, Any]:
    return {**env.db_url_config(url), "TEST": {"NAME": session_name(), "DEPENDENCIES": []}}


DATABASES: dict[str, dict[str, Any]] = {
    "sqlite": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{_scratch}.sqlite3",
        "TEST": {"NAME": f"{_scratch}.test.sqlite3", "DEPENDENCIES": []},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}
if answers(POSTGRESQL_URL):
    DATABASES["postgresql"] = _database(POSTGRESQL_URL)
if answers(MYSQL_URL):
    import pymysql

    pymysql.install_as_MySQLdb()
    DATABASES["mysql"] = {
        **_database(MYSQL_URL),
        "OPTIONS": {"charset": "utf8mb4", "isolation_level": "read committed"},
    }
    DATABASES["mysql"]["TEST"]["CHARSET"] = "utf8mb4"

TEST_DEFAULT_DATABASE = os.environ.get(
    "TEST_DEFAULT_DATABASE", "postgresql" if "postgresql" in DATABASES else "sqlite"
)
DATABASES["default"] = {
    **DATABASES[TEST_DEFAULT_DATABASE],
    "TEST": {"MIRROR": TEST_DEFAULT_DATABASE},
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_outbox",
    "django_outbox.encryption",
    "tests.testapp",
    "tests.encryptionapp",
]
INSTALLED_APPS = [app for app in INSTALLED_APPS if find_spec(app)]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

OUTBOX: dict[str, Any] = {
    "PUBLISHERS": {"default": {"BACKEND": "django_outbox.publishers.locmem.LocMemPublisher"}},
}

# Keys of the tests alone: they have never sealed anything of value, and never may.
OUTBOX_ENCRYPTION: dict[str, Any] = {
    "KEYRINGS": {
        "default": "2026a:primary:ViH1cIZhaByRskHXdEwbcC/ihLuaMwu7j3wdF3W6uYs=",
        "index": "2026i:primary:hxNjGcXajVDc/A5wP1bluaoJpkdkfMCqMZK6Lp0Ep1U=",
    },
}
