"""How the package hangs together: what import-linter cannot say, and that it says yes.

The layers themselves stand in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import django_outbox

PACKAGE = Path(django_outbox.__file__).parent
ROOT = PACKAGE.parent
DOCS = ROOT / "docs"

#: Who may import a broker's library; everybody else reaches it through these.
OWNERS = {
    "pika": {"brokers.rabbitmq", "publishers.rabbitmq", "consumers.rabbitmq"},
    "celery": {
        "consumers.celery",
        "publishers.celery",
        "tasks",
        "contrib.celery",
    },
    "kombu": {"consumers.celery", "publishers.celery", "contrib.celery"},
    "confluent_kafka": {"publishers.kafka"},
    "psycopg": {"databases.postgresql"},
    "prometheus_client": {"contrib.prometheus"},
    "opentelemetry": {"contrib.opentelemetry"},
    "sentry_sdk": {"contrib.sentry"},
    "health_check": {"contrib.health"},
}

#: Decisions without I/O: importing them loads neither Django nor a broker.
PURE = [
    "backoff",
    "batches",
    "brokers.rabbitmq.confirms",
    "consumers.verdicts",
    "encryption.aead",
    "encryption.derivation",
    "encryption.jwe",
    "encryption.keyrings",
    "encryption.masking",
    "encryption.normalisers",
    "encryption.tokens",
    "messages",
    "publishers.base",
    "relay.breaker",
    "relay.ordering",
    "relay.verdicts",
    "routing",
    "topics",
    "wire.amqp",
    "wire.celery",
    "wire.cloudevents",
    "wire.kafka",
]
EXISTING = [name for name in PURE if (PACKAGE / (name.replace(".", "/") + ".py")).exists()]


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without the root."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }


def imported_by(path: Path) -> set[str]:
    """The top-level packages that a module imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def imported_from_here(path: Path) -> set[str]:
    """The modules of this package that a module imports, without the root."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    root = "django_outbox."
    return {name.removeprefix(root) for name in found if name.startswith(root)}


def belongs_to(module: str, owners: set[str]) -> bool:
    return any(module == owner or module.startswith(f"{owner}.") for owner in owners)


@pytest.mark.parametrize("library", OWNERS)
def test_a_brokers_library_is_imported_only_where_it_belongs(library: str) -> None:
    strangers = {
        name
        for name, path in modules().items()
        if library in imported_by(path) and not belongs_to(name, OWNERS[library])
    }
    assert strangers == set()


def test_encryption_can_be_used_alone() -> None:
    strangers = {
        f"{name} imports {imported}"
        for name, path in modules().items()
        if belongs_to(name, {"encryption"})
        for imported in imported_from_here(path)
        if not belongs_to(imported, {"encryption"})
    }
    assert strangers == set()


@pytest.mark.parametrize("module", EXISTING)
def test_a_decision_module_loads_neither_django_nor_a_broker(module: str) -> None:
    script = (
        f"import sys; import django_outbox.{module};"
        " print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert {"django", "pika", "celery", "kombu", "psycopg"}.isdisjoint(loaded)


def test_importing_the_package_loads_neither_django_nor_a_model() -> None:
    script = "import sys; import django_outbox; print('django' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout.strip() == "False"


def test_a_process_that_only_enqueues_loads_no_broker() -> None:
    script = (
        "import sys, django; django.setup(); from django_outbox import enqueue;"
        " print(*(name for name in ('pika', 'celery', 'kombu') if name in sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings"},
    )
    assert ran.stdout.split() == []


def test_every_import_contract_holds() -> None:
    pytest.importorskip("importlinter", reason="import-linter is in the dependency group 'lint'")
    ran = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_public_name_can_be_imported_and_has_a_docstring() -> None:
    for name in django_outbox.__all__:
        assert getattr(django_outbox, name).__doc__, name


def test_every_public_name_stands_in_the_api_reference() -> None:
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert set(django_outbox.__all__) <= set(re.findall(r"\w+", reference))


def test_the_names_in_all_are_those_that_can_be_imported() -> None:
    homes = importlib.import_module("django_outbox")._HOMES
    assert sorted(django_outbox.__all__) == sorted(homes)


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_module_says_what_it_is_for(name: str) -> None:
    path = modules()[name]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_generated = "migrations" in path.parts
    assert is_generated or not tree.body or ast.get_docstring(tree), f"{name} has no docstring"
