"""Prometheus metrics: one method per fact, called once per chunk, commit or event and never once per record.

Names are ``fastwire_<part>_<what>_<unit>[_total]`` in base units. Labels are the pipeline and words of fixed lists;
partitions and topics are not labels, because there may be thousands.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .health import Health, StopReason

CONTENT_TYPE = CONTENT_TYPE_LATEST
STALLING_SETTINGS = ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesPerSubscription")

DATASET_STATES = (
    "idle",
    "starting",
    "running",
    "resting",
    "empty",
    "slow",
    "degraded",
    "draining",
    "ended",
    "stopped",
    "failed",
)
PipelineState = Literal["starting", "running", "paused", "draining", "ended", "failed"]
ReconnectReason = Literal["unreachable", "lost", "closed_by_broker", "silent", "protocol_error", "refused", "other"]

# From one small file on a fast disk to a full disk that an operator had to clear.
_COMMIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class DaemonMetrics:
    """The metrics of the process, and the source of those of its pipelines.

    Every instance has its own registry, so several of them can live in one process.
    """

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the number of series
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._pipelines: dict[str, PipelineMetrics] = {}
        self._families = _Families(self.registry)
        build = Gauge("fastwire_daemon_build_info", "Version of the daemon.", ["version"], registry=self.registry)
        build.labels(version).set(1)
        self._budget_used = self._gauge("fastwire_daemon_budget_used_bytes", "Bytes of the budget in use.")
        self.budget_limit = self._gauge("fastwire_daemon_budget_limit_bytes", "Bytes that records may take up.")
        self.pauses = Counter(
            "fastwire_daemon_reading_pauses_total",
            "How often reading was paused because the budget was used up.",
            registry=self.registry,
        )

    def pipeline(self, name: str) -> "PipelineMetrics":
        """Return the metrics of the pipeline ``name``, always the same object for one name."""
        if name not in self._pipelines:
            self._pipelines[name] = PipelineMetrics(self._families, name)
        return self._pipelines[name]

    def forget(self, name: str) -> None:
        """Remove the metrics of a pipeline that is no longer configured."""
        self._pipelines.pop(name, None)
        self._families.forget(name)

    def budget_used_by(self, used_bytes: Callable[[], int]) -> None:
        """Call ``used_bytes`` at each scrape for the bytes of the budget in use."""
        self._budget_used.set_function(used_bytes)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus; its media type is ``CONTENT_TYPE``."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)


class _Families:
    """All metrics that carry the label ``pipeline``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["pipeline", *labels], registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, ["pipeline", *labels], registry=registry)

        self.rows = counter("fastwire_source_received_rows_total", "Records received, without duplicates.")
        self.bytes = counter("fastwire_source_received_bytes_total", "Payload bytes of these records, decompressed.")
        self.chunks = counter("fastwire_source_chunks_total", "Chunks handed on.")
        self.deduplicated = counter(
            "fastwire_source_deduplicated_entries_total",
            "Entries that came again and were dropped, by why they could be.",
            "why",
        )
        self.redelivered = counter("fastwire_source_redelivered_entries_total", "Entries delivered before.")
        self.dead_letters = counter("fastwire_source_dead_letters_total", "Entries that cannot be decoded.")
        self.discarded = counter(
            "fastwire_source_discarded_entries_total", "Encrypted entries that no key opened, dropped as configured."
        )
        self.permits = counter("fastwire_source_granted_permits_total", "Permits granted to the broker.")
        self.acks = counter("fastwire_source_acks_sent_total", "Ack commands sent.")
        self.receipts = counter("fastwire_source_ack_receipts_total", "Acks the broker has confirmed.")
        self.reconnects = counter("fastwire_source_reconnects_total", "Connections made again, by reason.", "reason")
        self.stalls = counter(
            "fastwire_source_stalls_total",
            "Times the broker delivered no more until records were acknowledged, by its setting.",
            "setting",
        )
        self.throttled = counter(
            "fastwire_source_throttled_seconds_total",
            "Time for which brokers asked to send nothing on a connection, because a quota was exceeded.",
        )
        self.connections = gauge("fastwire_source_connections", "Open connections to brokers.")
        self.backlog = gauge(
            "fastwire_source_backlog_entries",
            "Entries or offsets that the brokers hold and that are not acknowledged, when asked last.",
        )
        self.stopped = gauge(
            "fastwire_source_stopped_partitions", "Partitions that are not read any more, by reason.", "reason"
        )
        self.unreadable = gauge(
            "fastwire_source_unreadable_partitions", "Partitions that could not be read for 30 s, and are tried again."
        )
        self.behind = gauge(
            "fastwire_source_behind_logs", "Logs with records that had not come to us when the broker was asked last."
        )
        self.silent = gauge(
            "fastwire_source_silent_topics", "Topics that grow by at most 5 % of what they grew by in their past hour."
        )
        self.time_lag = gauge(
            "fastwire_sink_lag_seconds", "Age of the newest record that has landed; 0 while the brokers hold no other."
        )
        self.last_commit = gauge(
            "fastwire_sink_last_commit_time_seconds", "Time of the last commit of records, in seconds since 1970."
        )
        self.roll_rows = gauge("fastwire_roll_open_rows", "Records in files that are not committed yet.")
        self.roll_bytes = gauge("fastwire_roll_open_bytes", "Bytes of files that are not committed yet.")
        self.commits = counter("fastwire_sink_commits_total", "Commits.")
        self.commit_seconds = Histogram(
            "fastwire_sink_commit_seconds",
            "Time a commit took.",
            ["pipeline"],
            registry=registry,
            buckets=_COMMIT_BUCKETS,
        )
        self.committed_rows = counter("fastwire_sink_committed_rows_total", "Records committed.")
        self.files = counter("fastwire_sink_files_total", "Files published.")
        self.file_bytes = counter("fastwire_sink_file_bytes_total", "Bytes of these files.")
        self.decoded = counter("fastwire_decode_values_total", "Values decoded into columns and committed.")
        self.undecoded = counter("fastwire_decode_dead_letters_total", "Values that do not match their schema.")
        self.added = counter("fastwire_decode_added_columns_total", "Columns that newer schemas have added.")
        self.filtered = counter("fastwire_decode_filtered_values_total", "Values that the transform has left out.")
        self.changed_times = counter(
            "fastwire_sink_changed_times_total",
            "Times of records that the column or the topic cannot hold, and that were changed.",
        )
        self.superseded = counter("fastwire_sink_superseded_rolls_total", "Rolls given up for another writer's commit.")
        self.failures = counter("fastwire_sink_failures_total", "Times the sink had to be opened again after an error.")
        self.disk_full = counter("fastwire_sink_disk_full_seconds_total", "Time spent waiting for room on the disk.")
        self.datasets = gauge(
            "fastwire_pipeline_datasets", "Datasets of a pipeline that has one for each topic, by state.", "state"
        )
        self.state = gauge("fastwire_pipeline_state", "1 for the state the pipeline is in, 0 for all others.", "state")
        self.health = gauge("fastwire_pipeline_health", "1 for the health of the pipeline, 0 for all others.", "health")

        for former, family in (
            ("fastwire_source_cut_entries", self.deduplicated),
            ("fastwire_source_diverted_entries", self.dead_letters),
            ("fastwire_decode_bad_values", self.undecoded),
        ):
            registry.register(_Former(former, family))

    def forget(self, pipeline: str) -> None:
        """Remove all series of a pipeline."""
        for family in (each for each in vars(self).values() if isinstance(each, Counter | Gauge | Histogram)):
            labels = [sample.labels for metric in family.collect() for sample in metric.samples]
            mine = {tuple(each.items()) for each in labels if each["pipeline"] == pipeline}
            for series in {tuple(value for key, value in each if key != "le") for each in mine}:
                family.remove(*series)


class _Former(Collector):
    """A counter under a name that it had before, for the dashboards and rules that know it by that."""

    def __init__(self, name: str, family: Counter) -> None:
        self._name = name
        self._family = family

    def collect(self) -> Iterator[Metric]:
        for family in self._family.collect():
            former = Metric(self._name, f"Former name of {family.name}_total.", "counter")
            for sample in family.samples:
                former.add_sample(f"{self._name}_total", sample.labels, sample.value)
            yield former


class PipelineMetrics:
    """The metrics of one pipeline: facts of one metric as that metric, to be increased or set, others as methods.

    All are cheap, take whole amounts, and may be called from any thread.
    """

    def __init__(self, families: _Families, pipeline: str) -> None:
        self._pipeline = pipeline
        self._lag = (families.backlog, families.behind, families.silent)
        self._time_lag = families.time_lag
        self._last_commit = families.last_commit
        self._lags_in_time = False
        self._rows = families.rows.labels(pipeline)
        self._bytes = families.bytes.labels(pipeline)
        self._chunks = families.chunks.labels(pipeline)
        self.deduplicated = {why: families.deduplicated.labels(pipeline, why) for why in ("landed", "staged")}
        self.redelivered = families.redelivered.labels(pipeline)
        self.dead_letters = families.dead_letters.labels(pipeline)
        self.discarded = families.discarded.labels(pipeline)
        self.permits = families.permits.labels(pipeline)
        self.acks = families.acks.labels(pipeline)
        self.receipts = families.receipts.labels(pipeline)
        self._reconnects = {
            reason: families.reconnects.labels(pipeline, reason) for reason in get_args(ReconnectReason)
        }
        self.throttled = families.throttled.labels(pipeline)
        self.connections = families.connections.labels(pipeline)
        self._roll_rows = families.roll_rows.labels(pipeline)
        self._roll_bytes = families.roll_bytes.labels(pipeline)
        self._commits = families.commits.labels(pipeline)
        self._commit_seconds = families.commit_seconds.labels(pipeline)
        self._committed_rows = families.committed_rows.labels(pipeline)
        self._files = families.files.labels(pipeline)
        self._file_bytes = families.file_bytes.labels(pipeline)
        counted = (families.decoded, families.undecoded, families.added, families.filtered)
        self._decoded = [each.labels(pipeline) for each in counted]
        self.changed_times = families.changed_times.labels(pipeline)
        self.stalls = {setting: families.stalls.labels(pipeline, setting) for setting in STALLING_SETTINGS}
        self.superseded = families.superseded.labels(pipeline)
        self.failures = families.failures.labels(pipeline)
        self.disk_full = families.disk_full.labels(pipeline)
        self._stopped = {reason: families.stopped.labels(pipeline, reason) for reason in get_args(StopReason)}
        self._unreadable = families.unreadable.labels(pipeline)
        self._healths = {health: families.health.labels(pipeline, health) for health in Health}
        self._datasets = families.datasets
        self._states = {state: families.state.labels(pipeline, state) for state in get_args(PipelineState)}
        self.state("starting")

    def received(self, rows: int, payload_bytes: int, chunks: int = 1) -> None:
        """Count chunks of new records that the broker has delivered."""
        self._rows.inc(rows)
        self._bytes.inc(payload_bytes)
        self._chunks.inc(chunks)

    def reconnected(self, reason: ReconnectReason | str) -> None:
        """Count a connection that has to be made again. A reason that is not on the list counts as ``other``."""
        self._reconnects.get(reason, self._reconnects["other"]).inc()

    def lag(self, backlog_entries: int, behind_logs: int, silent_topics: int) -> None:
        """Set the entries not acknowledged, the number of logs with records not received yet, and of silent topics."""
        for gauge, value in zip(self._lag, (backlog_entries, behind_logs, silent_topics), strict=True):
            gauge.labels(self._pipeline).set(value)

    def lag_unknown(self) -> None:
        """Remove the backlog series while the backlog is unknown: a 0 would claim that there is none."""
        for gauge in self._lag:
            gauge.remove(self._pipeline)

    def stopped(self, partitions: Mapping[StopReason, int]) -> None:
        """Set the numbers of partitions that are stopped, by reason; a reason that is left out has none."""
        for reason, gauge in self._stopped.items():
            gauge.set(partitions.get(reason, 0))

    def unreadable(self, partitions: int) -> None:
        """Set the number of partitions that cannot be read at the moment, and not for long."""
        self._unreadable.set(partitions)

    def health(self, health: Health) -> None:
        """Set the health of the pipeline."""
        for each, gauge in self._healths.items():
            gauge.set(each is health)

    def time_lag(self, seconds: float | None) -> None:
        """Set the age of the newest landed record while there are others; None, if it is not known, removes it."""
        if seconds is not None:
            self._time_lag.labels(self._pipeline).set(seconds)
            self._lags_in_time = True
        elif self._lags_in_time:
            self._time_lag.remove(self._pipeline)
            self._lags_in_time = False

    def last_commit(self, at: float) -> None:
        """Set the time of the last commit of records, in seconds since 1970."""
        self._last_commit.labels(self._pipeline).set(at)

    def roll(self, rows: int, file_bytes: int) -> None:
        """Set the size of the open roll: its rows, and its bytes on disk."""
        self._roll_rows.set(rows)
        self._roll_bytes.set(file_bytes)

    def datasets(self, states: Mapping[str, int]) -> None:
        """Set the number of datasets of a pipeline that has one for each topic, by state."""
        for state in DATASET_STATES:
            self._datasets.labels(self._pipeline, state).set(states.get(state, 0))

    def committed(self, seconds: float, rows: int, files: int, file_bytes: int) -> None:
        """Count a commit that is durable and whose files are visible."""
        self._commits.inc()
        self._commit_seconds.observe(seconds)
        self._committed_rows.inc(rows)
        self._files.inc(files)
        self._file_bytes.inc(file_bytes)

    def decoded(self, values: int, dead_letters: int, columns: int, filtered: int) -> None:
        """Count values of a commit, dead letters, columns that were added, and values that a transform left out."""
        for each, count in zip(self._decoded, (values, dead_letters, columns, filtered), strict=True):
            each.inc(count)

    def state(self, state: PipelineState) -> None:
        """Set the state of the pipeline."""
        for name, gauge in self._states.items():
            gauge.set(name == state)
