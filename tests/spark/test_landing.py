"""Spark reads what the daemon lands, each record once, while the daemon writes, is killed and recovers."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tests.crash.scene import Scene
from tests.support.sequence_audit import DIGITS

pytestmark = pytest.mark.spark

KILLED = -9
NUMBER = f"CAST(CAST(substring(value, 1, {DIGITS}) AS STRING) AS BIGINT) AS number"


class Seen:
    """The numbers that one reader was given, by all its batches."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self.batches = 0
        self._guard = Lock()

    def take(self, frame: Any, batch: int) -> None:
        """A function for ``foreachBatch``."""
        numbers = [row[0] for row in frame.selectExpr(NUMBER).collect()]
        with self._guard:
            self.batches += 1
            self.numbers.update(numbers)

    def assert_each_once(self, count: int) -> None:
        """Every number up to ``count`` once, and nothing else."""
        wrong = {number: times for number, times in self.numbers.items() if times != 1}
        assert wrong == {}
        assert set(self.numbers) == set(range(count))


def stream(spark: Any, path: Path) -> Any:
    return spark.readStream.schema(spark.read.parquet(str(path)).schema).parquet(str(path))


def start(frame: Any, seen: Seen, checkpoint: Path, **trigger: Any) -> Any:
    return (
        frame.writeStream.foreachBatch(seen.take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )


def kill_once(scene: Scene, dice: random.Random) -> None:
    """One run that is killed somewhere."""
    scene.feed.add(6)
    with scene.run(script={"checkpoint_every": 3}, until_end=False) as daemon:
        time.sleep(dice.uniform(0.02, 0.8))
        daemon.process.kill()
        assert daemon.wait() == KILLED


LEVELS = {"split": "partition", "partition_by": "hour"}


@pytest.mark.parametrize(
    ("levels", "kills"),
    [
        pytest.param(LEVELS, 4, id="levels"),
        pytest.param(LEVELS, 20, id="levels-long", marks=pytest.mark.soak),
        pytest.param({}, 20, id="flat-long", marks=pytest.mark.soak),
    ],
)
def test_read_while_the_daemon_is_killed(
    spark: Any, dev_scene: Callable[..., Scene], tmp_path: Path, levels: dict[str, str], kills: int
) -> None:
    """A stream with a trigger, one that is begun again with availableNow, and batch reads, through so many kills."""
    scene = dev_scene(partitions=2, sink=levels)
    dice = random.Random(7)
    scene.feed.add(2)
    scene.settle()
    frame = stream(spark, scene.path)
    steady, again = Seen(), Seen()
    query = start(frame, steady, tmp_path / "steady", processingTime="200 milliseconds")
    for turn in range(kills):
        kill_once(scene, dice)
        if turn % 5 == 3:
            start(frame, again, tmp_path / "again", availableNow=True).awaitTermination()
            plain = [row[0] for row in spark.read.parquet(str(scene.path)).selectExpr(NUMBER).collect()]
            assert len(plain) == len(set(plain))
            assert set(again.numbers) <= set(plain)
    scene.feed.add(2)
    scene.settle()
    query.processAllAvailable()
    query.stop()
    start(frame, again, tmp_path / "again", availableNow=True).awaitTermination()
    scene.judge()
    steady.assert_each_once(scene.feed.count)
    again.assert_each_once(scene.feed.count)
    assert steady.batches > 1
    assert again.batches > 1
    listed = Counter(row[0] for row in spark.read.parquet(str(scene.path)).selectExpr(NUMBER).collect())
    assert listed == steady.numbers
