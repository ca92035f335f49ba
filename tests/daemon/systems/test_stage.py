"""The stages of partitions: every pair of stages either follows the table of its system or raises."""

from itertools import product

import pytest

from fastwire.position import Log
from fastwire_daemon.systems.kafka.source.partition import Partition as KafkaPartition
from fastwire_daemon.systems.pulsar.source.partition import Partition as PulsarPartition
from fastwire_daemon.systems.reading.stage import IllegalTransition, Stage, StagedPartition
from fastwire_daemon.systems.source import Assignment

HELD = {Stage.ASSIGNED, Stage.SEEKING, Stage.READING}
LOG = Log("pulsar", "", "t", "0", "")

# The transitions of each system as sentences: stages and those that may follow. What is not here must raise.
PULSAR = {
    "CONNECTING": "CONNECTING STAND_BY ASSIGNED STOPPED REPLACED GONE",
    "STAND_BY": "CONNECTING STAND_BY ASSIGNED STOPPED REPLACED GONE",
    "ASSIGNED": "CONNECTING STAND_BY SEEKING READING STOPPED REPLACED GONE",
    "SEEKING": "CONNECTING ASSIGNED STOPPED REPLACED GONE",
    "READING": "CONNECTING STOPPED REPLACED GONE",
    "STOPPED": "",
    "REPLACED": "",
    "GONE": "CONNECTING",
}
KAFKA = {
    "IDLE": "IDLE ASSIGNED STOPPED REPLACED GONE",
    "PENDING": "IDLE ASSIGNED STOPPED REPLACED GONE",
    "ASSIGNED": "IDLE PENDING ASSIGNED READING STOPPED REPLACED GONE",
    "READING": "IDLE ASSIGNED STOPPED REPLACED GONE",
    "STOPPED": "REPLACED",
    "GONE": "IDLE REPLACED",
    "REPLACED": "",
}


class _Pulsar(StagedPartition):
    TRANSITIONS = PulsarPartition.TRANSITIONS


class _Kafka(StagedPartition):
    TRANSITIONS = KafkaPartition.TRANSITIONS


SYSTEMS = ((_Pulsar, PULSAR), (_Kafka, KAFKA))


def assignment() -> Assignment:
    return Assignment(0, LOG, None, None, False)


def path(table: dict[str, str], to: str) -> list[Stage]:
    """The shortest way from the initial stage, without it."""
    ways: list[tuple[str, ...]] = [(next(iter(table)),)]
    for way in ways:
        if way[-1] == to:
            return [Stage[name] for name in way[1:]]
        ways += [(*way, name) for name in table[way[-1]].split() if name not in way]
    raise AssertionError(f"{to} cannot be reached")


def at(kind: type[StagedPartition], table: dict[str, str], stage: str) -> StagedPartition:
    """A partition in a stage, by legal transitions alone."""
    partition = kind(0, LOG)
    for to in path(table, stage):
        if to is Stage.ASSIGNED and partition.stage is not Stage.SEEKING:
            partition.assign(assignment())
        else:
            partition.move(to)
    assert partition.stage is Stage[stage]
    return partition


@pytest.mark.parametrize(("kind", "table"), SYSTEMS, ids=["pulsar", "kafka"])
def test_each_pair_of_stages(kind: type[StagedPartition], table: dict[str, str]) -> None:
    for start, to in product(table, Stage):
        partition = at(kind, table, start)
        held = partition.assignment
        new = assignment()
        legal = to.name in table[start].split()
        needs_one = to in HELD and held is None
        if legal and not needs_one:
            partition.move(to)
            assert (partition.stage, partition.assignment) == (to, held if to in HELD else None), (start, to)
            continue
        with pytest.raises(IllegalTransition, match=to.name):
            partition.move(to)
        assert (partition.stage, partition.assignment) == (Stage[start], held), (start, to)
        if legal:
            assert to is Stage.ASSIGNED  # the only stage that brings an assignment
            partition.assign(new)
            assert (partition.stage, partition.assignment) == (to, new)


@pytest.mark.parametrize(("kind", "table"), SYSTEMS, ids=["pulsar", "kafka"])
def test_assignments(kind: type[StagedPartition], table: dict[str, str]) -> None:
    for start in table:
        partition, new = at(kind, table, start), assignment()
        if "ASSIGNED" in table[start].split():
            partition.assign(new)
            assert (partition.stage, partition.assignment) == (Stage.ASSIGNED, new)
        else:
            with pytest.raises(IllegalTransition, match="ASSIGNED"):
                partition.assign(new)
            assert partition.assignment is not new


@pytest.mark.parametrize(("kind", "table"), SYSTEMS, ids=["pulsar", "kafka"])
def test_facts_of_each_stage(kind: type[StagedPartition], table: dict[str, str]) -> None:
    for start in table:
        partition = at(kind, table, start)
        assert partition.granted == (start == "READING")
        assert partition.over == (start in ("STOPPED", "REPLACED", "GONE"))
        assert (partition.assignment is not None) == (start in ("ASSIGNED", "SEEKING", "READING"))
        assert partition.was_granted == (Stage.READING in path(table, start))
    read = at(kind, table, "READING")
    read.move(Stage.STOPPED)
    assert (read.granted, read.was_granted) == (False, True)
