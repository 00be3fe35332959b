"""What the page about metrics names is what there is, and what it shows runs."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from mainspring.cli.answering import NODE_FAMILIES
from mainspring.client.metrics import EVERY
from mainspring.client.readiness import Report
from mainspring.core.job import State
from mainspring.core.machine import TRANSITIONS
from mainspring.integrations import otel
from mainspring.integrations.prometheus import Prometheus
from tests.project.test_docs_code import ROOT, blocks, run

PAGE = "docs/how-to/metrics.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def told(title: str) -> dict[str, tuple[str, ...]]:
    """The metrics that a section lists, with their labels."""
    rows = re.findall(r"^\| `(mainspring_\w+)` \| (.*?) ?\| ", section(title), re.MULTILINE)
    return {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_metric_of_the_store_is_listed_with_its_labels() -> None:
    assert told("Metrics of the store") == {family.name: family.labels for family in EVERY}


def test_every_metric_of_a_worker_is_listed_with_its_labels() -> None:
    registry = CollectorRegistry()
    Prometheus(registry)
    own = {family.name: family.labels for family in NODE_FAMILIES}
    metrics: list[Any] = list(registry._collector_to_names)  # labels are told of series that are there, and none is yet
    listened = {f"{one._name}{'_total' if one._type == 'counter' else ''}": one._labelnames for one in metrics}
    assert told("Metrics of a worker") == own | listened


def test_every_event_with_which_an_attempt_ends_is_listed() -> None:
    (row,) = re.findall(r"^\| `mainspring_attempts_last_minute` .*$", TEXT, re.MULTILINE)
    ends = {
        str(one.event) for one in TRANSITIONS if one.source is State.RUNNING and one.target not in {None, State.RUNNING}
    }
    assert set(re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])) == ends


def test_alerts_are_about_metrics_that_there_are() -> None:
    rules = section("Alerts worth having")
    named = set(re.findall(r"mainspring_\w+", rules))
    assert named <= {family.name for family in EVERY}
    for expression in re.findall(r"expr: (.*)", rules):
        for name, label in re.findall(r"(mainspring_\w+)\{(\w+)=", expression):
            assert label in next(family.labels for family in EVERY if family.name == name)


def test_every_attribute_of_a_span_is_listed() -> None:
    names = {value for name, value in vars(otel).items() if name.isupper() and isinstance(value, str)}
    listed = re.findall(r"`((?:messaging|mainspring|error)\.[\w.]+)`", section("Traces").split("| --- | --- |")[1])
    assert set(listed) == names


def test_the_answer_that_is_shown_is_one() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)\n```", TEXT, re.DOTALL | re.MULTILINE)
    assert json.loads(msgspec.json.encode(msgspec.json.decode(shown, type=Report))) == json.loads(shown)


@pytest.mark.slow
def test_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join([*blocks(PAGE), "print(app.traced_by.__name__)"]), encoding="utf-8")
    assert run("page.py", cwd=tmp_path) == "traced_by\n"
