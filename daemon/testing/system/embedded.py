"""Conformance tests of a system's embedded broker, by its contract alone."""

from itertools import pairwise

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Log, Span

from .scene import GROUP, TOPIC, Scene
from .suite import SystemSuite


class SystemBroker(SystemSuite):
    """The methods of ``devbroker.base.DevBroker``."""

    def test_topics_come_and_go(self, scene: Scene) -> None:
        """The broker creates and deletes topics, and refuses one that exists."""
        broker = scene.broker
        assert broker.url.startswith(f"{self.system}://")
        with pytest.raises(ValueError, match="exists already"):
            broker.create_topic(TOPIC, 2)
        assert len(broker.end_positions(TOPIC)) == 2
        broker.delete_topic(TOPIC)
        with pytest.raises(KeyError):
            broker.end_positions(TOPIC)
        broker.create_topic(TOPIC)
        assert len(broker.end_positions(TOPIC)) == 1

    def test_topics_grow(self, scene: Scene) -> None:
        """A partitioned topic gets more partitions."""
        self._needs("growth")
        scene.broker.grow_topic(TOPIC, 3)
        assert len(scene.broker.end_positions(TOPIC)) == 3

    def test_records_move_the_end_of_their_partition(self, scene: Scene) -> None:
        """Records move the end of their partition forward, and of no other one."""
        ends = [scene.broker.end_positions(TOPIC)]
        for partition in (1, 0, 1):
            scene.produce(3, partition)
            ends.append(scene.broker.end_positions(TOPIC))
        zero, one = zip(*ends, strict=True)
        assert [after != before for before, after in pairwise(zero)] == [False, True, False]
        assert [after != before for before, after in pairwise(one)] == [True, False, True]
        if self._positions.ordered:
            assert all(self._positions.precedes(*each) for each in ((zero[0], zero[2]), (one[0], one[1]), one[2:]))

    def test_positions_of_the_broker_can_be_stored(self, scene: Scene) -> None:
        """A Coverage of the broker's positions survives its text form."""
        log = Log(self.system, "c", self._grammar.topic(TOPIC), "0")
        ends = []
        for _ in range(3):
            ends += scene.broker.end_positions(TOPIC)[:1]
            scene.produce(3)
        coverage = Coverage()
        coverage.add(Span(log, ends[0], ends[0], 0))
        coverage.add(Span(log, ends[0], ends[1], 3))
        assert Coverage.from_json(coverage.to_json()) == coverage
        assert coverage.covers(log, ends[1])
        assert not coverage.covers(log, ends[2])

    def test_unknown_names_raise_key_errors(self, scene: Scene) -> None:
        """``produce`` raises KeyError for unknown topics, and ``backlog`` for unknown groups."""
        with pytest.raises(KeyError):
            scene.broker.produce("unknown", [b"a"])
        with pytest.raises(KeyError):
            scene.broker.backlog(TOPIC, GROUP)
