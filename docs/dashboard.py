"""Write conf/dashboard.json: a Grafana dashboard of the daemon's metrics.

python -m docs.dashboard
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[1] / "conf" / "dashboard.json"
SELECT = '{pipeline=~"$pipeline"}'
WIDTH, HEIGHT = 8, 8  # of a panel: three in a row of 24
SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """A graph of one or more expressions."""

    title: str
    text: str
    unit: str
    lines: Sequence[tuple[str, str]]
    """Expression and legend of each line."""


def _over(function: str, metric: str, *labels: str) -> str:
    return f"{function} by ({', '.join(('pipeline', *labels))}) ({metric}{SELECT})"


def _rate(metric: str, *labels: str) -> str:
    return f"sum by ({', '.join(('pipeline', *labels))}) (rate({metric}{SELECT}[$__rate_interval]))"


def _within(span: str, metric: str, *labels: str) -> str:
    return f"sum by ({', '.join(('pipeline', *labels))}) (increase({metric}{SELECT}[{span}]))"


# Rows of the dashboard: what works, what does not keep up, and what holds it up.
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "What lands",
        (
            Panel(
                "State",
                "1 for the state that each pipeline is in.",
                "short",
                ((f"{_over('max', 'fastwire_pipeline_state', 'state')} == 1", "{{pipeline}} {{state}}"),),
            ),
            Panel(
                "Health",
                "1 for the health of each pipeline: degraded, if a part of it does not land.",
                "short",
                ((f"{_over('max', 'fastwire_pipeline_health', 'health')} == 1", "{{pipeline}} {{health}}"),),
            ),
            Panel(
                "Stopped partitions",
                "Partitions that are not read any more, by reason.",
                "short",
                ((_over("sum", "fastwire_source_stopped_partitions", "reason") + " > 0", "{{pipeline}} {{reason}}"),),
            ),
            Panel(
                "Lag in time",
                "Age of the newest record that has landed, while the broker holds others.",
                "s",
                ((_over("max", "fastwire_sink_lag_seconds"), "{{pipeline}}"),),
            ),
            Panel(
                "Last commit",
                "Time since the last commit with records.",
                "s",
                ((f"time() - {_over('max', 'fastwire_sink_last_commit_time_seconds')}", "{{pipeline}}"),),
            ),
            Panel(
                "Silent topics",
                "Topics that get far fewer records than in their past hour.",
                "short",
                ((_over("max", "fastwire_source_silent_topics"), "{{pipeline}}"),),
            ),
            Panel(
                "Records a second",
                "Received from the brokers, and committed.",
                "cps",
                (
                    (_rate("fastwire_source_received_rows_total"), "{{pipeline}} received"),
                    (_rate("fastwire_sink_committed_rows_total"), "{{pipeline}} committed"),
                ),
            ),
            Panel(
                "Bytes a second",
                "Payloads received, decompressed, and files written.",
                "Bps",
                (
                    (_rate("fastwire_source_received_bytes_total"), "{{pipeline}} received"),
                    (_rate("fastwire_sink_file_bytes_total"), "{{pipeline}} files"),
                ),
            ),
        ),
    ),
    (
        "What waits",
        (
            Panel(
                "Backlog",
                "Entries or offsets that brokers hold and that are not acknowledged. No series: unknown.",
                "short",
                ((_over("max", "fastwire_source_backlog_entries"), "{{pipeline}}"),),
            ),
            Panel(
                "Partitions behind",
                "Partitions whose newest record has not been received.",
                "short",
                ((_over("sum", "fastwire_source_behind_logs"), "{{pipeline}}"),),
            ),
            Panel(
                "Not committed yet",
                "Bytes of the files that are being written.",
                "bytes",
                ((_over("sum", "fastwire_roll_open_bytes"), "{{pipeline}}"),),
            ),
        ),
    ),
    (
        "Commits and the disk",
        (
            Panel(
                "Time of a commit",
                "The slowest twentieth takes at least this long.",
                "s",
                (
                    (
                        f"histogram_quantile(0.95, {_rate('fastwire_sink_commit_seconds_bucket', 'le')})",
                        "{{pipeline}}",
                    ),
                ),
            ),
            Panel(
                "Waiting for the disk",
                "Share of the time for which the disk was full.",
                "percentunit",
                ((_rate("fastwire_sink_disk_full_seconds_total"), "{{pipeline}}"),),
            ),
            Panel(
                "Sink opened again",
                "After an error, within 15 minutes.",
                "short",
                ((_within("15m", "fastwire_sink_failures_total"), "{{pipeline}}"),),
            ),
        ),
    ),
    (
        "Brokers and memory",
        (
            Panel(
                "Connections made again",
                "Within 15 minutes, by reason.",
                "short",
                ((f"{_within('15m', 'fastwire_source_reconnects_total', 'reason')} > 0", "{{pipeline}} {{reason}}"),),
            ),
            Panel(
                "Dead letters",
                "Entries that could not be decoded, and values that do not match their schema, within an hour.",
                "short",
                (
                    (_within("1h", "fastwire_source_dead_letters_total"), "{{pipeline}} entries"),
                    (_within("1h", "fastwire_decode_dead_letters_total"), "{{pipeline}} values"),
                ),
            ),
            Panel(
                "Memory",
                "The byte budget of records in flight, and the resident memory of the process.",
                "bytes",
                (
                    ("fastwire_daemon_budget_used_bytes", "{{instance}} budget in use"),
                    ("fastwire_daemon_budget_limit_bytes", "{{instance}} budget"),
                    (
                        "process_resident_memory_bytes and on (instance) fastwire_daemon_build_info",
                        "{{instance}} resident",
                    ),
                ),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's model; it asks for the data source and the pipelines to show."""
    panels: list[dict[str, Any]] = []
    for row, (title, graphs) in enumerate(ROWS):
        top = row * (HEIGHT + 1)
        panels.append({"type": "row", "id": 100 + row, "title": title, "gridPos": _place(top, 0, 24, 1), "panels": []})
        panels += [
            _graph(graph, 10 * row + column, _place(top + 1, column * WIDTH, WIDTH, HEIGHT))
            for column, graph in enumerate(graphs, 1)
        ]
    pipelines = "label_values(fastwire_pipeline_state, pipeline)"
    return {
        "uid": "fastwire",
        "title": "fastwire",
        "tags": ["fastwire"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "pipeline",
                    "label": "Pipeline",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": pipelines,
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }


def text() -> str:
    """Return the text of conf/dashboard.json."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.lines)
        ],
    }


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
