"""The example project's commands as real processes, in an environment that sets only what a test says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds. Generous: a loaded machine is slow, and only a failing test waits so long.
PATIENCE = 120
_OURS = ("DJANGO_", "OUTBOX_", "DATABASE_URL", "DEBUG", "SECRET_KEY", "ALLOWED_HOSTS", "LOG_LEVEL")


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with none of the example's variables but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**inherited, **variables}


def command(*arguments: str) -> list[str]:
    """``manage.py`` with these arguments; a warning of Python is an error."""
    return [sys.executable, "-W", "error", str(ROOT / "manage.py"), *arguments]


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one of the example's commands to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def manage_well(*arguments: str, **variables: str) -> str:
    """The same, and all that it printed; fails where it fails."""
    ran = manage(*arguments, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr
