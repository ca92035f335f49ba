"""A cluster that loses records again and again, under a pipeline into a dataset: nothing lost or doubled in silence."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from fastwire.kafka.columns import ROW
from fastwire.kafka.names import parse_bootstrap_url
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.position import Position
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.pipeline.pipeline import Pipeline
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.budget import Budget
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.systems.kafka.source.kafkasource import KafkaSource
from fastwire_daemon.systems.kafka.source.settings import KafkaSettings
from tests.support.kafka.source_pipe import batch, batches
from tests.support.source_pipe import until

PARTITIONS = 2


class Bed:
    """A pipeline from ``broker`` into ``path``."""

    def __init__(self, broker: KafkaDevBroker, path: Path) -> None:
        self.broker = broker
        self.path = path
        self.settings = KafkaSettings(
            url=parse_bootstrap_url(broker.url),
            topics=("t",),
            group="g",
            start=parse_start("earliest"),
            cluster="c",
            on_truncation="continue",
            limits=FetchLimits(max_wait_ms=20),
            metadata_max_age_s=0.2,
        )
        self.pool = Pool(1 << 28)

    def pipeline(self) -> Pipeline:
        options = DatasetOptions(system="kafka", cluster="c", columns=ROW.names, extension="parquet", split="none")
        return Pipeline(
            "p",
            lambda events, cluster: KafkaSource(self.settings, events, self.pool),
            DatasetSink(self.path, options, ParquetEncoder),
            Budget(self.pool),
            DaemonMetrics("0").pipeline("p"),
            RollPolicy(max_age_s=0.2, max_idle_s=0.05),
        )


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_a_cluster_loses(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    number = 0
    stored: list[list[int]] = [[] for _ in range(PARTITIONS)]  # numbers of batches, ten rows each

    broker = KafkaDevBroker(KafkaOptions(nodes=2))
    await broker.start()
    broker.create_topic("t", PARTITIONS)
    bed = Bed(broker, tmp_path / "data")
    pipeline = bed.pipeline()
    running = asyncio.create_task(pipeline.run())
    for _ in range(25):
        partition = rng.randrange(PARTITIONS)
        action = rng.choice(["append", "append", "truncate", "truncate", "move", "rest"])
        count = rng.randint(1, 5)
        if action == "append":
            broker.append("t", batches(number, count), partition)
            stored[partition] += range(number, number + count)
            number += count
        elif action == "truncate" and stored[partition]:
            kept = rng.randrange(max(len(stored[partition]) - 4, 0), len(stored[partition]))
            broker.truncate("t", kept * 10, partition)
            del stored[partition][kept:]
            if rng.random() < 0.6:  # at once, so that no offset of ours may lie outside of the log
                broker.append("t", batches(number, count), partition)
                stored[partition] += range(number, number + count)
                number += count
        elif action == "move":
            broker.move_leader("t", partition)
        if action != "move":
            await asyncio.sleep(rng.random() * 0.1)
    for partition in range(PARTITIONS):
        broker.append("t", [batch(number)], partition)
        stored[partition].append(number)
        number += 1

    def landed() -> bool:
        ends = {log.partition: pipeline.coverage.end(log) for log in pipeline.coverage.logs()}  # the last break's
        found = [ends.get(str(partition)) for partition in range(PARTITIONS)]
        # By its offset alone an end may be that of what was lost, and has grown again.
        epochs = [broker.partition("t", partition).epoch for partition in range(PARTITIONS)]
        return found == [Position(end, epoch) for end, epoch in zip(broker.ends("t"), epochs, strict=True)]

    try:
        await until(lambda: landed() or running.done(), "everything landed", lambda: pipeline.status())
    finally:
        pipeline.drain("test")
        await running
    assert broker.violations == []
    await broker.stop()
    report = verify(tmp_path / "data")
    assert report.ok, report.problems
    values = _values(tmp_path / "data")
    there = {
        (partition, b"%d:%d" % (n, row))
        for partition in range(PARTITIONS)
        for n in stored[partition]
        for row in range(10)
    }
    assert there <= set(values), "lost"
    assert max(values.values()) == 1, "doubled"
    assert report.rows == values.total()


def _values(path: Path) -> Counter[tuple[int, bytes]]:
    table = ds.dataset(path, format="parquet").to_table(["partition", "value"])
    return Counter(zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True))
