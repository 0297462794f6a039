"""Metrics that are named anywhere (reference, dashboard, alerts, KEDA) exist, with the labels named."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from django_outbox.conf import OutboxSettings
from django_outbox.contrib.prometheus import OutboxCollector, ProcessMetrics

DOCS = Path(__file__).parents[2] / "docs"
KEDA = DOCS.parent / "deploy/kubernetes/keda.yaml"
ALERTS = DOCS / "observability/outbox-alerts.yml"
DASHBOARD = DOCS / "observability/outbox-dashboard.json"
REFERENCE = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(django_outbox_\w+)` \| (\w+) \|([^|]*)\|", re.M)
METRIC = re.compile(r"(django_outbox_\w+)(?:\{([^}]*)\})?")


def in_code() -> dict[str, tuple[str, set[str]]]:
    """By the name that a query uses: type and labels."""
    process = ProcessMetrics(CollectorRegistry())
    made = [value for value in vars(process).values() if isinstance(value, MetricWrapperBase)]
    found = {}
    for metric in made:
        (family,) = metric.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, set(metric._labelnames))
    for family in OutboxCollector().describe():
        found[family.name] = (family.type, set(family._labelnames))  # type: ignore[attr-defined]
    return found


IN_CODE = in_code()


def queries() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for document in yaml.safe_load_all(KEDA.read_text()):
        for trigger in document["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                yield "KEDA", trigger["metadata"]["query"]


QUERIES = list(queries())


def test_the_reference_lists_every_metric_with_its_type_and_labels() -> None:
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(REFERENCE)
    }
    assert listed == IN_CODE


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_names_only_metrics_and_labels_that_exist(where: str, query: str) -> None:
    named = METRIC.findall(query)
    assert named
    known: set[str] = {"le"}
    for name, selectors in named:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        kind, labels = IN_CODE.get(name) or IN_CODE[base]
        assert name == base or kind == "histogram"
        assert set(re.findall(r"(\w+)\s*=", selectors)) <= labels
        known |= labels
    for grouped in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
        assert {each.strip() for each in grouped.split(",")} <= known


@pytest.mark.parametrize("metric", sorted(IN_CODE.keys() - {"django_outbox_breaker_open"}))
def test_the_dashboard_or_an_alert_shows_every_metric(metric: str) -> None:
    assert any(metric in query for _, query in QUERIES)


def test_states_that_are_asked_for_exist(database: Any) -> None:
    collected = {family.name: family for family in OutboxCollector().collect()}
    states = {sample.labels["state"] for sample in collected["django_outbox_messages"].samples}
    asked = {
        state
        for _, query in QUERIES
        for group in re.findall(r'state=~?"([^"]+)"', query)
        for state in group.split("|")
    }
    assert asked <= states
    for state in states:
        assert f"`{state}`" in REFERENCE


def test_an_alert_waits_as_long_as_the_alert_age() -> None:
    (expression,) = [query for where, query in QUERIES if where == "alert OutboxMessagesWait"]
    assert timedelta(seconds=int(expression.split(">")[1])) == OutboxSettings().alert_age


def test_promtool_takes_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on this machine (Debian: prometheus)")
    ran = subprocess.run(
        [promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_says_what_to_do() -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert len(rule["annotations"]["description"]) > 40


def test_the_dashboards_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
