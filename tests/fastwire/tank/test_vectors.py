"""The bytes of a real broker and its client: requests to the byte, answers to the message."""

import hashlib
from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import (
    FRAME_HEAD,
    PING,
    CreateTopic,
    DiscoverPartitions,
    DiscoverTopics,
    DiscoverTopology,
    MessageType,
    Node,
    PartitionRange,
    PartitionRanges,
    TopicInfo,
    TopicList,
    TopicResult,
    Topology,
    encode_frame,
)
from fastwire.tank.producing.bundle import Message, encode_bundle, read_head, read_messages
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition, PartitionAnswer, encode_consume_answer
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest
from tests.support.scanned import Row
from tests.support.tank.bundles import split_bundles
from tests.support.tank.golden import Reading, asked_by, described, digest, names, request, response, timestamp_of

CONSUME = [name for name in names("consume") if not name.startswith("bad_")]
BAD = [name for name in names("consume") if name.startswith("bad_")]
WITH_PARAMS = [name for name in CONSUME if "params" in described(name)]
STATUS_NAMES = {
    "boundary": PartitionStatus.BOUNDARY,
    "unknown_topic": PartitionStatus.UNKNOWN_TOPIC,
    "unknown_partition": PartitionStatus.UNKNOWN_PARTITION,
    "redirect": PartitionStatus.REDIRECT,
    "no_leader": PartitionStatus.NO_LEADER,
    "system": PartitionStatus.SYSTEM_FAULT,
}


def request_of(params: dict[str, Any]) -> ConsumeRequest:
    topics = tuple(
        (
            topic["topic"],
            tuple(FetchPartition(one["partition"], one["sequence"], one["fetch_size"]) for one in topic["partitions"]),
        )
        for topic in params["topics"]
    )
    return ConsumeRequest(
        topics,
        params["max_wait_ms"],
        params["min_bytes"],
        params["client_id"],
        params["version"],
        params["op_flags"] or 0,
    )


@pytest.mark.parametrize("name", WITH_PARAMS)
def test_consume_requests(name: str) -> None:
    said = described(name)
    frame = request(name)
    wanted = request_of(said["params"])
    request_id, found = ConsumeRequest.decode(frame[FRAME_HEAD:])
    assert found == wanted
    assert encode_frame(MessageType.CONSUME, wanted.encode(request_id)) == frame
    assert request_id == said["expected"]["request_id"]


def assert_messages(one: dict[str, Any], rows: list[Row]) -> None:
    assert len(rows) == one["message_count"]
    assert digest(rows) == one["messages_digest"]
    for said, row in zip(one.get("messages", []), rows, strict=False):
        assert row["offset"] == said["seq"]
        assert timestamp_of(row) == said["timestamp_ms"]
        assert row["key"] == (None if said["key_hex"] is None else bytes.fromhex(said["key_hex"]))
        if "value_hex" in said:
            assert row["value"].hex() == said["value_hex"]
        else:
            assert hashlib.sha256(row["value"]).hexdigest() == said["value_sha256"]
    if rows and "last_seq" in one:
        assert (rows[0]["offset"], rows[-1]["offset"]) == (one["first_seq"], one["last_seq"])


def assert_partition(one: dict[str, Any], reading: Reading, asked: int) -> None:
    topic, partition = one["topic"], one["partition"]
    index = reading.index[topic, partition]
    result = reading.slots.result(index)
    rows = reading.of(topic, partition)
    if one["status"] != "ok":
        assert result.status == STATUS_NAMES[one["status"]]
        assert rows == []
        if one["status"] == "boundary":
            assert result.high_watermark == one["high_water_mark"]
            assert result.first_available == one["first_available_seq"]
        assert result.leader == (("192.168.1.20", 11012) if "to" in one else None)
        return
    assert result.status in (PartitionStatus.OK, PartitionStatus.OK_SPARSE)
    assert result.high_watermark == one["high_water_mark"]
    assert result.received == one["chunk_length"]
    position = reading.slots.position(index).a
    if "complete_bundles" in one:
        # A cut bundle is dropped whole.
        assert len(rows) == one["messages_in_complete_bundles"]
        assert result.needed == (one["bytes_needed_from_partial_bundle"] or 1024)
        for said, row in zip(one.get("messages", []), rows, strict=False):
            assert (row["offset"], row["value"]) == (said["seq"], bytes.fromhex(said["value_hex"]))
    else:
        assert_messages(one, rows)
        assert result.needed == 0
        assert position == (one["next_seq"] or asked)
        assert result.stuck == (one["chunk_length"] > 0 and one["next_seq"] is None)
    assert position == (rows[-1]["offset"] + 1 if rows else asked)


@pytest.mark.parametrize("name", CONSUME)
def test_consume_answers(name: str) -> None:
    said = described(name)
    asked = asked_by(said)
    reading = Reading(asked)
    rows = reading.read(response(name))
    assert reading.dead_letters == []
    assert reading.corrupt == []
    (fetched,) = reading.fetched
    assert fetched.request_id == said["expected"]["request_id"]
    assert fetched.unknown == 0
    partitions = [one for one in said["expected"]["partitions"] if "partition" in one]
    for one in partitions:
        assert_partition(one, reading, asked[one["topic"], one["partition"]])
    for one in said["expected"]["partitions"]:
        if one["status"] == "unknown_topic":
            of_it = [index for (topic, _), index in reading.index.items() if topic == one["topic"]]
            assert len(of_it) == one["partitions_requested"]
            assert {reading.slots.result(index).status for index in of_it} == {PartitionStatus.UNKNOWN_TOPIC}
            assert set(of_it) <= set(fetched.answered)
    assert len(rows) == sum(len(reading.of(one["topic"], one["partition"])) for one in partitions)
    assert sum(span.rows for span in reading.spans) == len(rows)


def test_answers_come_in_any_order() -> None:
    said = described("pipelined_three")["expected"]["responses"]
    reading = Reading({("metrics-v1", 0): 1, ("metrics-v1", 2): 1})
    for one in said:
        reading.plan(one["request_id"], *((part["topic"], part["partition"]) for part in one["partitions"]))
    reading.feed(response("pipelined_three"))
    reading.take()
    assert [fetched.request_id for fetched in reading.fetched] == [7001, 7003, 7002]
    assert_messages(said[0]["partitions"][0], reading.of("metrics-v1", 0))
    assert_messages(said[1]["partitions"][0], reading.of("metrics-v1", 2))


FRAMING = {
    "bad_chunk_length": "chunk length",
    "bad_header_length": "header length",
    "bad_truncated_header": "consume answer",
}
PLACES = {"bad_snappy_body": ("snappy", 0), "bad_codec": ("orders", 0), "bad_message_overrun": ("orders", 0)}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("on_corrupt", ["dead_letter", "stop"])
def test_bad_answers(name: str, on_corrupt: str) -> None:
    frame = response(name)
    if name in FRAMING:
        with pytest.raises(ProtocolError, match=FRAMING[name]):
            Reading({("orders", 0): 0}, on_corrupt=on_corrupt).read(frame)
        return
    reading = Reading({PLACES[name]: 0}, on_corrupt=on_corrupt)
    rows = reading.read(frame)
    assert len(reading.dead_letters) + len(reading.corrupt) == 1
    assert bool(reading.corrupt) == (on_corrupt == "stop")
    if reading.dead_letters:
        letter = reading.dead_letters[0]
        assert not [row for row in rows if letter.start.a <= row["offset"] < letter.position.a]
        assert reading.slots.position(0) == reading.spans[-1].end
        assert letter.damage in letter.reason
    else:
        assert reading.slots.session(0) == 0


# --- the other requests

REQUESTS: dict[str, Any] = {
    "create_topic_ok": CreateTopic("orders", 4),
    "create_topic_exists": CreateTopic("orders", 4),
    "create_topic_bad_name": CreateTopic("bad name", 1),
    "create_topic_bad_config": None,
    "create_topic_with_config": None,
    "discover_topics": DiscoverTopics(),
    "discover_partitions_empty": DiscoverPartitions("orders"),
    "discover_partitions_unknown": DiscoverPartitions("nosuch"),
    "discover_partitions_retention": DiscoverPartitions("small-segments"),
    "topology_standalone": DiscoverTopology(),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_other_requests(name: str) -> None:
    frame = request(name)
    sent = REQUESTS[name]
    kinds: dict[str, Any] = {"create_topic": CreateTopic}
    kind = kinds[described(name)["type"]] if sent is None else type(sent)
    request_id, found = kind.decode(frame[FRAME_HEAD:])
    if sent is not None:
        assert found == sent
    assert encode_frame(kind.kind, found.encode(request_id)) == frame
    for size in range(len(frame) - FRAME_HEAD):
        with pytest.raises(ProtocolError):
            kind.decode(frame[FRAME_HEAD : FRAME_HEAD + size])


def answer_of(said: dict[str, Any]) -> Any:
    """The answer that a description describes."""
    expected = said["expected"]
    match said["type"]:
        case "create_topic":
            return TopicResult(expected["topic"], expected["code"])
        case "discover_partitions":
            ranges = [
                PartitionRange(one["first_available_seq"], one["high_water_mark"]) for one in expected["partitions"]
            ]
            return PartitionRanges(expected["topic"], tuple(ranges), expected["partition_count"])
        case "topology":
            return Topology()


@pytest.mark.parametrize("name", REQUESTS)
def test_other_answers(name: str) -> None:
    said = described(name)
    frame = response(name)
    kind = CreateTopic if REQUESTS[name] is None else type(REQUESTS[name])
    reading = Reading({})
    reading.feed(frame, range(len(frame)))
    ((found_kind, payload),) = reading.answers
    assert found_kind == kind.kind
    request_id, answer = kind.answer.decode(payload)
    assert request_id == said["expected"].get("request_id", said["expected"].get("rid"))
    if said["type"] == "discover_topics":
        wanted = [TopicInfo(one["topic"], one["partitions"], one["enabled"]) for one in said["expected"]["topics"]]
        assert isinstance(answer, TopicList)
        assert sorted(answer.topics, key=lambda one: one.name) == wanted
    else:
        assert answer == answer_of(said)
    assert encode_frame(found_kind, answer.encode(request_id)) == frame
    for size in range(len(payload)):
        try:
            kind.answer.decode(payload[:size])
        except ProtocolError:
            pass
        else:
            assert said["type"] == "discover_partitions"  # a list of fewer partitions ends here


def test_cluster_answers_survive_their_own_bytes() -> None:
    answers: list[Any] = [
        Topology("c", (Node(1, ("10.5.5.45", 11011), True, False, 4), Node(2, None, False, True, 0))),
        PartitionRanges("t", (PartitionRange(1, 9), PartitionRange(status=0xFC, leader=("10.0.0.1", 7))), 2),
        PartitionRanges("t", (PartitionRange(status=0xFD),), 4),
        TopicList((TopicInfo("t", 3, True, 2), TopicInfo("u", 1, False, 1)), True),
    ]
    for answer in answers:
        assert type(answer).decode(answer.encode(7)) == (7, answer)


PRODUCE = names("produce")


@pytest.mark.parametrize("name", PRODUCE)
def test_produce(name: str) -> None:
    said = described(name)
    frame = request(name)
    with_base = frame[0] == MessageType.PRODUCE_SEQUENCE
    request_id, sent = ProduceRequest.decode(frame[FRAME_HEAD:], with_base=with_base)
    assert encode_frame(sent.kind, sent.encode(request_id)) == frame
    answer_frame = response(name)
    answer_id, answer = ProduceAnswer.decode(answer_frame[FRAME_HEAD:], sent)
    assert answer_id == request_id == said["expected"]["request_id"]
    wanted = [(one["topic"], one["partition"], one["code"]) for one in said["expected"]["results"]]
    assert [(one.topic, one.partition, one.code) for one in answer.results] == wanted
    assert encode_frame(MessageType.PRODUCE, answer.encode(answer_id)) == answer_frame
    for size in range(len(answer_frame) - FRAME_HEAD):
        with pytest.raises(ProtocolError):
            ProduceAnswer.decode(answer_frame[FRAME_HEAD : FRAME_HEAD + size], sent)
    for size in range(len(frame) - FRAME_HEAD):
        with pytest.raises(ProtocolError):
            ProduceRequest.decode(frame[FRAME_HEAD : FRAME_HEAD + size], with_base=with_base)


@pytest.mark.parametrize("name", [name for name in PRODUCE if name.startswith("refclient")])
def test_bundles_of_the_reference_client(name: str) -> None:
    """The bundles of the real broker are read, and plain ones are encoded as it encodes them."""
    said = described(name)["expected"]["request"]
    frame = request(name)
    _, sent = ProduceRequest.decode(frame[FRAME_HEAD:], with_base=said["base_seq"] is not None)
    bundle = sent.topics[0][1][0].bundle
    head = read_head(bundle, 0, len(bundle), said["first_seq"])
    assert (head.count, head.codec, head.sparse) == tuple(said["bundle"].values())
    assert (head.flags, head.first, head.last) == (said["bundle_flags"], said["first_seq"], said["last_seq"])
    found = read_messages(bundle, head)
    assert len(found) == said["message_count"]
    for one, message in zip(said["messages"], found, strict=False):
        assert (message.sequence, message.timestamp) == (one["seq"], one["timestamp_ms"])
        assert message.value.hex() == one["value_hex"]
    written = encode_bundle(found, sparse=head.sparse)
    if head.codec == 0:
        assert written == bundle
    assert read_messages(written, read_head(written, 0, len(written), head.first)) == found


def test_worked_examples_of_bundles() -> None:
    t = 1_700_000_000_000
    two = encode_bundle([Message(value=b"ab" * 12, timestamp=t)] * 2, compress=True)
    assert two.hex() == "093c2c000068e5cf8b01000018616256020000" + "02621a00"
    sixteen = encode_bundle([Message(value=b"", timestamp=t)] * 16)
    assert sixteen.hex() == "0010" + "000068e5cf8b01000000" + "0200" * 15
    sparse = [
        Message(value=b"a", timestamp=t, sequence=100),
        Message(value=b"b", timestamp=t, sequence=101),
        Message(value=b"c", key=b"k", timestamp=t + 3, sequence=105),
        Message(value=b"d", timestamp=t + 3, sequence=200),
    ]
    assert encode_bundle(sparse, sparse=True).hex() == (
        "506400000000000000630068e5cf8b01000000".replace("630068e5cf8b01000000", "63000068e5cf8b0100000161")
        + "060162" + "01030368e5cf8b010000016b0163" + "020164"
    )  # fmt: skip


def test_ping() -> None:
    assert response("ping_handshake") == PING
    reading = Reading({})
    reading.feed(PING * 2, range(10))
    assert reading.pings == 2
    with pytest.raises(ProtocolError, match="ping"):
        reading.feed(b"\x03\x01\x00\x00\x00")


@pytest.mark.parametrize("name", [name for name in CONSUME if not name.startswith("partial")])
def test_a_broker_writes_the_same_answer(name: str) -> None:
    """The broker's side of the answers, from what the vectors describe."""
    said = described(name)["expected"]
    frame = response(name)
    chunks = frame[9 + int.from_bytes(frame[5:9], "little") :]
    topics: list[tuple[str, int, list[PartitionAnswer] | None]] = []
    for one in said["partitions"]:
        if one["status"] == "unknown_topic":
            topics.append((one["topic"], one["partitions_requested"], None))
            continue
        if not topics or topics[-1][0] != one["topic"]:
            topics.append((one["topic"], 0, []))
        size = one.get("chunk_length", 0)
        leader = ("192.168.1.20", 11012) if "to" in one else None
        answer = PartitionAnswer(
            one["partition"],
            one["flags"],
            one.get("base_seq") or 0,
            one.get("high_water_mark", 0),
            chunks[:size],
            one.get("first_available_seq", 0),
            leader,
        )
        chunks = chunks[size:]
        answers = topics[-1][2]
        assert answers is not None
        answers.append(answer)
        topics[-1] = (topics[-1][0], len(answers), answers)
    assert encode_frame(MessageType.CONSUME, encode_consume_answer(said["request_id"], topics)) == frame


@pytest.mark.parametrize("name", [name for name in CONSUME if not name.startswith(("partial", "consume_no"))])
def test_chunks_split_into_the_bundles_described(name: str) -> None:
    frame = response(name)
    chunks = frame[9 + int.from_bytes(frame[5:9], "little") :]
    for one in described(name)["expected"]["partitions"]:
        size = one.get("chunk_length", 0)
        chunk, chunks = chunks[:size], chunks[size:]
        heads = list(split_bundles(chunk, one.get("base_seq") or 0))
        found = [
            {
                "first_seq": head.first,
                "next_seq": head.next_sequence,
                "count": head.count,
                "codec": head.codec,
                "sparse": head.sparse,
                "length": head.end - head.start,
            }
            for head in heads
        ]
        assert found == one.get("bundles", [])
        assert sum(len(read_messages(chunk, head)) for head in heads) == sum(head.count for head in heads)
