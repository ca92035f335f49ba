"""The embedded broker answers the requests of the golden vectors as the real one did, over the same stored bundles."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pytest

from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import FRAME_HEAD, PING
from fastwire.tank.producing.bundle import Message, encode_bundle
from fastwire.tank.protocol.consume import END
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.devbroker.tank.topics import PartitionLog
from tests.support.tank.bundles import split_bundles
from tests.support.tank.golden import described, names, request, response
from tests.support.tank.raw_client import read_frame
from tests.support.waiting import eventually

# The real broker begins and ends a chunk where its sparse index has an entry, which the embedded one does not keep, or
# sends a whole segment of a compacted partition; and one mark is a defect of the real one.
DIFFERENT = {
    "consume_compacted_zero": "a whole segment, although the fetch size is 100",
    "consume_compacted_mid": "begins at an entry of the index",
    "consume_eof_stale_hwm": "the mark is too low after a sparse bundle",
    "consume_no_progress": "a bundle that a sound producer does not send",
    "consume_fetch_300": "ends at an entry of the index",
    "consume_small_fetch": "ends at an entry of the index",
}
WAITING = [name for name in names("consume") if described(name).get("params", {}).get("max_wait_ms")]
AT_ONCE = [
    name
    for name in names("consume")
    if described(name)["origin"] == "captured" and name not in WAITING and name not in DIFFERENT
]


def exchange(broker: TankDevBroker, data: bytes, answers: int = 1) -> list[bytes]:
    """Send bytes and return the frames that follow the ping."""
    with socket.create_connection((broker.host, broker.port), 10) as sock, sock.makefile("rb") as stream:
        assert stream.read(len(PING)) == PING
        sock.sendall(data)
        return [read_frame(cast(BinaryIO, stream)) for _ in range(answers)]


@contextmanager
def serving(options: TankOptions | None = None) -> Iterator[TankDevBroker]:
    with running(TankDevBroker(options)) as broker:
        yield broker
        assert broker.violations == []


def load(broker: TankDevBroker, name: str) -> None:
    """Store what the answer of a vector shows of each partition, and what its marks say lies around it."""
    answer = response(name)
    at = FRAME_HEAD + 4 + int.from_bytes(answer[FRAME_HEAD : FRAME_HEAD + 4], "little")
    for said in described(name)["expected"]["partitions"]:
        if said["status"] in ("unknown_topic", "unknown_partition"):
            if said["status"] == "unknown_partition":
                broker.topics.setdefault(said["topic"], [])
            continue
        known = broker.topics.setdefault(said["topic"], [])
        while len(known) <= said["partition"]:
            known.append(PartitionLog(said["topic"], len(known), 0, 1 << 30))
        log = known[said["partition"]]
        if said["status"] == "boundary":
            log.first, log.last = said["first_available_seq"], said["high_water_mark"]
            continue
        size = said["chunk_length"]
        chunk, at = answer[at : at + size], at + size
        base = said.get("base_seq") or 0
        heads = list(split_bundles(chunk, base))
        if heads and 1 < said["requested_seq"] < heads[0].first:  # it lies in a hole behind older bundles
            log.append(encode_bundle([Message(value=b"", sequence=said["requested_seq"] - 1)], sparse=True))
        log.last = max(base - 1, log.last)
        for head in heads:
            log.append(chunk[head.start : head.end])
        if said["high_water_mark"] > log.last:
            log.roll()
            rest = said["high_water_mark"]
            log.append(encode_bundle([Message(value=b"", sequence=rest)], sparse=True))
        if not size:
            log.first = base


@pytest.mark.parametrize("name", AT_ONCE)
def test_answers_at_once(name: str) -> None:
    with serving() as broker:
        load(broker, name)
        assert exchange(broker, request(name)) == [response(name)]


def test_an_empty_wait_ends_at_the_deadline() -> None:
    with serving() as broker:
        load(broker, "consume_timeout")
        assert exchange(broker, request("consume_timeout")) == [response("consume_timeout")]


@pytest.mark.parametrize("name", ["consume_tail_first_message", "consume_sparse_tail", "consume_minbytes_met"])
def test_a_wait_ends_with_enough_bundles(name: str) -> None:
    said = described(name)
    (topic,) = said["params"]["topics"]
    (one,) = topic["partitions"]
    answer = response(name)
    with serving() as broker:
        broker.create_topic(topic["topic"], one["partition"] + 1)
        log = broker.topics[topic["topic"]][one["partition"]]
        begins = said["expected"]["partitions"][0]["base_seq"]
        log.last = begins - 1 if one["sequence"] == END else one["sequence"] - 1 if one["sequence"] else 0
        chunk = answer[len(answer) - said["expected"]["partitions"][0]["chunk_length"] :]
        with socket.create_connection((broker.host, broker.port), 10) as sock, sock.makefile("rb") as stream:
            assert stream.read(len(PING)) == PING
            sock.sendall(request(name))
            eventually(lambda: broker.call(lambda: len(broker.held)), "a request that waits")
            for head in split_bundles(chunk, begins):
                broker.append(topic["topic"], [chunk[head.start : head.end]], one["partition"])
            assert read_frame(cast(BinaryIO, stream)) == answer


def test_answers_come_when_they_are_ready() -> None:
    with serving() as broker:
        load(broker, "consume_timeout")
        first, second = exchange(broker, request("consume_timeout") + request("discover_topics"), 2)
        assert (first[0], second[0]) == (0x0B, 0x02)


@pytest.mark.parametrize(
    "name",
    [
        "create_topic_bad_config",
        "create_topic_bad_name",
        "create_topic_ok",
        "create_topic_with_config",
        "discover_partitions_empty",
        "discover_partitions_unknown",
        "topology_standalone",
    ],
)
def test_answers_about_topics(name: str) -> None:
    with serving() as broker:
        if name != "create_topic_ok":
            broker.create_topic("orders", 4)
        assert exchange(broker, request(name)) == [response(name)]


def test_a_topic_is_created_once() -> None:
    with serving() as broker:
        exchange(broker, request("create_topic_ok"))
        assert exchange(broker, request("create_topic_exists")) == [response("create_topic_exists")]


@pytest.mark.parametrize("name", ["produce_ok", "produce_two_topics", "produce_faults", "produce_with_seq"])
def test_answers_to_producers(name: str) -> None:
    with serving() as broker:
        for topic, partitions in (("orders", 4), ("metrics-v1", 3), ("sparse", 4), ("big", 2)):
            broker.create_topic(topic, partitions)
        assert exchange(broker, request(name)) == [response(name)]


def test_sequences_that_do_not_ascend_are_refused() -> None:
    with serving() as broker:
        broker.create_topic("sparse", 4)
        broker.topics["sparse"][0].last = 1 << 40
        assert exchange(broker, request("produce_sparse_rejected")) == [response("produce_sparse_rejected")]


def test_a_read_only_broker_says_so_once_a_topic() -> None:
    with serving(TankOptions(read_only=True)) as broker:
        (name,) = {result["topic"] for result in described("produce_read_only")["expected"]["results"]}
        broker.create_topic(name, 4)
        assert exchange(broker, request("produce_read_only")) == [response("produce_read_only")]


def test_faults_of_one_read() -> None:
    with serving() as broker:
        broker.create_topic("orders", 4)
        broker.refuse_reads(PartitionStatus.SYSTEM_FAULT)
        (answer,) = exchange(broker, request("consume_empty_seq0"))
        assert answer[-1] == PartitionStatus.SYSTEM_FAULT
        assert exchange(broker, request("consume_empty_seq0")) != [answer]
