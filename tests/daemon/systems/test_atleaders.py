"""Work at leaders in simulated time: a partition waits for its own leader, is tried every second, and told seldom."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.kafka.protocol.metadata import Metadata
from fastwire.position import Log, Position
from fastwire_daemon.runtime.tasks import Tasks
from fastwire_daemon.systems.kafka.source.partition import Partition
from fastwire_daemon.systems.reading.atleaders import AtLeaders, Freshness
from fastwire_daemon.systems.reading.leaders import Leaders
from fastwire_daemon.systems.reading.stage import Stage
from fastwire_daemon.systems.source import Assignment
from tests.support.loops import JUMPING


class Scene:
    """Two nodes and four partitions, two led by each; ``done`` has when the work for each was done."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.metadata = Metadata()
        self.leading = {0: 0, 1: 1, 2: 0, 3: 1}
        self.asked_at: list[float] = []
        self.done: dict[int, float] = {}
        self.slow: set[int] = set()  # nodes
        self.partitions = [Partition(n, Log("kafka", "c", "t", str(n), "0"), ("t", n), bytes(16)) for n in range(4)]
        self.tasks = Tasks(pytest.fail)
        self.freshness: Freshness[Partition] = Freshness(
            lambda one: self.metadata.leading(*one.place), self._ask, lambda: None
        )
        self._answer()
        self.at_leaders: AtLeaders[Partition] = AtLeaders("work", self.freshness, self.tasks, self._work)

    def _answer(self) -> None:
        self.metadata.update(
            {
                "brokers": [{"node_id": node, "host": "h", "port": node} for node in (0, 1)],
                "topics": [
                    {
                        "name": "t",
                        "error_code": 0,
                        "partitions": [
                            {"partition_index": n, "leader_id": node, "replica_nodes": [node]}
                            for n, node in self.leading.items()
                        ],
                    }
                ],
            }
        )

    async def _ask(self) -> None:
        self.asked_at.append(self.loop.time())
        self._answer()

    async def _work(self, partitions: Collection[Partition]) -> Mapping[Partition, FastwireError]:
        nodes = {self.leading[one.index] for one in partitions}
        assert len(nodes) == 1
        if nodes & self.slow:
            await asyncio.sleep(10.0)
            return dict.fromkeys(partitions, FastwireError("no connection within 10 s"))
        self.done |= {one.index: self.loop.time() for one in partitions}
        return {}


@JUMPING
async def test_a_leader_that_comes_back_after_an_hour_is_found_within_about_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fastwire.source")
    scene = Scene()
    scene.leading[1] = -1
    scene._answer()
    scene.at_leaders.add(scene.partitions)
    await asyncio.sleep(3600.0)
    assert scene.done.keys() == {0, 2, 3}
    assert max(scene.done.values()) < 0.2
    assert scene.at_leaders.failing == {
        scene.partitions[1]: "t partition 1: LEADER_NOT_AVAILABLE (no broker leads it now)"
    }
    # The cluster is asked about once a second, not more.
    assert 3300 < len(scene.asked_at) < 4700
    scene.leading[1] = 0
    await asyncio.sleep(5.0)
    assert scene.done[1] - 3600.0 <= 1.0
    assert scene.at_leaders.failing == {}
    await scene.tasks.close()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 59 <= len(warnings) <= 60  # one a minute
    assert caplog.records[-1].message == "no partition waits any more"


@JUMPING
async def test_a_leader_that_cannot_be_reached_holds_up_no_other() -> None:
    scene = Scene()
    scene.slow = {1}
    scene.at_leaders.add(scene.partitions)
    await asyncio.sleep(5.0)
    assert scene.done == {0: 0.0, 2: 0.0}
    scene.at_leaders.add([scene.partitions[0]])  # something new, while the other one still hangs
    await asyncio.sleep(0.1)
    assert scene.done[0] == 5.0
    scene.slow.clear()
    await asyncio.sleep(10.0)
    assert scene.done.keys() == {0, 1, 2, 3}
    assert max(scene.done.values()) < 11.0
    await scene.tasks.close()


@JUMPING
async def test_what_was_dropped_or_added_again_meanwhile() -> None:
    scene = Scene()
    scene.slow = {1}
    scene.at_leaders.add(scene.partitions)
    await asyncio.sleep(1.0)
    scene.slow.clear()
    scene.at_leaders.drop(scene.partitions[1])
    scene.at_leaders.add([scene.partitions[3]])  # the attempt under way is about what was before
    await asyncio.sleep(0.1)
    assert scene.done[3] == 1.0
    await asyncio.sleep(20.0)
    assert 1 not in scene.done
    assert scene.partitions[3] not in scene.at_leaders
    await scene.tasks.close()


@JUMPING
@pytest.mark.parametrize("pausing", [False, True])
async def test_a_partition_that_pauses_while_its_connection_is_made_is_not_read(pausing: bool) -> None:
    scene = Scene()
    partition = scene.partitions[0]
    partition.assign(Assignment(0, partition.log))
    partition.move(Stage.READING)
    asked, connected = asyncio.Event(), asyncio.Event()
    read: list[object] = []
    looked: list[int] = []
    link: Any = SimpleNamespace(ready=True, fetcher=SimpleNamespace(add=read.append))
    slots = SimpleNamespace(position=lambda index: Position(5, -1), look_back=looked.append)
    reader: Any = SimpleNamespace(partitions=scene.partitions, placed=lambda link: None, slots=slots)

    class Connecting(Leaders[Any, Partition]):
        async def _place_one(self, partition: Partition) -> None:
            asked.set()
            await connected.wait()
            self._read_by(partition, link, "target")

    leaders = Connecting(reader, scene.freshness, scene.tasks)
    leaders.place(partition)
    await asked.wait()
    partition.paused = pausing
    connected.set()
    await asyncio.sleep(1)
    assert (read, partition.link) == (([], None) if pausing else (["target"], link))
    assert looked == ([] if pausing else [0])  # another leader must have the record before the position
