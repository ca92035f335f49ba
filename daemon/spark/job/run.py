"""Runs the jobs of a configuration, one query each in one session, until they end or are stopped."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import which
from typing import Any

from ...config import Config, ConfigError, Problem, SparkBrokers, SparkConfig
from ...runtime.errors import ConfigurationRefused, DatasetError
from ...runtime.logs import get_logger
from ..source.offsets import behind
from .checkpoint import check_keys, claim, drop_cut_logs, drop_unbegun, read_origin, release
from .failure import cause, details, is_passing
from .output import BatchCounts, make_output
from .plan import plan_job
from .source import batches_of, by_files, stream_rows

_log = get_logger("spark")
_POLL_S = 0.5
_MOST_TRIES = 3
# The environment variables and settings of a process that uses Spark Connect.
_CONNECT = frozenset({"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"})
_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    # It halves the cost of a Python task; versions without it ignore it.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's regular expressions and plans are recursive, and the frames of a Java that is not warm are large.
    "spark.driver.extraJavaOptions": "-Xss4m",
}


def open_session(settings: Mapping[str, str] | None = None, master: str | None = None) -> Any:
    """Return the session of this process, or start one; settings of ``spark-submit`` are kept.

    An existing session is used as it is, but its time zone becomes UTC. Raises ConfigurationRefused if PySpark or Java
    are missing, and for Spark Connect.
    """
    _refuse_connect(settings or {}, master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise ConfigurationRefused(f"PySpark cannot be used: {exc}. Install it: pip install '.[spark]'") from None
    session = SparkSession.getActiveSession()
    if session is None:
        try:
            session = _new_session(dict(settings or {}), master)
        except PySparkException as exc:
            raise ConfigurationRefused(f"Spark does not start: {exc}") from None
    # Days and hours of records are those of UTC wherever the job runs.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _refuse_connect(settings: Mapping[str, str], master: str | None) -> None:
    """Refuse Spark Connect: a job writes the logs of its tables and plans batches in the driver's process."""
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    if (
        _CONNECT & os.environ.keys()
        or mode.lower() == "connect"
        or "spark.remote" in settings
        or (master or "").startswith("sc://")
    ):
        raise ConfigurationRefused(
            "jobs do not run over Spark Connect: they commit where Spark's driver is, and there that is the server. "
            'Name the cluster (--master, or spark-submit); format("fastwire") can be read over Spark Connect'
        )


def _new_session(settings: Mapping[str, str], master: str | None) -> Any:
    if which("java") is None and "JAVA_HOME" not in os.environ:
        raise ConfigurationRefused("Java is missing: Spark 4 needs Java 17 or later, found by the path or JAVA_HOME")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # The settings of spark-submit are in its JVM: only a process that is connected to it finds them below.
        SparkContext.getSystemProperty("spark.master")
    given = SparkConf()
    _refuse_connect(dict(given.getAll()), None)
    builder = SparkSession.builder.appName(given.get("spark.app.name") or "fastwire")
    if master or not given.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    for key, value in _DEFAULTS.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def chosen_jobs(config: Config, names: Sequence[str]) -> dict[str, SparkConfig]:
    """Return the jobs called ``names``, or all jobs if it is empty. Raises ConfigError."""
    where = str(config.path or "configuration")
    if not config.spark:
        raise ConfigError([Problem(where, "spark", "is required: at least one table [spark.NAME]")])
    unknown = [Problem(where, f"spark.{name}", "there is no such job") for name in names if name not in config.spark]
    if unknown:
        raise ConfigError(unknown)
    return {name: job for name, job in config.spark.items() if not names or name in names}


class RunningJob:
    """One query. ``finished`` counts the batches that have landed in their tables."""

    def __init__(self, session: Any, name: str, job: SparkConfig) -> None:
        rows = stream_rows(session, name, job)
        plan = by_files(session, plan_job(rows, name, job), job.source)
        self.name = name
        self.finished = 0
        self._job = job
        self._frame = plan.frame
        watermark = 0 if job.dedupe is None else job.dedupe.watermark
        self._output = make_output(job.output, plan, batches_of(job), watermark)
        self._counts: dict[int, BatchCounts] = {}
        self._told = -1
        self._failure: Exception | None = None
        self._query: Any = None
        self._claim: int | None = None
        self._missing = ""  # why the source cannot be read now
        self._tries = 0  # since a batch was finished
        self._finished_before = 0

    def start(self) -> None:
        """Inspect checkpoint and tables, and start.

        Raises ConfigurationRefused if they belong to another job, and FastwireError while one has the checkpoint.
        """
        checkpoint, source = self._job.output.checkpoint, self._job.source
        if self._claim is None:
            self._claim = claim(checkpoint)
        drop_cut_logs(checkpoint)
        origin = read_origin(checkpoint)
        system = source.system if isinstance(source, SparkBrokers) else ""
        if origin is not None and origin != system:
            raise ConfigurationRefused(
                f"the checkpoint at {checkpoint} belongs to a job that reads {origin or 'a dataset'}, and this one "
                f"reads {system or 'a dataset'}: it needs a checkpoint and a table of its own"
            )
        drop_unbegun(checkpoint)
        if self._job.dedupe is not None:
            check_keys(checkpoint)
        self._output.open()
        trigger = {"availableNow": True} if self._job.trigger is None else self._every(self._job.trigger)
        writer = self._frame.writeStream.queryName(self.name).foreachBatch(self._on_batch)
        self._query = writer.option("checkpointLocation", str(self._job.output.checkpoint)).trigger(**trigger).start()
        _log.info("query started", job=self.name, query=str(self._query.id))

    def revive(self) -> bool:
        """Restart a query after the failure of a Spark process, a limited number of times without a finished batch.

        Return True if it runs, or did when it was looked at.
        """
        if self.active:
            self._watch_source()
            return True
        exc = self.failure()
        if exc is None or not is_passing(exc):
            return False
        self._tries = 1 if self.finished > self._finished_before else self._tries + 1
        self._finished_before = self.finished
        if self._tries > _MOST_TRIES:
            return False
        _log.warning("query failed, starting it again", job=self.name, error=cause(exc))
        self._output.close()
        self._failure = None
        self.start()  # the output knows its tables, and none is made where one was
        return True

    def _watch_source(self) -> None:
        """End the query if its source was replaced, which Spark would not notice; wait for one that is gone."""
        missing = ""
        try:
            self._output.check_source()
        except DatasetError as exc:
            missing = str(exc)
        except ConfigurationRefused as exc:
            self._failure = exc
            self._query.stop()
        if missing and missing != self._missing:
            _log.warning("waiting", job=self.name, reason=missing)
        self._missing = missing

    @staticmethod
    def _every(seconds: float) -> dict[str, str]:
        return {"processingTime": f"{round(seconds * 1000)} milliseconds"}

    def _on_batch(self, frame: Any, batch: int) -> None:
        try:
            self._counts[batch] = self._output.write(frame, batch)
        except Exception as exc:
            self._failure = exc  # Spark wraps it in a traceback of two languages
            raise
        self.finished += 1

    @property
    def active(self) -> bool:
        """True while the query runs."""
        return bool(self._query.isActive)

    @property
    def at_rest(self) -> bool:
        """True while no batch is being processed."""
        return not self._query.status["isTriggerActive"]

    def tell(self) -> None:
        """Log the batches that have ended since the last call, each with its figures."""
        for progress in self._query.recentProgress:
            batch = progress["batchId"]
            if batch <= self._told or batch not in self._counts:
                continue
            self._told = batch
            _log.info("batch", job=self.name, **figures(progress, self._counts.pop(batch), time.time()))

    def stop(self) -> None:
        """Stop the query, if it runs, and release the tables and the checkpoint."""
        try:
            if self._query is not None:
                self._query.stop()
                self.tell()
            self._output.close()
        finally:
            if self._claim is not None:
                release(self._claim)
                self._claim = None

    def failure(self) -> Exception | None:
        """The exception that ended the query, if any."""
        if self._failure is not None:
            return self._failure
        exc: Exception | None = self._query.exception()
        return exc


def figures(progress: Any, counts: BatchCounts, now: float) -> dict[str, Any]:
    """Return the figures of a batch: rows in, out, duplicate and late, and dead letters.

    ``lag_seconds`` is the age of its newest record, ``behind`` the number of partitions with records after it, and
    ``records_behind`` that of those records, where a system numbers them.
    """
    rows_in = counts.rows_out + counts.dead_letters + counts.late + counts.duplicates
    fields: dict[str, Any] = {"batch": progress["batchId"], "rows_in": rows_in}
    fields |= {
        "rows_out": counts.rows_out,
        "dead_letters": counts.dead_letters,
        "files": counts.files,
        "bytes": counts.nbytes,
    }
    fields |= {"late": counts.late, "duplicates": counts.duplicates}
    for source in progress["sources"]:
        if (lag := behind(source["endOffset"], source["latestOffset"])) is not None:
            fields["behind"] = lag.partitions
            if lag.records is not None:
                fields["records_behind"] = lag.records
    if counts.newest_us is not None:
        fields["lag_seconds"] = round(now - counts.newest_us / 1e6, 1)
    fields["seconds"] = dict(progress["durationMs"])["triggerExecution"] / 1000
    if counts.replayed:
        fields["replayed"] = True
    return fields


def run_jobs(session: Any, config: Config, names: Sequence[str] = ()) -> int:
    """Run until all jobs have ended (0), one has failed (1), or SIGTERM or SIGINT; running batches are finished first.

    Raises ConfigurationRefused for jobs that cannot run here, or not with the existing tables and checkpoints.
    """
    _refuse_connect({}, None)
    jobs = [RunningJob(session, name, job) for name, job in _planned(config, names)]
    stopping = threading.Event()
    with _signals(stopping):
        try:
            for job in jobs:
                job.start()
            while _going(jobs):
                if stopping.wait(_POLL_S):
                    _log.info("stopping after the batches in hand")
                    break
            if stopping.is_set():
                _finish_batches(jobs, config.daemon.drain_timeout)
            failed = [job for job in jobs if not job.active and job.failure()]
        finally:
            for job in jobs:
                job.stop()
    for job in failed:
        exc = job.failure()
        if isinstance(exc, ConfigurationRefused):
            raise exc
        assert exc is not None
        _log.error("query failed", job=job.name, error=cause(exc))
        if more := details(exc):
            _log.error("Spark's own words", job=job.name, details=more)
    return 1 if failed else 0


def _going(jobs: Sequence[RunningJob]) -> bool:
    """Poll the queries; return whether any of them runs and none has failed."""
    running = []
    for job in jobs:
        job.tell()
        running.append(job.revive())  # a query that fails after this look is revived after the next
    return any(running) and all(runs or not job.failure() for runs, job in zip(running, jobs, strict=True))


def _planned(config: Config, names: Sequence[str]) -> list[tuple[str, SparkConfig]]:
    return list(chosen_jobs(config, names).items())


def _finish_batches(jobs: Sequence[RunningJob], seconds: float) -> None:
    """Wait until every query is between two batches, or has ended one."""
    deadline = time.monotonic() + seconds
    before = [job.finished for job in jobs]
    while time.monotonic() < deadline:
        if all(not job.active or job.at_rest or job.finished > was for job, was in zip(jobs, before, strict=True)):
            return
        time.sleep(_POLL_S / 10)


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # a notebook, which is interrupted by its user
        return
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
