"""Partitions of the embedded broker: segments, retention, compaction, sparse bundles and holes, as readers see them."""

from collections.abc import Iterator

import pytest

from fastwire.position import Position
from fastwire.tank.format.error import PartitionStatus, ProduceCode
from fastwire.tank.format.message import DiscoverPartitions, PartitionRange
from fastwire.tank.producing.bundle import Message, encode_bundle, encode_values
from fastwire.tank.protocol.produce import PartitionBundle, ProduceRequest
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from tests.support.tank.golden import Reading
from tests.support.tank.raw_client import Peer
from tests.support.waiting import eventually


@pytest.fixture(name="broker")
def serving() -> Iterator[TankDevBroker]:
    with running(TankDevBroker()) as broker:
        broker.create_topic("t")
        yield broker
        assert broker.violations == []


@pytest.fixture(name="peer")
def connected(broker: TankDevBroker) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


def bundle(*values: bytes, keys: tuple[bytes | None, ...] | None = None, first: int = 0, step: int = 0) -> bytes:
    """A bundle of these values; with a ``step`` it is sparse, from sequence ``first`` on."""
    named = keys or (None,) * len(values)
    messages = [
        Message(value=value, key=key, timestamp=1, sequence=first + place * step)
        for place, (value, key) in enumerate(zip(values, named, strict=True))
    ]
    return encode_bundle(messages, sparse=step > 0)


def content(peer: Peer, sequence: int = 0) -> list[tuple[int, bytes]]:
    """All messages from a sequence on, by requests from position to position."""
    found: list[tuple[int, bytes]] = []
    while True:
        one = peer.consume("t", sequence)
        result = one.slots.result(0)
        if not one.rows:
            assert (result.status, result.received) == (PartitionStatus.OK, 0)
            return found
        found += rows(one)
        sequence = one.slots.position(0).a


def rows(one: Reading) -> list[tuple[int, bytes]]:
    assert one.dead_letters == []
    assert one.corrupt == []
    return [(row["offset"], row["value"]) for row in one.rows]


def numbered(*values: bytes, first: int = 1) -> list[tuple[int, bytes]]:
    return list(enumerate(values, first))


def extent(peer: Peer) -> PartitionRange:
    (only,) = peer.ask(DiscoverPartitions("t")).ranges
    assert isinstance(only, PartitionRange)
    return only


def test_a_chunk_ends_with_its_segment(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a", b"b"), bundle(b"c")])
    broker.roll("t")
    broker.append("t", [bundle(b"d")])
    assert rows(peer.consume("t", 1)) == numbered(b"a", b"b", b"c")
    assert rows(peer.consume("t", 4)) == [(4, b"d")]
    assert content(peer) == numbered(b"a", b"b", b"c", b"d")


def test_a_segment_that_is_full_is_closed(broker: TankDevBroker) -> None:
    one = encode_values([b"x" * 50], 1, compress=False)
    broker.call(lambda: broker.create("small", segment_bytes=3 * len(one) + 10))
    broker.append("small", [one] * 7)
    log = broker.topics["small"][0]
    assert [stored.segment for stored in log.bundles] == [0, 0, 0, 1, 1, 1, 2]


def test_a_fetch_size_below_a_bundle_brings_one(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a" * 100), bundle(b"b" * 100), bundle(b"c" * 100)])
    assert len(peer.consume("t", 1, fetch_bytes=1).rows) == 1
    size = 2 * len(bundle(b"a" * 100)) + 2
    assert len(peer.consume("t", 1, fetch_bytes=size).rows) == 2
    assert len(peer.consume("t", 1, fetch_bytes=size - 1).rows) == 1


# --- retention


def test_retention_deletes_whole_segments(broker: TankDevBroker, peer: Peer) -> None:
    for value in (b"a", b"c", b"e"):
        broker.append("t", [bundle(value, value)])
        broker.roll("t")
    broker.trim("t", 4)
    assert (extent(peer).first, extent(peer).last) == (3, 6)
    one = peer.consume("t", 2)
    result = one.slots.result(0)
    assert (result.status, result.first_available, result.high_watermark) == (PartitionStatus.BOUNDARY, 3, 6)
    assert (one.rows, one.slots.position(0)) == ([], Position(2, 0))
    assert content(peer) == numbered(b"c", b"c", b"e", b"e", first=3)
    broker.trim("t", 100)
    assert (extent(peer).first, extent(peer).last) == (5, 6)


def test_retention_of_an_empty_partition(broker: TankDevBroker, peer: Peer) -> None:
    broker.trim("t", 10)
    assert extent(peer) == PartitionRange(0, 0)


def test_beyond_the_end_is_a_boundary_failure(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a", b"b")])
    assert peer.consume("t", 3).slots.result(0).status == PartitionStatus.OK
    result = peer.consume("t", 4).slots.result(0)
    assert (result.status, result.first_available, result.high_watermark) == (PartitionStatus.BOUNDARY, 1, 2)


def test_a_topic_made_again_begins_with_1(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a", b"b", b"c")])
    peer.ask_messages("t", 4, max_wait_ms=60_000)
    eventually(lambda: broker.call(lambda: len(broker.held)), "a request that waits")
    broker.delete_topic("t")
    assert peer.messages("t", 4).slots.result(0).status == PartitionStatus.UNKNOWN_TOPIC
    broker.create_topic("t")
    broker.append("t", [bundle(b"new")])
    assert peer.consume("t", 4).slots.result(0).status == PartitionStatus.BOUNDARY
    assert content(peer) == [(1, b"new")]


# --- compaction


def test_compaction_keeps_sequences(broker: TankDevBroker, peer: Peer) -> None:
    broker.append(
        "t",
        [
            bundle(b"a1", b"b1", b"c1", keys=(b"a", b"b", b"c")),
            bundle(b"a2", b"d1", keys=(b"a", b"d")),
            bundle(b"c2", b"-", b"d2", keys=(b"c", None, b"d")),
        ],
    )
    broker.roll("t")
    broker.append("t", [bundle(b"b2", b"b3", keys=(b"b", b"b"))])
    broker.compact("t")
    assert content(peer) == [(4, b"a2"), (6, b"c2"), (7, b"-"), (8, b"d2"), (9, b"b2"), (10, b"b3")]
    assert (extent(peer).first, extent(peer).last) == (1, 10)


def test_a_whole_bundle_after_a_compacted_one_keeps_its_sequences(broker: TankDevBroker, peer: Peer) -> None:
    """The first bundle has lost its end, so a bundle without sequences of its own would begin too early."""
    broker.append(
        "t",
        [
            bundle(b"a1", b"b1", keys=(b"a", b"b")),
            bundle(b"b2", b"c1", keys=(b"b", b"c")),
            bundle(b"d1", keys=(b"d",)),
        ],
    )
    broker.roll("t")
    broker.compact("t")
    assert content(peer) == [(1, b"a1"), (3, b"b2"), (4, b"c1"), (5, b"d1")]
    assert [stored.head.sparse for stored in broker.topics["t"][0].bundles] == [True, True, False]


def test_before_the_first_segment_of_a_compacted_partition(broker: TankDevBroker, peer: Peer) -> None:
    """The answer has a base although its bundle is sparse, and the whole segment whatever the fetch size is."""
    broker.append("t", [bundle(b"a1", b"b1", b"c1", keys=(b"a", b"b", b"c"))])
    broker.append("t", [bundle(b"a2", keys=(b"a",)), bundle(b"d1", keys=(b"d",))])
    broker.roll("t")
    broker.compact("t")
    for sequence in (0, 1):
        one = peer.consume("t", sequence, fetch_bytes=1)
        assert rows(one) == [(2, b"b1"), (3, b"c1"), (4, b"a2"), (5, b"d1")]
        assert one.slots.result(0).status == PartitionStatus.OK
    one = peer.consume("t", 2, fetch_bytes=1)
    assert rows(one) == [(2, b"b1"), (3, b"c1")]
    assert one.slots.result(0).status == PartitionStatus.OK_SPARSE


def test_the_last_segment_is_not_compacted(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a1", b"a2", keys=(b"a", b"a"))])
    broker.compact("t")
    assert content(peer) == numbered(b"a1", b"a2")


# --- sequences of producers


def test_sparse_bundles_of_a_producer(broker: TankDevBroker, peer: Peer) -> None:
    parts = (PartitionBundle(0, bundle(b"a", b"b", b"c", first=10, step=5), 10),)
    (result,) = peer.ask(ProduceRequest((("t", parts),))).results
    assert result.code == ProduceCode.STORED
    broker.append("t", [bundle(b"d")])
    assert content(peer) == [(10, b"a"), (15, b"b"), (20, b"c"), (21, b"d")]
    assert rows(peer.consume("t", 16)) == [(20, b"c"), (21, b"d")]
    (result,) = peer.ask(ProduceRequest((("t", parts),))).results
    assert result.code == ProduceCode.BAD_SEQUENCE
    assert (extent(peer).first, extent(peer).last) == (10, 21)


def test_bundles_that_no_producer_may_send(broker: TankDevBroker) -> None:
    plain = bundle(b"a")
    unsound = {
        "base sequence": PartitionBundle(0, plain, 7),
        "has no messages": PartitionBundle(0, b"\0\0" + plain[1:]),
        "flags 0x84": PartitionBundle(0, bytes((plain[0] | 0x80,)) + plain[1:]),
        "65536 messages": PartitionBundle(0, encode_values([b""] * 65_536, 1)),
    }
    for place, (what, part) in enumerate(unsound.items(), 1):
        with Peer(broker) as peer:
            peer.send(ProduceRequest((("t", (part,)),)))
            assert peer.frame() == b""
        assert len(broker.violations) == place
        assert what in broker.violations[-1]
    assert broker.topics["t"][0].bundles == []
    broker.violations.clear()


def test_a_hole_that_cannot_be_read(broker: TankDevBroker, peer: Peer) -> None:
    broker.append("t", [bundle(b"a", b"b")])
    broker.skip("t", 10)
    assert extent(peer).last == 12
    for _ in range(2):
        one = peer.consume("t", 5)
        assert one.rows == []
        assert one.slots.result(0).stuck
    assert content(peer, 13) == []
    broker.append("t", [bundle(b"c")])
    assert rows(peer.consume("t", 5)) == [(13, b"c")]
    assert rows(peer.consume("t", 0)) == numbered(b"a", b"b")


def test_an_empty_partition_has_no_holes(broker: TankDevBroker) -> None:
    with pytest.raises(ValueError, match="begins after a message"):
        broker.skip("t", 1)


# --- waits


def test_a_wait_ends_with_min_bytes_or_the_segment(broker: TankDevBroker, peer: Peer) -> None:
    for ends_by in ("bytes", "segment"):
        first = extent(peer).last + 1
        peer.ask_messages("t", first, max_wait_ms=60_000, min_bytes=150)
        eventually(lambda: broker.call(lambda: len(broker.held)), "a request that waits")
        broker.append("t", [bundle(b"x" * 100)])
        assert broker.call(lambda: len(broker.held)) == 1
        if ends_by == "bytes":
            broker.append("t", [bundle(b"y" * 100)])
        else:
            broker.roll("t")
        expected = numbered(b"x" * 100, *([b"y" * 100] if ends_by == "bytes" else []), first=first)
        assert rows(peer.messages("t", first)) == expected


def test_a_wait_ends_by_appending_behind_a_segment() -> None:
    with running(TankDevBroker(TankOptions(segment_bytes=150))) as broker, Peer(broker) as other:
        broker.create_topic("t")
        other.ask_messages("t", 0, max_wait_ms=60_000, min_bytes=1000)
        eventually(lambda: broker.call(lambda: len(broker.held)), "a request that waits")
        broker.append("t", [bundle(b"x" * 100), bundle(b"y" * 100)])
        assert rows(other.messages("t", 0)) == [(1, b"x" * 100)]
