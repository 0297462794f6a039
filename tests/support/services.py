"""Where the real services are, and whether they answer.

Addresses come from environment variables. A test that needs a missing service is skipped with the
reason; where ``CI`` is set it is an error instead.
"""

from __future__ import annotations

import os
import shutil
import socket
from functools import lru_cache
from urllib.parse import urlsplit

import environ
import pytest

env = environ.Env()

POSTGRESQL_URL = env.str("TEST_POSTGRESQL_URL", "postgres://postgres@127.0.0.1:5432/postgres")
MYSQL_URL = env.str("TEST_MYSQL_URL", "mysql://root@127.0.0.1:3306/test")
AMQP_URL = env.str("TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
REDIS_URL = env.str("TEST_REDIS_URL", "redis://127.0.0.1:6379/0")

IN_CI = env.bool("CI", False)


@lru_cache
def answers(url: str) -> bool:
    """Whether something listens at the address of the URL."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=2):
            return True
    except OSError:
        return False


def require(url: str, name: str) -> None:
    """Skip the running test where the service is missing; fail it where CI is set."""
    if answers(url):
        return
    address = urlsplit(url)
    reason = f"{name} does not answer at {address.hostname}:{address.port}"
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def chromium() -> str:
    """The path of Debian's Chromium. Skips the running test where there is none; fails it in CI."""
    found = env.str("TEST_CHROMIUM", "") or shutil.which("chromium") or ""
    if not found:
        reason = "there is no chromium on the PATH, and TEST_CHROMIUM names none"
        if IN_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def session_name(prefix: str = "outbox_test") -> str:
    """A name that no other test session uses: for databases, vhosts, queues."""
    return f"{prefix}_{os.getpid()}"
