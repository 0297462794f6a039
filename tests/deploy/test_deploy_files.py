"""The files in deploy/ are what their tools take, and their numbers fit the defaults of the settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from django_outbox.conf import OutboxSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
MANIFESTS = [DEPLOY / "kubernetes" / f"{name}.yaml" for name in ("relay", "consumer", "prune")]
KEDA = DEPLOY / "kubernetes" / "keda.yaml"
COMPOSE = DEPLOY / "compose.yaml"
SETTINGS = OutboxSettings()
#: How long a turn of a relay may take, and so a sign of life stay away.
TURN = max(SETTINGS.lease, SETTINGS.breaker_cap)
#: What a stop takes besides waiting for confirms: settling, and handing back the rest.
SETTLING = timedelta(seconds=10)


def tool(name: str) -> str:
    """A linter of the test dependencies, or of the machine."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine")
    return found


def run(*command: str) -> str:
    """What the command says, on either stream; it has to exit with 0."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def container(manifest: str) -> Any:
    (deployment,) = documents(DEPLOY / "kubernetes" / manifest)
    return deployment["spec"]["template"]["spec"]["containers"][0]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of ours in the files, as (file, words)."""
    for unit in UNITS:
        for line in re.findall(r"^ExecStart=\S+ manage\.py (.+)$", unit.read_text(), re.M):
            yield unit.name, re.sub(r"%[iI]", "1", line).split()
    for name, service in documents(COMPOSE)[0]["services"].items():
        if "command" in service:
            yield f"compose {name}", service["command"]
    for manifest in ("relay.yaml", "consumer.yaml"):
        yield manifest, container(manifest)["args"]
    (job,) = documents(DEPLOY / "kubernetes" / "prune.yaml")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    yield "prune.yaml", pod["containers"][0]["args"]


def directive(unit: str, name: str) -> str:
    found = re.search(rf"^{name}=(.+)$", (DEPLOY / "systemd" / unit).read_text(), re.M)
    assert found is not None
    return found[1]


def seconds(text: str | int) -> timedelta:
    return timedelta(seconds=int(str(text).removesuffix("s")))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    for each in UNITS:  # they name each other
        text = each.read_text().replace("/srv/app/.venv/bin/python", sys.executable)
        (tmp_path / each.name).write_text(text)
    name = tmp_path / unit.name.replace("@.", "@1.")
    if name.name != unit.name:
        name.write_text((tmp_path / unit.name).read_text())
    # It exits with 0 whatever it ignores, and says so.
    said = run(tool("systemd-analyze"), "verify", "--man=no", str(name))
    assert [line for line in said.splitlines() if str(tmp_path) in line] == []


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    run(tool("hadolint"), str(DEPLOY / "Dockerfile"))


def test_what_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M)
        for name in line.split()[:-1]
    ]
    assert "manage.py" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert [name for name in copied if f"!{name}" not in ignored] == []


def test_the_compose_file_follows_the_specification() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_takes_the_manifest(manifest: Path) -> None:
    run(tool("kubernetes-validate"), "--strict", str(manifest))


def test_keda_scales_deployments_that_are_here_and_is_told_text() -> None:
    deployments = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["containers"][0]
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] == "Deployment"
    }
    required = {
        "prometheus": {"serverAddress", "query", "threshold"},
        "rabbitmq": {"queueName", "mode", "value"},
    }
    scaled = documents(KEDA)
    assert len(scaled) == 2
    for document in scaled:
        assert (document["apiVersion"], document["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
        spec = document["spec"]
        assert spec["scaleTargetRef"]["name"] in deployments
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
        for trigger in spec["triggers"]:
            metadata = trigger["metadata"]
            assert required[trigger["type"]] <= set(metadata)
            # KEDA's metadata is a map of strings.
            assert {type(value) for value in metadata.values()} == {str}


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda value: str(value)[:40])
def test_every_command_is_one_of_ours_and_takes_its_options(where: str, words: list[str]) -> None:
    name, *arguments = words
    app = "django_outbox" if name.startswith("outbox_") else "django.core"
    if name == "runserver":
        app = "django.contrib.staticfiles"
    load_command_class(app, name).create_parser("manage.py", name).parse_args(arguments)


def test_nobody_is_taken_for_dead_within_the_time_that_a_turn_may_take() -> None:
    assert seconds(directive("outbox-relay@.service", "WatchdogSec")) > 2 * TURN
    for manifest in ("relay.yaml", "consumer.yaml"):
        probe = json.dumps(container(manifest)["livenessProbe"])
        (minutes,) = re.findall(r"-mmin -(\d+)", probe)
        # find counts whole minutes: a file of 2:59 is two minutes old.
        assert timedelta(minutes=int(minutes) - 1) > TURN


def test_a_relay_has_the_time_that_its_stop_may_take() -> None:
    needed = SETTINGS.shutdown_timeout + SETTLING
    (relay,) = documents(DEPLOY / "kubernetes" / "relay.yaml")
    pod = relay["spec"]["template"]["spec"]
    assert seconds(pod["terminationGracePeriodSeconds"]) > needed
    assert seconds(directive("outbox-relay@.service", "TimeoutStopSec")) > needed
    assert seconds(documents(COMPOSE)[0]["services"]["relay"]["stop_grace_period"]) > needed


def test_the_files_of_the_probes_are_those_that_the_command_writes() -> None:
    relay = container("relay.yaml")
    written = dict(word.split("=") for word in relay["args"] if "=" in word)
    assert written["--readiness-file"] in relay["readinessProbe"]["exec"]["command"]
    assert written["--liveness-file"] in relay["startupProbe"]["exec"]["command"]
    assert written["--liveness-file"] in relay["livenessProbe"]["exec"]["command"][-1]


def test_what_the_units_wait_for_is_what_the_relay_says() -> None:
    assert directive("outbox-relay@.service", "Type") == "notify"


def test_the_comments_name_the_defaults() -> None:
    """Numbers in brackets behind a setting are its default."""
    for path in [*UNITS, *MANIFESTS, COMPOSE]:
        for name, number in re.findall(r'OUTBOX\["(\w+)"\]\s+\((\d+) s\)', path.read_text()):
            value: timedelta = getattr(SETTINGS, name.lower())
            assert value == timedelta(seconds=int(number)), f"{path.name}: {name}"
