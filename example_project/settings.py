"""Settings of the example: everything that differs between machines comes from the environment.

With nothing set it runs on SQLite, and the relay hands events to the consumers of its own process.
Two variables make a service of it: ``DATABASE_URL`` (PostgreSQL, MySQL or MariaDB) and
``OUTBOX_BROKER_URL`` (RabbitMQ).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

from example_project.keys import keep_development_keys

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
env.read_env(BASE_DIR / ".env")

DEBUG = env.bool("DEBUG", default=True)
# A key for everybody is none: good enough on a laptop, refused where DEBUG is off.
SECRET_KEY = env.str("SECRET_KEY", **({"default": "example-for-development"} if DEBUG else {}))
if DEBUG and "OUTBOX_KEYRING" not in env.ENVIRON:
    keep_development_keys(BASE_DIR / "development.keys")
    env.read_env(BASE_DIR / "development.keys")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])
# Pages and mails of errors print what was posted and what is in frames: masked.
DEFAULT_EXCEPTION_REPORTER_FILTER = "django_outbox.encryption.debug.MaskingReporterFilter"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_outbox",
    "django_outbox.encryption",
    "example_project.billing",
    "example_project.ledger",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

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

DATABASES: dict[str, dict[str, Any]] = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A transaction that reads first and writes later fails at once when another one wrote in
    # between; IMMEDIATE ones wait for each other, and WAL lets readers go on meanwhile.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

EXCHANGE = env.str("OUTBOX_EXCHANGE", default="domain.events")
OUTBOX: dict[str, Any] = {
    "SOURCE": "/example/billing",
    # What `outbox_topology` declares on RabbitMQ: the queue that the ledger reads.
    "TOPOLOGY": {"EXCHANGE": EXCHANGE, "QUEUES": {"ledger": {"BINDINGS": ["invoice.*"]}}},
}
# The keys that seal personal data, and those that make it searchable.
OUTBOX_ENCRYPTION: dict[str, Any] = {
    "KEYRINGS": {"default": env.str("OUTBOX_KEYRING"), "index": env.str("OUTBOX_INDEX_KEYRING")}
}
if broker_url := env.str("OUTBOX_BROKER_URL", default=""):
    OUTBOX["PUBLISHERS"] = {
        "default": {
            "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
            "URL": broker_url,
            "EXCHANGE": EXCHANGE,
        }
    }

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "django_outbox": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")}
    },
}
