"""The dashboard and the alert rules of conf/ name metrics that exist, and each alert fires when it should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from docs import dashboard
from fastwire_daemon.runtime.metrics import DaemonMetrics, PipelineState
from tests.project.test_docs import anchors
from tests.support.source_tree import ROOT

ALERTS = ROOT / "conf" / "alerts.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"
SCRAPED = {"instance", "job", "le"}  # labels that a scrape or a histogram adds


@cache
def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def graphs() -> list[str]:
    """The expressions of the dashboard, with Grafana's variables replaced."""
    written = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
    found = [line["expr"] for panel in written["panels"] for line in panel.get("targets", ())]
    return [expr.replace("$__rate_interval", "5m").replace("$pipeline", ".*") for expr in found]


@cache
def labels_of() -> dict[str, set[str]]:
    """The names of all series of a daemon, each with its labels."""
    metrics = DaemonMetrics("1")
    pipeline = metrics.pipeline("it")
    pipeline.lag(1, 1, 0)
    pipeline.time_lag(1.0)
    pipeline.last_commit(1.0)
    pipeline.reconnected("lost")
    return {
        sample.name: set(sample.labels)
        for family in metrics.registry.collect()
        for sample in family.samples
    }  # fmt: skip


def unknown(expression: str) -> Iterator[str]:
    """The metrics and labels of an expression that no daemon has."""
    named = set(re.findall(r"\b(?:fastwire|process)_\w+", expression))
    yield from sorted(named - labels_of().keys())
    told = {label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")}
    told |= {label for inner in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*=", inner)}
    have = set().union(*(labels_of().get(name, set()) for name in named)) | SCRAPED
    yield from sorted(told - have)


def test_metrics_and_labels_exist() -> None:
    expressions = [rule["expr"] for rule in rules()] + graphs()
    assert len(expressions) > 20
    assert {expression: names for expression in expressions if (names := list(unknown(expression)))} == {}


def test_a_wrong_metric_or_label_is_found() -> None:
    assert list(unknown('sum by (topic) (rate(fastwire_source_rows_total{partition="1"}[5m]))')) == [
        "fastwire_source_rows_total",
        "partition",
        "topic",
    ]


def test_states_exist() -> None:
    named = {state for rule in rules() for state in re.findall(r'state="(\w+)"', rule["expr"])}
    assert named
    assert named <= set(get_args(PipelineState))


def test_the_dashboard_is_what_its_script_writes() -> None:
    assert dashboard.FILE.read_text(encoding="utf-8") == dashboard.text(), "make docs"


def test_each_alert_has_a_section_of_the_runbook() -> None:
    names = [rule["alert"] for rule in rules()]
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(names)
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert ROOT / page == RUNBOOK
        assert anchor in anchors(RUNBOOK)
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("critical", "warning")


# -- promtool ---------------------------------------------------------------------------------------------------------

PIPELINE = 'instance="a", pipeline="orders"'
# Series of a healthy daemon by name and labels, a value a minute. A case replaces some of them, None takes one away.
HEALTHY: dict[str, str | None] = {
    'fastwire_daemon_build_info{instance="a", version="1"}': "1+0x60",
    'up{instance="a", job="prod/fastwire"}': "1 0 0 1x57",
    'up{instance="b", job="other"}': "0x60",
    f'fastwire_pipeline_state{{{PIPELINE}, state="running"}}': "1+0x60",
    f'fastwire_pipeline_state{{{PIPELINE}, state="failed"}}': "0+0x60",
    f'fastwire_pipeline_health{{{PIPELINE}, health="degraded"}}': "1x3 0x57",
    f'fastwire_pipeline_health{{{PIPELINE}, health="stuck"}}': "1 0x59",
    f'fastwire_source_stopped_partitions{{{PIPELINE}, reason="lost"}}': "0+0x60",
    f"fastwire_source_unreadable_partitions{{{PIPELINE}}}": "0 3 0x58",
    f"fastwire_source_backlog_entries{{{PIPELINE}}}": "50+0x60",
    f"fastwire_source_behind_logs{{{PIPELINE}}}": "0 1 0 2 0x56",
    f"fastwire_source_silent_topics{{{PIPELINE}}}": "0+0x60",
    f"fastwire_sink_lag_seconds{{{PIPELINE}}}": "60 1200 70 0x57",
    f"fastwire_source_dead_letters_total{{{PIPELINE}}}": "7+0x60",
    f"fastwire_decode_dead_letters_total{{{PIPELINE}}}": "7+0x60",
    f"fastwire_source_discarded_entries_total{{{PIPELINE}}}": "7+0x60",
    f'fastwire_source_reconnects_total{{{PIPELINE}, reason="lost"}}': "3+0x60",
    f"fastwire_sink_committed_rows_total{{{PIPELINE}}}": "0+1000x60",
    f"fastwire_sink_failures_total{{{PIPELINE}}}": "1+0x60",
    f"fastwire_sink_disk_full_seconds_total{{{PIPELINE}}}": "20+0x60",
}
FIRES: dict[str, dict[str, str | None]] = {
    "FastwireDown": {'fastwire_daemon_build_info{instance="a", version="1"}': None},
    "FastwireNoAnswer": {'up{instance="a", job="prod/fastwire"}': "0x60"},
    "FastwireStuck": {f'fastwire_pipeline_health{{{PIPELINE}, health="stuck"}}': "1+0x60"},
    "FastwirePipelineFailed": {f'fastwire_pipeline_state{{{PIPELINE}, state="failed"}}': "1+0x60"},
    "FastwirePartitionsStopped": {
        f'fastwire_source_stopped_partitions{{{PIPELINE}, reason="lost"}}': "3+0x60",
        f'fastwire_pipeline_health{{{PIPELINE}, health="degraded"}}': "1+0x60",
    },
    "FastwirePartitionsUnreadable": {f"fastwire_source_unreadable_partitions{{{PIPELINE}}}": "3+0x60"},
    "FastwireDegraded": {f'fastwire_pipeline_health{{{PIPELINE}, health="degraded"}}': "1+0x60"},
    "FastwireBacklogUnknown": {f"fastwire_source_backlog_entries{{{PIPELINE}}}": None},
    "FastwireNothingLands": {f"fastwire_sink_committed_rows_total{{{PIPELINE}}}": "9+0x60"},
    "FastwireDiskFull": {f"fastwire_sink_disk_full_seconds_total{{{PIPELINE}}}": "0+30x60"},
    "FastwireBehind": {f"fastwire_source_behind_logs{{{PIPELINE}}}": "3+0x60"},
    "FastwirePipelineGone": {
        f'fastwire_pipeline_state{{{PIPELINE}, state="running"}}': "1+0x40",
        f'fastwire_pipeline_state{{{PIPELINE}, state="failed"}}': "0+0x40",
    },
    "FastwireLate": {f"fastwire_sink_lag_seconds{{{PIPELINE}}}": "0+60x60"},
    "FastwireTopicSilent": {f"fastwire_source_silent_topics{{{PIPELINE}}}": "0x30 3x30"},
    "FastwireSinkFails": {f"fastwire_sink_failures_total{{{PIPELINE}}}": "0+1x60"},
    "FastwireReconnects": {f'fastwire_source_reconnects_total{{{PIPELINE}, reason="lost"}}': "0+2x60"},
    "FastwireDeadLetters": {f"fastwire_source_dead_letters_total{{{PIPELINE}}}": "0x50 1x10"},
    "FastwireRecordsDropped": {f"fastwire_source_discarded_entries_total{{{PIPELINE}}}": "0x50 1x10"},
}


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return what it says; it must succeed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool: apt-get install prometheus")
    done = subprocess.run((program, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)


def test_promtool_accepts_the_graphs(tmp_path: Path) -> None:
    recorded = [{"record": f"graph:{at}", "expr": expression} for at, expression in enumerate(graphs())]
    file = tmp_path / "graphs.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "graphs", "rules": recorded}]}), encoding="utf-8")
    assert f"{len(recorded)} rules found" in promtool("check", "rules", file)


@pytest.mark.parametrize("fault", [None, *FIRES])
def test_an_alert_fires_for_its_fault_alone(fault: str | None, tmp_path: Path) -> None:
    """After an hour of the fault that one alert fires, and none for a healthy daemon; every rule is looked at."""
    series = HEALTHY | (FIRES[fault] if fault else {})
    looked_at = [
        {
            "alertname": rule["alert"],
            "eval_time": "59m",
            "exp_alerts": [] if rule["alert"] != fault else [expected(rule)],
        }
        for rule in rules()
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values],
        "alert_rule_test": looked_at,
    }
    file = tmp_path / "case.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [case]}), encoding="utf-8"
    )
    assert "SUCCESS" in promtool("test", "rules", file)


def expected(rule: dict[str, Any]) -> dict[str, Any]:
    """The firing alert of a rule, for one pipeline of one instance."""
    values = {"pipeline": "orders", "instance": "a"}
    grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
    labels = {name.strip(): values[name.strip()] for name in grouped[1].split(",")} if grouped else {}
    told = {"$labels." + name: value for name, value in values.items()} | {"$value": "3"}
    annotations = {
        key: re.sub(r"\{\{ (\S+) \}\}", lambda found: told[found[1]], text)
        for key, text in rule["annotations"].items()
    }  # fmt: skip
    return {"exp_labels": labels | rule["labels"], "exp_annotations": annotations}


def test_every_alert_has_a_fault() -> None:
    assert sorted(FIRES) == sorted(rule["alert"] for rule in rules())
