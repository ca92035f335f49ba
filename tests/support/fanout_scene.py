"""A fan-out over topics of an embedded broker of any system, into datasets in a folder."""

import asyncio
import gc
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from fastwire.wire.pool import Pool
from fastwire_daemon.config import PipelineConfig, parse_config
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.pipeline.fanout.fanout import FanOut
from fastwire_daemon.pipeline.fanout.places import Places
from fastwire_daemon.pipeline.firstcolumns import first_columns
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.budget import Budget
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.sinks.base import Sink
from fastwire_daemon.sinks.registry import build_sink
from fastwire_daemon.systems.registry import source_factory, topic_schemas

QUICK = RollPolicy(max_age_s=0.2, max_idle_s=0.05)
SUBSCRIBED = ("kafka", "pulsar", "tubemq")


def values_in(dataset: Path) -> Counter[tuple[str, str, bytes]]:
    """Return (topic, partition, value) of all visible rows of a dataset."""
    found: Counter[tuple[str, str, bytes]] = Counter()
    for folder, below, files in os.walk(dataset):
        below[:] = [name for name in below if name != "_fastwire"]  # folders in there come and go
        for file in (Path(folder, name) for name in files if name.endswith(".parquet")):
            table = pq.read_table(file, columns=["topic", "partition", "value"])
            columns = (table[name].cast("string").to_pylist() for name in ("topic", "partition"))
            found.update(zip(*columns, table["value"].to_pylist(), strict=True))
    return found


class Topics(Protocol):
    """The topics of a broker; an embedded one fits as it is."""

    @property
    def url(self) -> str: ...
    def create_topic(self, name: str, partitions: int) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def produce(self, name: str, values: Sequence[bytes], partition: int = 0) -> None:
        """Store ``values`` in a partition; of Pulsar, ``name`` is that of the partition."""


class FanOutScene:
    """Topics with numbered records, and fan-outs that land them under ``root``."""

    def __init__(self, system: str, broker: Topics, root: Path) -> None:
        self.system = system
        self.broker = broker
        self.root = root
        self.produced: dict[str, Counter[tuple[str, bytes]]] = {}  # by topic: partition and value
        self.deleted: dict[str, Counter[tuple[str, bytes]]] = {}  # those of them that went with their topic
        self.wrap: Callable[[Sink, PipelineConfig], Sink] = lambda sink, config: sink
        self._count = 0

    def create(self, *topics: str, partitions: int = 2) -> None:
        for topic in topics:
            self.broker.create_topic(topic, partitions)
            self.produced.setdefault(topic, Counter())

    def delete(self, topic: str) -> None:
        """Delete a topic with its records, which may have landed or not."""
        self.broker.delete_topic(topic)
        self.deleted[topic] = self.produced[topic].copy()

    def produce(self, topic: str, count: int, partition: int = 0) -> None:
        values = [b"%s:%d" % (topic.encode(), number) for number in range(self._count, self._count + count)]
        self._count += count
        name = f"{topic}-partition-{partition}" if self.system == "pulsar" else topic
        self.broker.produce(name, values, 0 if self.system == "pulsar" else partition)
        self.produced[topic].update((str(partition), value) for value in values)

    def config(self, *topics: str, sink: Mapping[str, Any] | None = None, **source: Any) -> PipelineConfig:
        """Return the configuration for ``topics``, or for all of them by a pattern."""
        return parse_config(self.text(*topics, sink=sink, **source)).pipelines["p"]

    def text(self, *topics: str, sink: Mapping[str, Any] | None = None, **source: Any) -> str:
        """Return that configuration as TOML."""
        chosen = (
            {"topics": list(topics)}
            if topics
            else {"topics_pattern": ".*" if self.system != "pulsar" else "public/default/.*"}
        )
        group = {"subscription": "landing"} if self.system in SUBSCRIBED else {}
        keys = {"url": self.broker.url, "start": "earliest", **chosen, **group, **source}
        into = {"type": "parquet", "path": f"{self.root}/{{topic}}", **(sink or {})}
        return f"[pipelines.p.source]\n{_toml(keys)}\n[pipelines.p.sink]\n{_toml(into)}\n"

    @asynccontextmanager
    async def running(
        self, config: PipelineConfig, *, policy: RollPolicy = QUICK, memory: int = 64 << 20, **more: Any
    ) -> AsyncIterator[FanOut]:
        """Run a fan-out; it is drained at the end of the block if it has not ended."""
        pool = Pool(memory)
        budget = Budget(pool)
        metrics = DaemonMetrics("0").pipeline("p")

        def sink_of(own: PipelineConfig) -> Sink:
            find = first_columns(own) if own.decode is not None and own.decode.inferred else None
            return self.wrap(build_sink(own, memory=memory, topics=topic_schemas(own), many=True, first=find), own)

        places = Places(config, sink_of)
        source = source_factory(config.source, pool, metrics, columns=places.needed_columns)
        fanout = FanOut("p", source, places, budget, metrics, policy, drain_timeout_s=10, **more)
        budget.start()
        task = asyncio.create_task(fanout.run())
        try:
            yield fanout
            fanout.drain("end of the block")
            async with asyncio.timeout(60):
                await task
        finally:
            fanout.drain("end of the test")
            done, _ = await asyncio.wait([task], timeout=60)
            assert done, fanout.status()
            budget.stop()
        gc.collect()
        assert pool.used == pool.receiving, f"every chunk was released: {pool.used} {pool.receiving}"

    async def land(self, config: PipelineConfig, **more: Any) -> None:
        """Run a fan-out until the end of all topics."""
        async with self.running(config, until_end=True, **more) as fanout:
            await until(lambda: fanout.is_draining, fanout.status)

    def landed(self, topic: str, name: str | None = None) -> Counter[tuple[str, bytes]]:
        """Return partition and value of what is in the dataset of a topic; all rows must be of the topic."""
        found: Counter[tuple[str, bytes]] = Counter()
        for (of, partition, value), count in values_in(self.root / (name or self.folder(topic))).items():
            assert of.rpartition("/")[2] == topic
            found[partition, value] += count
        return found

    def folder(self, topic: str) -> str:
        return f"public.default.{topic}" if self.system == "pulsar" else topic

    def whole(self, *topics: str) -> bool:
        """Return True if all records of these topics have landed, each once (none of another topic, none twice)."""
        return all(self.landed(topic) == self.produced[topic] for topic in topics or self.produced)

    def assert_whole(self, *topics: str) -> None:
        for topic in topics or self.produced:
            self.assert_none_twice(topic)
            missing = self.produced[topic] - self.landed(topic) - self.deleted.get(topic, Counter())
            assert not missing, (topic, len(missing), min(missing))
            if topic in self.deleted and not self.landed(topic):
                continue  # it was deleted before anything of it had landed, and may have no dataset
            report = verify(self.root / self.folder(topic))
            assert not report.problems, report.problems

    def assert_none_twice(self, topic: str) -> None:
        assert not self.landed(topic) - self.produced[topic], topic


async def until(true: Callable[[], object], say: Callable[[], object] = str) -> None:
    """Wait until ``true`` returns so. Raises AssertionError after a minute, with what ``say`` returns."""
    try:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(say()) from None


@contextmanager
def serving(system: str, root: Path) -> Iterator[FanOutScene]:
    """A broker of the system in this process."""
    with running(dev_broker(system)) as broker:
        yield FanOutScene(system, broker, root)
        assert broker.violations == []


def _toml(keys: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in keys.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
