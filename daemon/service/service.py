"""The daemon process: it starts the pipelines, handles signals and shuts down in order.

SIGTERM and SIGINT drain, a second one aborts at once; SIGHUP, or a change of the file with ``daemon.reload``, reloads
the configuration, SIGUSR1 switches the log to debug and back. An abort loses no records: records that are not
committed were not acknowledged.
"""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvloop

from fastwire import __version__
from fastwire.errors import FastwireError
from fastwire.wire.pool import Pool

from ..config import Config, PipelineConfig, load_config
from ..config.cleartext import of_pipeline
from ..pipeline.failure import PipelineFailed
from ..pipeline.pipeline import Pipeline
from ..pipeline.roll import RollPolicy
from ..runtime import signals
from ..runtime.budget import Budget, Level
from ..runtime.garbage import settle
from ..runtime.health import EXIT_DEGRADED, HUNG_AFTER_S, READY, Health, worst
from ..runtime.logs import console, get_logger, recent_warnings, switch_debug, write_repeated
from ..runtime.metrics import DaemonMetrics
from ..runtime.rates import Rate
from ..runtime.resident import ResidentMemory, use_one_blas_thread, use_system_allocator
from ..runtime.tasks import in_thread
from ..sinks.base import FirstColumns, Sink, logged
from ..sinks.registry import build_sink
from ..systems.registry import source_factory, topic_schemas
from .http import HttpServer
from .progress import Progress, ProgressFacts
from .reload import CHECKS_S, Refusals, has_landed, lost_datasets
from .systemd import Notifier
from .totals import Totals
from .watch import call_on_change

if TYPE_CHECKING:
    from ..pipeline.fanout.fanout import FanOut
    from ..pipeline.fanout.places import Places

# While a sink runs Python code, a codec that has released the interpreter lock gets it back after this interval.
SWITCH_INTERVAL_S = 0.0005
TRIM_INTERVAL_S = 30.0
PROGRESS_INTERVAL_S = 0.25
START_LOOK_S = 0.01
LOOK_S = 1.0
SLOW_AFTER_S = 30.0
ABORT_GRACE_S = 5.0
OPEN_FILES = 65_536

log = get_logger("service")


def run_service(
    config: Config,
    *,
    pipelines: Sequence[str] | None = None,
    until_end: bool = False,
    max_records: int | None = None,
    refusals: Refusals = lambda config, names: [],
) -> int:
    """Run the pipelines of ``config`` (or those named) until they end; return the exit code.

    ``refusals`` says why pipelines of a configuration that is reloaded must not start.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        service = Service(config, pipelines=pipelines, until_end=until_end, max_records=max_records, refusals=refusals)
        return runner.run(service.run())


def _allow_open_files() -> None:
    """Raise the soft limit of open files: a dataset with many folders needs many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Running:
    """A running pipeline with its configuration and its task."""

    def __init__(self, pipeline: "Pipeline | FanOut", config: PipelineConfig, task: "asyncio.Task[None]") -> None:
        self.pipeline = pipeline
        self.config = config
        self.task = task
        self._waiting: str | None = None
        self._slow = False  # the running call of the sink was told
        self._look_at = 0.0
        self._rows, self._bytes = Rate(), Rate()

    def status(self) -> dict[str, Any]:
        """Return the status of the pipeline with its rates."""
        return {
            **self.pipeline.status(),
            "rows_per_s": round(self._rows.value, 1),
            "bytes_per_s": round(self._bytes.value, 1),
        }

    def tell(self, name: str, metrics: DaemonMetrics, now: float) -> None:
        """Update metrics and rates, count the time that the sink waits, and log when a wait begins and ends.

        Called every PROGRESS_INTERVAL_S; ``now`` is the event loop's time.
        """
        self.pipeline.count()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self.pipeline.look()
        self._rows.take(now, self.pipeline.figures.rows_received)
        self._bytes.take(now, self.pipeline.figures.bytes_received)
        waiting = self.pipeline.waiting
        if waiting is not None:
            metrics.pipeline(name).disk_full.inc(PROGRESS_INTERVAL_S)
        if (waiting is None) != (self._waiting is None):
            if waiting is None:
                log.info("the sink writes again", pipeline=name)
            else:
                log.error("the sink waits; no record is lost, and none is acknowledged", pipeline=name, why=waiting)
        self._waiting = waiting
        slow = self.pipeline.hung_s(now) >= SLOW_AFTER_S
        if slow and not self._slow:
            log.warning(
                "a call of the sink has not returned, and says nothing of what it waits for",
                pipeline=name,
                sink=self.config.sink.type,
                seconds=SLOW_AFTER_S,
                restart_after_s=HUNG_AFTER_S,
            )
        self._slow = slow


class Service:
    """All pipelines of one process, which share one memory budget."""

    def __init__(
        self,
        config: Config,
        *,
        pipelines: Sequence[str] | None = None,
        until_end: bool = False,
        max_records: int | None = None,
        refusals: Refusals = lambda config, names: [],
    ) -> None:
        self._config = config
        self._refusals = refusals
        self._only = pipelines
        self._until_end = until_end
        self._max_records = max_records
        self._pool = Pool(config.daemon.memory)
        self._budget = Budget(self._pool)
        self._metrics = DaemonMetrics(__version__)
        self._metrics.budget_limit.set(config.daemon.memory)
        self._metrics.budget_used_by(lambda: self._budget.used)
        self._notifier = Notifier()
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, Pipeline | FanOut] = {}
        self._exit_codes: dict[str, int] = {}  # of failed pipelines that no reload has started again
        self._signals = 0  # to stop
        self._reloading: asyncio.Task[None] | None = None
        self._reload_again = False
        self._resident = ResidentMemory(self._budget)
        self._budget.watch(self._on_level)

    def _on_level(self, level: Level) -> None:
        if level >= Level.FINISH:
            self._metrics.pauses.inc()

    # --- what operators ask

    def health(self) -> Health:
        """See ``StatusProvider.health``: that of the pipeline that is worst off, also of one that has failed."""
        if not self._running:
            return Health.NOT_READY
        return worst(each.health for each in (*(r.pipeline for r in self._running.values()), *self._ended.values()))

    def status(self) -> dict[str, Any]:
        """See ``StatusProvider.status``."""
        pipelines: dict[str, _Running | Pipeline | FanOut] = {**self._running, **self._ended}
        health = self.health()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "live": health is not Health.STUCK,
            "ready": health in READY,
            "health": health,
            "memory": {"used": self._budget.used, "limit": self._budget.limit, "peak": self._pool.peak},
            "warnings": recent_warnings(),
            "peers": list(self._config.daemon.peers),
            "pipelines": {name: each.status() for name, each in sorted(pipelines.items())},
        }

    # --- life

    async def run(self) -> int:
        """Run until every pipeline has ended; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        loop.add_signal_handler(signal.SIGUSR1, self._on_switch_debug)
        self._take_held()
        http = await self._serve_http()
        self._budget.start()
        clock = asyncio.create_task(self._clock())
        progress = asyncio.create_task(self._show_progress())
        start = asyncio.create_task(self._await_start())
        watch = asyncio.create_task(self._watch())
        try:
            # A signal to stop may have come before there was anything to drain.
            wanted = self._wanted(self._config) if not self._signals else []
            for name in wanted:
                pipeline = self._config.pipelines[name]
                self._start(name, pipeline, self._sink(pipeline, len(wanted)))
            settle()
            self._notifier.ready(self._line())
            log.info("started", pipelines=sorted(self._running), memory=self._budget.limit)
            if self._reload_again:
                self._on_reload()
            while self._running:
                await asyncio.wait([r.task for r in self._running.values()], return_when=asyncio.FIRST_COMPLETED)
                self._collect()
                if not self._running and self._reloading is not None and not self._reloading.done():
                    await self._reloading
            return next(iter(self._exit_codes.values()), 0)
        finally:
            self._notifier.stopping()
            clock.cancel()
            progress.cancel()
            start.cancel()
            watch.cancel()
            await asyncio.gather(clock, progress, start, watch, return_exceptions=True)
            self._budget.stop()
            if http is not None:
                await http.stop()
            self._notifier.close()

    async def _serve_http(self) -> HttpServer | None:
        address = self._config.daemon.http
        if address is None:
            return None
        server = HttpServer(address, self, self._metrics.render)
        await server.start()
        return server

    def _wanted(self, config: Config) -> list[str]:
        names = list(config.pipelines) if not self._only else list(self._only)
        missing = [name for name in names if name not in config.pipelines]
        if missing:
            raise FastwireError(
                f"no pipeline {', '.join(map(repr, missing))} in the configuration; it has "
                + ", ".join(map(repr, config.pipelines))
            )
        return names

    def _sink(self, config: PipelineConfig, shares: int) -> "Sink | Places":
        """Make the sink of a pipeline, one of ``shares`` in this process, or what makes those of its topics.

        Raises ConfigError.
        """
        memory = self._config.daemon.memory // max(1, shares)
        use_one_blas_thread()
        if config.sink.is_dataset or config.sink.is_database:
            use_system_allocator(memory)
        if config.sink.is_topic:
            from ..pipeline.topicchoice import topic_sink  # loads pyarrow

            return topic_sink(config)
        if config.sink.by_topic:
            from ..pipeline.fanout.places import Places  # loads pyarrow

            return Places(config, lambda own: _sink_of(own, memory, many=True))
        return _sink_of(config, memory)

    def _start(self, name: str, config: PipelineConfig, sink: "Sink | Places") -> None:
        for why in of_pipeline(config):
            log.warning(why, pipeline=name)
        metrics = self._metrics.pipeline(name)
        columns: frozenset[str] | None = getattr(
            sink if config.sink.is_topic or config.sink.by_topic else logged(cast(Sink, sink)), "needed_columns", None
        )
        source = source_factory(config.source, self._pool, metrics, columns=columns, max_records=self._max_records)
        make: Callable[..., Any] = Pipeline
        if config.sink.by_topic:
            from ..pipeline.fanout import fanout  # loads pyarrow

            make = fanout.FanOut
        roll = config.sink.roll
        pipeline = make(
            name,
            source,
            sink,
            self._budget,
            metrics,
            RollPolicy(roll.bytes, roll.rows, roll.age, roll.idle),
            until_end=self._until_end,
            bounded=config.source.end is not None,
            max_records=self._max_records,
            create=config.sink.create,
            drain_timeout_s=self._config.daemon.drain_timeout,
        )
        self._ended.pop(name, None)
        self._exit_codes.pop(name, None)
        self._running[name] = _Running(pipeline, config, asyncio.create_task(pipeline.run(), name=f"pipeline {name}"))

    def _collect(self) -> None:
        """Record the pipelines that have ended. The failure of one does not end the others."""
        for name, running in list(self._running.items()):
            if not running.task.done():
                continue
            del self._running[name]
            self._ended[name] = running.pipeline
            exc = running.task.exception() if not running.task.cancelled() else None
            if isinstance(exc, PipelineFailed):
                log.error(str(exc), pipeline=name)
                self._exit_codes[name] = exc.exit_code
            elif exc is not None:
                try:
                    raise exc
                except Exception:
                    log.exception("the pipeline failed because of an internal error", pipeline=name)
                self._exit_codes[name] = 1
            else:
                _tell_end(name, running.pipeline)
                if stopped := running.pipeline.parts.stopped:
                    log.error("the pipeline has ended with stopped partitions", pipeline=name, stopped=len(stopped))
                    self._exit_codes[name] = EXIT_DEGRADED

    # --- signals

    def _take_held(self) -> None:
        """Handle the signals that arrived since the start of the process."""
        while signals.held:
            number = signals.held.pop(0)
            if number in (signal.SIGTERM, signal.SIGINT):
                self._on_stop(signal.Signals(number).name)
            elif number == signal.SIGUSR1:
                self._on_switch_debug()
            else:
                self._reload_again = True  # the pipelines start first

    def _on_stop(self, name: str) -> None:
        self._signals += 1
        if self._signals > 1:
            self._abort(f"{name} again")
        self._notifier.stopping("draining")
        log.info("stopping", signal=name, drain_timeout_s=self._config.daemon.drain_timeout)
        for running in self._running.values():
            running.pipeline.drain(name)
        loop = asyncio.get_running_loop()
        loop.call_later(self._config.daemon.drain_timeout, self._on_drain_timeout)

    def _on_drain_timeout(self) -> None:
        log.warning("the drain exceeds drain_timeout; records that are not committed stay with the broker")
        for running in self._running.values():
            running.pipeline.interrupt()
        asyncio.get_running_loop().call_later(ABORT_GRACE_S, self._abort, "drain timeout")

    def _abort(self, why: str) -> None:
        """End the process at once: a thread that hangs in a call cannot be joined."""
        log.error("aborted", why=why)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _on_switch_debug(self) -> None:
        log.warning("the level of the log changes", level=switch_debug())

    def _on_reload(self) -> None:
        if self._signals:
            return
        if self._config.path is None:
            log.warning("the configuration is not reloaded: options of the command have changed it for this run")
            return
        if self._reloading is not None and not self._reloading.done():
            self._reload_again = True  # the running reload may have read the file before its latest change
            return
        self._reloading = asyncio.create_task(self._reload(self._config.path))

    async def _watch(self) -> None:
        if self._config.daemon.reload == "change" and self._config.path is not None:
            await call_on_change(self._config.path, self._config.text, self._on_reload)

    async def _reload(self, path: Path) -> None:
        """Apply the configuration file, and again if another SIGHUP has arrived meanwhile."""
        while True:
            self._reload_again = False
            await self._take_over(path)
            if not self._reload_again or self._signals:
                return

    async def _take_over(self, path: Path) -> None:
        """Apply the configuration file. Nothing is stopped before all that starts has been checked and made."""
        try:
            config = load_config(path)
            wanted = self._wanted(config)
            changed = [name for name, each in self._running.items() if config.pipelines.get(name) != each.config]
            changed += [name for name in self._ended if name in wanted]
            started = [name for name in wanted if name not in self._running or name in changed]
            begun = {name: each.config for name, each in self._running.items() if has_landed(each.pipeline.coverage)}
            sinks = await in_thread(
                lambda: self._admitted(config, started, len(wanted), begun), CHECKS_S, "the checks of the configuration"
            )
        except (FastwireError, OSError, TimeoutError) as exc:
            log.error("the configuration is not reloaded; the old one stays in force", why=str(exc))
            return
        if config.daemon != self._config.daemon:
            log.warning("changes of [daemon] take effect at the next start")
        stopping = [self._running[name] for name in changed if name in self._running]
        for running in stopping:
            running.pipeline.drain("reload")
        if stopping:
            await asyncio.wait([running.task for running in stopping])
            self._collect()
        if self._signals:
            log.info("the configuration is not reloaded; the daemon is stopping")
            return
        self._config = config
        for name in [each for each in self._ended if each not in wanted]:
            del self._ended[name]
            self._exit_codes.pop(name, None)
            self._metrics.forget(name)
        for name in started:
            self._start(name, config.pipelines[name], sinks[name])
        settle(again=True)
        log.info("configuration reloaded", stopped=len(stopping), started=started)

    def _admitted(
        self, config: Config, names: Sequence[str], shares: int, running: Mapping[str, PipelineConfig]
    ) -> "dict[str, Sink | Places]":
        """Check the pipelines ``names`` of a configuration that is reloaded, and return their sinks, not opened yet.

        ``running`` are the pipelines that have landed records. Raises FastwireError.
        """
        why = [*self._refusals(config, names), *lost_datasets(config, names, running)]
        if why:
            raise FastwireError("; ".join(why))
        return {name: self._sink(config.pipelines[name], shares) for name in names}

    # --- the clock

    async def _clock(self) -> None:
        """Feed the watchdog while pipelines are alive, and release memory of the pool that has been idle for 30 s."""
        interval = min(self._notifier.watchdog_s / 2 if self._notifier.watchdog_s else TRIM_INTERVAL_S, TRIM_INTERVAL_S)
        loop = asyncio.get_running_loop()
        trimmed, busy = loop.time(), self._pool.used
        while True:
            await asyncio.sleep(interval)
            if self.health() is not Health.STUCK:
                self._notifier.watchdog()
            self._notifier.status(self._line())
            now = loop.time()
            if now - trimmed >= TRIM_INTERVAL_S:
                # Only idle memory is released, not what a busy daemon will need again at once.
                if self._pool.used <= busy:
                    self._pool.trim(0)
                trimmed, busy = now, self._pool.used

    def _line(self) -> str:
        rows = sum(r.pipeline.figures.rows_committed for r in self._running.values())
        states = ", ".join(
            f"{name} {'; '.join(r.pipeline.impairments) or r.pipeline.state}"
            for name, r in sorted(self._running.items())
        )
        return f"{rows} rows committed; {states}" if states else "no pipeline is running"

    async def _await_start(self) -> None:
        """Release library pages as soon as the start is over: the first records soon fill a small budget."""
        pause = START_LOOK_S
        while self.health() not in READY:
            await asyncio.sleep(pause)
            pause = min(pause * 1.1, PROGRESS_INTERVAL_S)
        self._resident.release()

    async def _show_progress(self) -> None:
        # The lines of a stdout sink and the progress line would mix on one terminal.
        printing = any(config.sink.type == "stdout" for config in self._config.pipelines.values())
        progress = Progress(None if printing and sys.stdout.isatty() else console(), transient=True)
        loop = asyncio.get_running_loop()
        try:
            while True:
                progress.show(self._facts)
                for name, running in self._running.items():
                    running.tell(name, self._metrics, loop.time())
                write_repeated()
                await asyncio.sleep(PROGRESS_INTERVAL_S)
        finally:
            progress.close()

    def _facts(self) -> ProgressFacts:
        pipelines: list[Pipeline | FanOut] = [*(r.pipeline for r in self._running.values()), *self._ended.values()]
        return ProgressFacts(
            rows=sum(p.figures.rows_received for p in pipelines),
            payload_bytes=sum(p.figures.bytes_received for p in pipelines),
            files=sum(p.figures.published[0] for p in pipelines),
            memory_bytes=self._budget.used,
            memory_limit=self._budget.limit,
            note=next((reason for p in pipelines if (reason := p.waits_for)), ""),
        )


def _tell_end(name: str, pipeline: "Pipeline | FanOut") -> None:
    """Log the totals of a pipeline that has ended: as a sentence on a terminal, else as fields.

    The CPU time is that of the process, so it is meaningful only if the process runs one pipeline.
    """
    totals = Totals(
        rows=pipeline.figures.rows_committed,
        payload_bytes=pipeline.figures.bytes_received,
        files=pipeline.figures.published[0],
        file_bytes=pipeline.figures.published[1],
        dead_letters=pipeline.figures.dead_letters,
        stages=pipeline.stages(),
    )
    if pipeline.figures.first_row_at is not None and pipeline.figures.last_commit_at is not None:
        began, ended = pipeline.figures.first_row_at, pipeline.figures.last_commit_at
        totals = replace(totals, seconds=ended[0] - began[0], cpu_s=ended[1] - began[1])
    if console() is not None:
        log.info(totals.sentence(name))
    else:
        log.info("ended", pipeline=name, **totals.fields())


def _sink_of(config: PipelineConfig, memory: int, *, many: bool = False) -> Sink:
    """Make the sink of a pipeline, or of one topic of many. Raises ConfigError."""
    first: FirstColumns | None = None
    if config.decode is not None and config.decode.inferred:
        from ..pipeline.firstcolumns import first_columns  # loads pyarrow

        first = first_columns(config)
    return build_sink(config, memory=memory, topics=topic_schemas(config), many=many, first=first)
