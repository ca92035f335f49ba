"""A topic that is fed, a dataset that it lands in, and everything to judge the result by."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.audit import assert_each_once, assert_in_order
from tests.brokers.admin import partition_names
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import Feed
from tests.crash.nursery import Nursery
from tests.real.daemon import Daemon, Job, verify
from tests.real.raw import read_cursor

__all__ = ["Scene"]

# Small, so that one short run commits several times.
ROLL = {"rows": 200, "idle": "200ms"}


class Scene:
    """One topic, one dataset, any number of runs; ``judge`` says whether all of it was exactly once.

    ``backlog`` tells what the subscription has not acknowledged; without it the cursor is asked by the protocol.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        folder: Path,
        *,
        partitions: int = 0,
        kind: str = "failover",
        token: str | None = None,
        backlog: Callable[[], int] | None = None,
        nursery: Nursery | None = None,
        **job: Any,
    ) -> None:
        self.folder = folder
        self._nursery = nursery
        self.partitions = partitions
        self.path = folder / "data"
        self.job = Job(url, topic, self.path, kind=kind, roll=ROLL, **job)
        self.feed = Feed(url, topic, partitions, token=token)
        self._token = token
        self._backlog = backlog
        self._runs = 0

    @classmethod
    def on(cls, broker: PulsarBroker, topic: str, folder: Path, *, partitions: int = 0, **options: Any) -> "Scene":
        """On a real broker, with a topic that is made for it."""
        broker.admin.create_topic(topic, partitions)
        token = broker.token("admin") if broker.guarded else None
        scene = cls(broker.service_url, topic, folder, partitions=partitions, token=token, **options)
        scene._backlog = lambda: broker.admin.backlog(topic, scene.job.subscription, partitions)
        if token is not None:
            scene.job.source["auth"] = {"token": token}
        return scene

    def run(
        self, *arguments: str, script: dict[str, Any] | None = None, until_end: bool = True, **options: Any
    ) -> Daemon:
        """Start one run; ``job`` among the options replaces keys of the configuration, the rest goes to the child."""
        job = replace(self.job, **options.pop("job", {}))
        self._runs += 1
        config = job.write(self.folder / "config")
        ending = ("--until-end",) if until_end else ()
        log = self.folder / f"run-{self._runs:03d}.log"
        options.setdefault("nursery", self._nursery)
        return Daemon("run", str(config), *ending, *arguments, log=log, script=script, **options)

    def settle(self) -> None:
        """Run to the end without an accident."""
        with self.run() as daemon:
            daemon.wait_done()

    def judge(self, *, ordered: bool | None = None) -> None:
        """Verify, sequence audit, order and backlog, after the last run has ended."""
        said = verify(self.path)
        assert said.returncode == 0, said.stdout + said.stderr
        assert_each_once(self.path, self.feed.count)
        if ordered if ordered is not None else self.job.kind in ("failover", "exclusive"):
            assert_in_order(self.path)
        left = self.unacknowledged()
        assert not left, f"not acknowledged: {left}"

    def wait_until_acknowledged(self, limit: float = 30.0) -> None:
        """Wait until everything that was fed has landed and is acknowledged."""
        deadline = time.monotonic() + limit
        while left := self.unacknowledged():
            assert time.monotonic() < deadline, f"still not acknowledged after {limit:.0f} s: {left}"
            time.sleep(0.05)

    def unacknowledged(self) -> object:
        """What the subscription still has to acknowledge: a number, or the cursors that are behind; falsy if none."""
        if self._backlog is not None:
            return self._backlog()
        job = self.job
        names = partition_names(job.topic, self.partitions)
        cursors = [read_cursor(job.url, name, job.subscription, kind=job.kind, token=self._token) for name in names]
        return [cursor for cursor in cursors if not cursor.done]
