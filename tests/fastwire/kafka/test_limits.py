"""Limits of a batch of Kafka: a part of the budget, whatever its few bytes claim; sound batches land."""

import random
import tracemalloc

import pytest
from crc32c import crc32c

from fastwire.errors import ProtocolError
from fastwire.kafka.format.message import decode_response, encode_response
from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.reason import Reason
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint
from tests.support.kafka.bombs import headers_of, value_of
from tests.support.kafka.golden import Reading, fetch_response
from tests.support.kafka.markers import encode_marker

MIB = 1 << 20
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_becomes_an_eighth_of_the_budget_at_most(codec: Compression) -> None:
    pool = Pool(64 * MIB)
    reading = Reading(pool=pool)
    reading.read(fetch_response(value_of(8 * MIB, codec, 0) + value_of(8 * MIB + 4096, codec, 1)))
    assert [len(row["value"] or b"") // MIB for row in reading.rows] == [7]
    assert [letter.damage for letter in reading.dead_letters] == [Reason.TOO_LARGE]
    assert f"one entry may to {8 * MIB}" in reading.dead_letters[0].reason
    assert "daemon.memory" in reading.dead_letters[0].reason
    assert reading.slots.position(0).a == 2
    assert pool.peak < 64 * MIB


def test_headers_take_a_quarter_of_the_budget_in_columns_at_most() -> None:
    pool = Pool(32 * MIB)
    reading = Reading(pool=pool)
    small = [encode_batch([Record(value=b"v")], base_offset=base) for base in (0, 3)]
    reading.read(fetch_response(small[0] + headers_of(200_000, 1) + headers_of(1_500_000, 2) + small[1]))
    assert [(row["offset"], len(row["headers"] or [])) for row in reading.rows] == [(0, 0), (1, 200_000), (3, 0)]
    (letter,) = reading.dead_letters
    assert letter.damage is Reason.TOO_LARGE and f"more than {8 * MIB} bytes in columns" in letter.reason
    assert pool.peak < 24 * MIB


def test_a_sound_batch_of_more_than_128_mib_lands_where_the_budget_has_room_for_it() -> None:
    reading = Reading(pool=Pool(2 << 30), columns=frozenset({"offset"}))
    reading.read(fetch_response(value_of(130 * MIB, Compression.ZSTD, 0)))
    assert [row["offset"] for row in reading.rows] == [0]
    assert reading.dead_letters == []


def test_a_header_key_that_is_not_utf8_costs_no_record() -> None:
    records = [Record(value=b"a"), Record(value=b"b", headers=[("k0123", b"v"), ("sound", None)]), Record(value=b"c")]
    stored = bytearray(encode_batch(records))
    at = stored.index(b"k0123")
    stored[at : at + 5] = b"k\xff\xe2\x82x"
    stored[17:21] = crc32c(bytes(stored[21:])).to_bytes(4, "big")
    reading = Reading()
    reading.read(fetch_response(bytes(stored)))
    assert reading.dead_letters == [] and [row["value"] for row in reading.rows] == [b"a", b"b", b"c"]
    assert reading.rows[1]["headers"] == [{"key": "k\ufffd\ufffdx", "value": b"v"}, {"key": "sound", "value": None}]


def listed(aborted: list[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"producer_id": producer, "first_offset": first} for producer, first in aborted]


@pytest.mark.parametrize("version", [4, 12])
def test_aborted_transactions_take_25_bytes_each(version: int) -> None:
    most = 8 * MIB // 25
    pool = Pool(64 * MIB)
    reading = Reading(pool=pool, committed=True, version=version)
    records = encode_batch([Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    aborted = listed([(producer, 0) for producer in range(most)])
    data = fetch_response(records, version=version, aborted_transactions=aborted)
    tracemalloc.start()
    reading.read(data)
    objects = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reading.rows == [] and reading.slots.position(0).a == 1, "the record is of an aborted transaction"
    assert objects < MIB, "no object for each of them"
    assert pool.peak < 48 * MIB
    reading.read(fetch_response(b"", version=version))
    assert pool.used < 2 * MIB, "the list goes with its partition, and the buffer shrinks with the next read"


@pytest.mark.parametrize("version", [4, 12])
def test_more_aborted_transactions_than_fit_are_refused_before_they_come(version: int) -> None:
    few = fetch_response(b"", version=version, aborted_transactions=listed([(1, 0)] * 400_000))
    reading = Reading(pool=Pool(64 * MIB), committed=True, version=version)
    with pytest.raises(
        ProtocolError, match=f"400000 aborted transactions of a partition, the limit is {8 * MIB // 25}"
    ):
        reading.read(few[:200])
    # The frame has not the bytes that so many would take.
    at = few.index((400_000).to_bytes(4, "big")) if version == 4 else few.index(encode_varint(400_001))
    frame = len(few[:200]) - 4
    short = frame.to_bytes(4, "big") + few[4:200]
    assert at < 200
    with pytest.raises(ProtocolError, match="beyond the frame"):
        Reading(pool=Pool(64 * MIB), committed=True, version=version).read(short)


def test_aborted_transactions_in_any_order_hide_what_they_cover() -> None:
    rng = random.Random(5)
    for _ in range(50):
        log, aborted, wanted, opened = b"", [], [], dict[int, tuple[int, list[int]]]()
        for offset in range(60):
            producer = rng.randrange(-1, 5)
            if producer in opened and rng.random() < 0.3:
                first, within = opened.pop(producer)
                commit = rng.random() < 0.5
                log += encode_marker(
                    commit=commit, producer_id=producer, producer_epoch=0, timestamp=0, base_offset=offset
                )
                if commit:
                    wanted += within
                else:
                    aborted.append((producer, first))
                continue
            record = Record(value=b"%d" % offset)
            transactional = producer >= 0 and rng.random() < 0.8
            if transactional:
                opened.setdefault(producer, (offset, []))[1].append(offset)
            else:
                wanted.append(offset)
            log += encode_batch(
                [record],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=transactional,
            )
        for producer, (first, _within) in opened.items():
            aborted.append((producer, first))
        rng.shuffle(aborted)
        reading = Reading(committed=True)
        reading.read(fetch_response(log, aborted_transactions=listed(aborted)))
        assert [row["offset"] for row in reading.rows] == sorted(wanted)


def test_a_part_of_a_fetch_response_that_never_ends_is_refused() -> None:
    """A tagged field may have any size; what comes of it is held until all of it has come."""
    head = (1).to_bytes(4, "big") + b"\0" + b"\0\0\0\0" + b"\0\0" + b"\0\0\0\0"
    body = head + b"\x01" + b"\x01\x05" + encode_varint(500 * MIB)
    reading = Reading(pool=Pool(8 * MIB))
    reading.plan()
    with pytest.raises(ProtocolError, match=f"one part of it has more than {MIB} bytes"):
        reading.feed((600 * MIB).to_bytes(4, "big") + body + bytes(3 * MIB))


def test_a_response_without_records_has_100_mib_at_most() -> None:
    reading = Reading(pool=Pool(1 << 30))
    reading.feed((100 * MIB).to_bytes(4, "big") + bytes(4))
    with pytest.raises(ProtocolError, match="response without records"):
        Reading(pool=Pool(1 << 30)).feed((100 * MIB + 1).to_bytes(4, "big") + bytes(4))


def test_more_addresses_of_nodes_than_any_cluster_has_are_refused() -> None:
    nodes = [{"node_id": 1, "host": "", "port": 1, "rack": None}] * 10_001

    def response(count: int) -> bytes:
        topic = {"topic_id": bytes(16), "partitions": [{"partition_index": 0, "high_watermark": 0, "records": None}]}
        return encode_response(1, 16, 1, {"responses": [topic], "node_endpoints": nodes[:count]})

    reading = Reading(version=16)
    reading.read(response(10_000))
    assert len(reading.fetched[0].nodes) == 10_000
    with pytest.raises(ProtocolError, match="more than 10000 addresses of nodes"):
        Reading(version=16).read(response(10_001))


def metadata(partitions: int, replicas: int) -> bytes:
    nodes = list(range(replicas))
    one = {"error_code": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": nodes, "isr_nodes": nodes}
    listed = [{"partition_index": index, **one} for index in range(partitions)]
    topic = {"error_code": 0, "name": "t", "topic_id": bytes(16), "is_internal": False, "partitions": listed}
    brokers = [{"node_id": 1, "host": "h", "port": 9092, "rack": None}]
    return encode_response(3, 12, 1, {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]})[4:]


def test_lists_of_an_answer_take_a_part_of_the_budget() -> None:
    """Each partition of Metadata is a few bytes on the wire, and several hundred as objects."""
    frame, many = metadata(30_000, 3), metadata(1, 300_000)
    assert len(decode_response(3, 12, frame, 128 * MIB)["topics"][0]["partitions"]) == 30_000
    tracemalloc.start()
    with pytest.raises(ProtocolError, match=r"hold 262144 values at most.*daemon\.memory"):
        decode_response(3, 12, frame, 64 * MIB)
    with pytest.raises(ProtocolError, match="a list of 300000"):
        decode_response(3, 12, many, 64 * MIB)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 * MIB


def test_a_batch_larger_than_a_quarter_of_the_budget_stops_its_partition_before_it_is_received() -> None:
    """A dead letter of it could not be held, and what was cut off would be lost."""
    pool = Pool(64 * MIB)
    reading = Reading(pool=pool)
    batch = encode_batch([Record(value=bytes(17 * MIB))], base_offset=1)
    reading.read(fetch_response(encode_batch([Record(value=b"v")]) + batch))
    assert [row["offset"] for row in reading.rows] == [0] and reading.dead_letters == []
    (corrupt,) = reading.corrupt
    assert corrupt.reason is Reason.FRAME and corrupt.position.a == 1
    assert f"{len(batch)} bytes in one piece are more than {16 * MIB}" in corrupt.detail
    assert "daemon.memory" in corrupt.detail
    assert pool.peak < 16 * MIB


def test_a_response_takes_a_quarter_of_the_budget_at_most() -> None:
    with pytest.raises(ProtocolError, match=r"of a response: .*daemon\.memory"):
        Reading(pool=Pool(64 * MIB)).feed((16 * MIB + 1).to_bytes(4, "big") + bytes(4))
