"""The metrics: their names are a contract, their cardinality is bounded."""

import re

from prometheus_client.parser import text_string_to_metric_families

from fastwire_daemon.runtime.metrics import DaemonMetrics


def samples(metrics: DaemonMetrics) -> dict[str, float]:
    """Each series as one text, ``name{label="value"}``, with its value; those of the process itself left out."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            if sample.name.startswith("fastwire_"):
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


RENAMED = {
    "fastwire_source_deduplicated_entries_total": "fastwire_source_cut_entries_total",
    "fastwire_source_dead_letters_total": "fastwire_source_diverted_entries_total",
    "fastwire_decode_dead_letters_total": "fastwire_decode_bad_values_total",
}
FORMER = tuple(RENAMED.values())


def filled() -> DaemonMetrics:
    metrics = DaemonMetrics("1.2.3")
    metrics.budget_limit.set(1000)
    metrics.budget_used_by(lambda: 250)
    metrics.pauses.inc()
    orders = metrics.pipeline("orders")
    orders.received(100, 5000)
    orders.received(50, 2500, chunks=2)
    orders.deduplicated["landed"].inc(7)
    orders.deduplicated["staged"].inc(3)
    orders.redelivered.inc(4)
    orders.dead_letters.inc(1)
    orders.discarded.inc(6)
    orders.permits.inc(1000)
    orders.acks.inc(3)
    orders.receipts.inc()
    orders.connections.set(2)
    orders.reconnected("lost")
    orders.reconnected("something new")
    orders.lag(33, 2, 0)
    orders.throttled.inc(2.5)
    orders.roll(10, 20)
    orders.committed(0.02, 150, 2, 4096)
    orders.decoded(140, 10, 1, 5)
    orders.stalls["maxUnackedMessagesPerConsumer"].inc()
    orders.superseded.inc()
    orders.changed_times.inc(7)
    orders.failures.inc()
    orders.disk_full.inc(1.5)
    orders.state("running")
    return metrics


def test_every_fact_has_its_series() -> None:
    found = {
        name: value
        for name, value in samples(filled()).items()
        if value and "_bucket{" not in name and not name.startswith(FORMER)
    }
    p = '{pipeline="orders"}'
    assert found == {
        'fastwire_daemon_build_info{version="1.2.3"}': 1,
        "fastwire_daemon_budget_used_bytes": 250,
        "fastwire_daemon_budget_limit_bytes": 1000,
        "fastwire_daemon_reading_pauses_total": 1,
        f"fastwire_source_received_rows_total{p}": 150,
        f"fastwire_source_received_bytes_total{p}": 7500,
        f"fastwire_source_chunks_total{p}": 3,
        'fastwire_source_deduplicated_entries_total{pipeline="orders",why="landed"}': 7,
        'fastwire_source_deduplicated_entries_total{pipeline="orders",why="staged"}': 3,
        f"fastwire_source_redelivered_entries_total{p}": 4,
        f"fastwire_source_discarded_entries_total{p}": 6,
        f"fastwire_source_dead_letters_total{p}": 1,
        f"fastwire_source_granted_permits_total{p}": 1000,
        f"fastwire_source_acks_sent_total{p}": 3,
        f"fastwire_source_ack_receipts_total{p}": 1,
        f"fastwire_source_connections{p}": 2,
        'fastwire_source_reconnects_total{pipeline="orders",reason="lost"}': 1,
        'fastwire_source_reconnects_total{pipeline="orders",reason="other"}': 1,
        'fastwire_source_stalls_total{pipeline="orders",setting="maxUnackedMessagesPerConsumer"}': 1,
        f"fastwire_source_backlog_entries{p}": 33,
        f"fastwire_source_behind_logs{p}": 2,
        f"fastwire_source_throttled_seconds_total{p}": 2.5,
        f"fastwire_roll_open_rows{p}": 10,
        f"fastwire_roll_open_bytes{p}": 20,
        f"fastwire_sink_commits_total{p}": 1,
        f"fastwire_sink_commit_seconds_count{p}": 1,
        f"fastwire_sink_commit_seconds_sum{p}": 0.02,
        f"fastwire_sink_committed_rows_total{p}": 150,
        f"fastwire_sink_files_total{p}": 2,
        f"fastwire_sink_file_bytes_total{p}": 4096,
        f"fastwire_decode_values_total{p}": 140,
        f"fastwire_decode_dead_letters_total{p}": 10,
        f"fastwire_decode_added_columns_total{p}": 1,
        f"fastwire_decode_filtered_values_total{p}": 5,
        f"fastwire_sink_superseded_rolls_total{p}": 1,
        f"fastwire_sink_changed_times_total{p}": 7,
        f"fastwire_sink_failures_total{p}": 1,
        f"fastwire_sink_disk_full_seconds_total{p}": 1.5,
        'fastwire_pipeline_state{pipeline="orders",state="running"}': 1,
    }


def test_a_renamed_counter_is_there_under_both_names() -> None:
    found = samples(filled())
    pairs = [
        (name, former + name.removeprefix(now)) for now, former in RENAMED.items() for name in found if now in name
    ]
    assert len(pairs) == 4
    for name, former in pairs:
        assert found[name] == found[former] > 0


def test_names_follow_the_rule() -> None:
    units = (
        "rows|bytes|seconds|entries|chunks|permits|sent|receipts|reconnects|connections|commits|files|rolls|failures|"
        "logs|stalls|values|columns|times|letters|pauses|partitions|topics|datasets"
    )
    for family in text_string_to_metric_families(filled().render().decode()):
        if not family.name.startswith("fastwire_"):
            assert family.name.startswith(("process_", "python_")), family.name
            continue
        if family.name not in ("fastwire_daemon_build_info", "fastwire_pipeline_state", "fastwire_pipeline_health"):
            assert re.fullmatch(
                rf"fastwire_(daemon|pipeline|source|roll|decode|sink)_[a-z_]*?({units})", family.name
            ), family.name
        assert family.documentation.endswith(".")


def test_counters_are_there_before_anything_happens() -> None:
    """Otherwise the first step of a counter is lost to whoever takes differences."""
    metrics = DaemonMetrics("1")
    metrics.pipeline("orders")
    found = samples(metrics)
    assert found['fastwire_sink_commits_total{pipeline="orders"}'] == 0
    assert found['fastwire_source_reconnects_total{pipeline="orders",reason="lost"}'] == 0
    assert found['fastwire_pipeline_state{pipeline="orders",state="starting"}'] == 1


def test_a_lag_that_is_not_known_has_no_series() -> None:
    metrics = DaemonMetrics("1")
    orders = metrics.pipeline("orders")
    metrics.pipeline("other").lag(0, 0, 0)
    orders.lag_unknown()
    name = 'fastwire_source_backlog_entries{pipeline="orders"}'
    assert name not in samples(metrics)
    orders.lag(3, 1, 0)
    assert samples(metrics)[name] == 3
    orders.lag_unknown()
    assert [each for each in samples(metrics) if "backlog" in each or "behind" in each] == [
        'fastwire_source_backlog_entries{pipeline="other"}',
        'fastwire_source_behind_logs{pipeline="other"}',
    ]


def test_one_state_at_a_time() -> None:
    metrics = DaemonMetrics("1")
    orders = metrics.pipeline("orders")
    for state in ("running", "paused", "draining", "ended", "failed"):
        orders.state(state)
        set_ones = [name for name, value in samples(metrics).items() if "pipeline_state" in name and value]
        assert set_ones == [f'fastwire_pipeline_state{{pipeline="orders",state="{state}"}}']


def test_pipelines_keep_to_themselves() -> None:
    metrics = DaemonMetrics("1")
    assert metrics.pipeline("a") is metrics.pipeline("a")
    metrics.pipeline("a").received(5, 5)
    metrics.pipeline("b").received(7, 7)
    found = samples(metrics)
    assert found['fastwire_source_received_rows_total{pipeline="a"}'] == 5
    assert found['fastwire_source_received_rows_total{pipeline="b"}'] == 7
    assert samples(DaemonMetrics("1")).keys() == {
        'fastwire_daemon_build_info{version="1"}',
        "fastwire_daemon_budget_used_bytes",
        "fastwire_daemon_budget_limit_bytes",
        "fastwire_daemon_reading_pauses_total",
    }


def test_reasons_are_a_fixed_list() -> None:
    metrics = DaemonMetrics("1")
    orders = metrics.pipeline("orders")
    before = len(samples(metrics))
    for number in range(100):
        orders.reconnected(f"connection {number} was lost")
    assert len(samples(metrics)) == before


def test_the_budget_is_asked_when_somebody_looks() -> None:
    metrics = DaemonMetrics("1")
    used = [1]
    metrics.budget_used_by(lambda: used[0])
    used[0] = 99
    assert samples(metrics)["fastwire_daemon_budget_used_bytes"] == 99


def test_a_pipeline_that_is_gone_leaves_no_series() -> None:
    metrics = filled()
    before = samples(metrics)
    assert [name for name in before if 'pipeline="orders"' in name]
    other = metrics.pipeline("other")
    other.received(1, 2)
    metrics.forget("orders")
    left = samples(metrics)
    assert not [name for name in left if 'pipeline="orders"' in name]
    assert left['fastwire_source_received_rows_total{pipeline="other"}'] == 1
    metrics.forget("orders")  # nothing is left
    metrics.pipeline("orders").received(5, 5)
    assert samples(metrics)['fastwire_source_received_rows_total{pipeline="orders"}'] == 5
