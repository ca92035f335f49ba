"""A topic that is fed, a dataset that it lands in, and everything to judge the result by."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.brokers.kafka import KafkaBroker
from tests.brokers.pulsar import PulsarBroker
from tests.crash.system import KafkaSystem, PulsarSystem, System
from tests.real.daemon import Daemon, Job
from tests.stores.place import FolderPlace, Place
from tests.support.nursery import Nursery
from tests.support.sequence_audit import assert_each_once, assert_in_order
from tests.support.waiting import eventually

# Small, so that one short run commits several times.
ROLL = {"rows": 200, "idle": "200ms"}


class Scene:
    """One topic, one dataset, any number of runs; ``judge`` says whether all of it was exactly once."""

    broker: PulsarBroker | KafkaBroker  # a real one's only

    def __init__(
        self,
        system: System,
        topic: str,
        folder: Path,
        *,
        partitions: int = 0,
        kind: str = "failover",
        nursery: Nursery | None = None,
        place: Place | None = None,
        **job: Any,
    ) -> None:
        self.folder = folder
        self.system = system
        self._nursery = nursery
        self.partitions = partitions
        self.place = place or FolderPlace(folder / "data")
        # It has a name, because it is reached through proxies as well.
        source = {"cluster": "scene", **system.source(kind), **job.pop("source", {})}
        sink = {**self.place.sink, **job.pop("sink", {})}
        self.job = Job(system.url, topic, folder / "data", kind=kind, source=source, sink=sink, roll=ROLL, **job)
        self.feed = system.feed(topic, partitions)
        self._runs = 0

    @property
    def path(self) -> Path:
        """A folder with what is in the dataset now."""
        return self.place.local()

    @classmethod
    def on(
        cls, broker: PulsarBroker | KafkaBroker, topic: str, folder: Path, *, partitions: int = 0, **options: Any
    ) -> "Scene":
        """On a real broker, with a topic that is made for it."""
        system: System
        if isinstance(broker, KafkaBroker):
            partitions = max(partitions, 1)
            options.setdefault("subscription", f"landing-{topic}")  # groups are not of a topic, as subscriptions are
            system = KafkaSystem(
                broker.url, broker.ends, broker.committed, lambda job, _: broker.members(job.subscription)
            )
        else:
            admin = broker.admin
            system = PulsarSystem(
                broker.service_url,
                token=broker.token("admin") if broker.guarded else None,
                backlog=lambda job, count: admin.backlog(topic, job.subscription, count),
                subscribe=admin.create_subscription,
                members=lambda job, count: len(admin.consumers(topic, job.subscription, count)),
            )
        scene = cls(system, topic, folder, partitions=partitions, **options)
        scene.broker = broker
        scene.create_topic()
        return scene

    def create_topic(self) -> None:
        """Make the topic at the real broker."""
        if isinstance(self.broker, KafkaBroker):
            self.broker.create_topic(self.job.topic, self.partitions)
        else:
            self.broker.admin.create_topic(self.job.topic, self.partitions)

    def delete_topic(self) -> None:
        """Delete it there, with everything in it."""
        if isinstance(self.broker, KafkaBroker):
            self.broker.delete_topic(self.job.topic)
        else:
            self.broker.admin.delete_topic(self.job.topic, self.partitions)

    def members(self) -> int:
        """Return the number of consumers of the subscription, as the real broker sees it."""
        return self.system.members(self.job, self.partitions)

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

    @contextmanager
    def under_way(self, **options: Any) -> Iterator[Daemon]:
        """A run that is asked to end when the body has; what it has left a last one lands, and all is judged."""
        with self.run(until_end=False, **options) as daemon:
            yield daemon
            daemon.end()
        self.settle()
        self.judge()

    def settle(self) -> None:
        """Run to the end without an accident."""
        self.feed.complete()
        with self.run() as daemon:
            daemon.wait_done()

    def judge(self, *, ordered: bool | None = None) -> None:
        """Verify, sequence audit, order and backlog, after the last run has ended."""
        said = self.place.verify()
        assert said.returncode == 0, said.stdout + said.stderr
        path = self.path
        assert_each_once(path, self.feed.count)
        if self.system.ordered(self.job.kind) if ordered is None else ordered:
            assert_in_order(path)
        left = self.unacknowledged()
        assert not left, f"not acknowledged: {left}"

    def wait_until_acknowledged(self) -> None:
        """Wait until everything that was fed has landed and is acknowledged."""
        eventually(lambda: not self.unacknowledged(), "all is acknowledged", self.unacknowledged)

    def unacknowledged(self) -> object:
        """Return what the subscription has not acknowledged: a number, or what is behind; falsy if nothing."""
        return self.system.unacknowledged(self.job, self.partitions)
