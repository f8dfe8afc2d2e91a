"""Metrics of the view, and that whatever the alert rules and Grafana's dashboards name exists."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.coordinator.alerts import NAMES
from node.coordinator.metrics import Metrics
from node.coordinator.service import Service
from node.coordinator.store import Store
from tests.node.coordinator.sample import START, history, peer, report

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every sample by name and labels, of a run of three rounds."""
    now = START + 60 * 3
    service = Service(Store(f"sqlite:///{tmp_path / 'c.sqlite'}"), tmp_path, clock=lambda: now)
    facts = [*history(3), report(peer(0), 99, now - 1, "evaluation", round=2, loss=2.5)]
    for fact in facts:
        service.take(fact)
    service._begun = True
    service.fold_taken()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(Metrics(service).text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_numbers_of_the_view_are_there(
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]],
) -> None:
    assert samples["intellect_round"][()] == 2 and samples["intellect_rounds_total"][()] == 3
    assert samples["intellect_loss"][()] == pytest.approx(2.98)
    assert samples["intellect_members_heard"][()] == 3
    label = (("name", f"node-{peer(1)[-2:]}"), ("peer", peer(1)))
    assert samples["intellect_member_credits_total"][label] == 3 * 18_000
    assert set(samples["intellect_alerts"]) == {(("name", name),) for name in NAMES}


def test_every_metric_that_rules_and_dashboards_name_exists(
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]],
) -> None:
    texts = [(DEPLOY / "alerts.yaml").read_text()]
    for file in sorted((DEPLOY / "grafana").glob("*.json")):
        board = json.loads(file.read_text())
        texts += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for text in texts for name in re.findall(r"\bintellect_\w+", text)}
    assert len(named) > 20 and named - set(samples) - {"intellect_member_rtt_seconds"} == set()
    rules = re.findall(r'intellect_alerts\{name="(\w+)"\}', texts[0])
    assert rules and set(rules) <= set(NAMES)
