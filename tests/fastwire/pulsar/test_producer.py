"""A producer without a network: what it says of itself, numbers, batches, chunks."""

from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire.producer import NotConfirmed
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record, encode_single_entry
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.encoder import TooLargeError
from fastwire.pulsar.producing.producer import Phase
from fastwire.pulsar.producing.settings import Access
from fastwire.pulsar.protocol.event import SendConfirmed
from tests.support.pulsar.connection_scene import TOPIC, C
from tests.support.pulsar.frames import inflate
from tests.support.pulsar.producer_bench import ALONE, ID, WALL, Sending, elements, tickets

# --- opening


def test_what_a_producer_says_of_itself() -> None:
    schema = pb.Schema(name="s", type=pb.Schema.Json, schema_data=b"{}")
    sending = Sending(
        opened=False,
        name="me",
        access=Access.EXCLUSIVE_WITH_FENCING,
        schema=schema,
        properties=(("a", "b"),),
        initial_subscription="early",
        **ALONE,
    )
    ask = sending.connect(last=41, schema_version=b"\0\1", topic_epoch=6)
    assert (ask.topic, ask.producer_id, ask.producer_name, ask.user_provided_producer_name) == (TOPIC, ID, "me", True)
    assert (ask.epoch, ask.HasField("topic_epoch")) == (0, False)
    assert ask.producer_access_mode == pb.ExclusiveWithFencing
    assert ask.schema == schema
    assert [(each.key, each.value) for each in ask.metadata] == [("a", "b")]
    assert ask.initial_subscription_name == "early"
    assert not ask.encrypted
    sending.send(b"x")
    ((send, metadata, _),) = sending.heard()
    assert send.sequence_id == 42  # goes on where the broker knows it to have been
    assert (metadata.producer_name, metadata.schema_version) == ("me", b"\0\1")
    sending.producer.detached()
    again = sending.connect(last=41)
    assert (again.epoch, again.topic_epoch, again.producer_name) == (1, 6, "me")
    assert sending.numbers() == [42]


def test_a_name_that_was_given_is_kept() -> None:
    sending = Sending(opened=False)
    ask = sending.connect()
    assert not ask.HasField("producer_name")
    assert not ask.user_provided_producer_name
    sending.producer.detached()
    again = sending.connect()
    assert (again.producer_name, again.user_provided_producer_name) == ("given-1", False)


def test_numbers_begin_where_they_are_told_to() -> None:
    sending = Sending(last=9, first_sequence_id=100, **ALONE)
    assert sending.producer.last_sequence_id == 9
    sending.send(b"x", b"y")
    assert sending.numbers() == [100, 101]
    assert Sending(last=-1).producer.last_sequence_id == -1


def test_nothing_is_sent_without_a_name() -> None:
    sending = Sending(opened=False)
    with pytest.raises(ValueError, match="name"):
        sending.send(b"x")


def test_closing() -> None:
    sending = Sending()
    request_id = sending.producer.close(sending.now)
    (command,) = sending.wire.heard()
    assert (command.type, command.close_producer.producer_id) == (C.CLOSE_PRODUCER, ID)
    assert command.close_producer.request_id == request_id
    assert sending.producer.phase is Phase.DETACHED
    assert sending.producer.close(sending.now) is None


@pytest.mark.parametrize("settings", [ALONE, {}])
def test_nothing_is_sent_twice_if_it_must_not_be(settings: Any) -> None:
    sending = Sending(resend=False, **settings)
    sending.send(b"x")
    sending.producer.flush()
    sending.confirm(*sending.numbers())
    sending.producer.detached()
    assert sending.producer.failure is None  # nothing was under way
    sending.connect()
    sending.send(b"y")
    sending.producer.flush()
    sending.producer.detached()
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, NotConfirmed) and sending.producer.failure is outcome.error


# --- one record an entry


def test_a_record_with_everything() -> None:
    sending = Sending(compression=Compression.ZSTD, **ALONE)
    sending.send(
        b"value" * 100,
        key="a2V5",
        key_is_base64=True,
        ordering_key=b"o\xff",
        properties=(("p", "1"), ("p", "2")),
        event_time=77,
        deliver_at=99,
    )
    sending.send(None, null_key=True)
    (_, first, payload), (send, second, nothing) = sending.heard()
    assert inflate(first.compression, payload, first.uncompressed_size) == b"value" * 100
    assert (first.partition_key, first.partition_key_b64_encoded, first.ordering_key) == ("a2V5", True, b"o\xff")
    assert [(each.key, each.value) for each in first.properties] == [("p", "1"), ("p", "2")]
    assert (first.event_time, first.deliver_at_time, first.publish_time) == (77, 99, WALL)
    assert not first.HasField("num_messages_in_batch")
    assert (second.null_value, second.null_partition_key, second.uncompressed_size) == (True, True, 0)
    assert not first.null_value
    assert (send.sequence_id, send.num_messages, send.HasField("highest_sequence_id")) == (1, 1, False)
    assert inflate(second.compression, nothing, 0) == b""


def test_receipts_give_places() -> None:
    sending = Sending(**ALONE)
    sending.send(b"a", b"b")
    assert sending.producer.pending == 2
    weight = sending.producer.weight
    (outcome,) = sending.confirm(0)
    assert (outcome.tickets, outcome.sequence_ids) == ([(b"a", None)], [0])
    assert (outcome.position, outcome.batched, outcome.first, outcome.error) == (Position(7, 0), False, None, None)
    assert 0 < sending.producer.weight < weight
    assert not sending.producer.idle
    sending.confirm(1)
    assert (sending.producer.weight, sending.producer.idle) == (0, True)


def test_receipts_that_fit_nothing() -> None:
    sending = Sending(**ALONE)
    assert sending.confirm(0) == []  # nothing is pending
    sending.send(b"a", b"b")
    assert tickets(sending.confirm(0, 0)) == [(b"a", None)]  # the second one is of something that is done
    with pytest.raises(ProtocolError, match="a receipt for 2, the next one is 1"):
        sending.confirm(2)
    assert sending.producer.pending == 1
    sending.producer.detached()
    assert sending.confirm(1) == []  # of the connection that is gone


def test_numbers_of_the_sender() -> None:
    sending = Sending(**ALONE)
    sending.send(b"a", sequence_id=10)
    sending.send(b"b")
    sending.send(b"c", sequence_id=3)  # again what may be stored: the broker decides
    sending.send(b"d")
    assert sending.numbers() == [10, 11, 3, 12]
    assert tickets(sending.confirm(10, 11, 3, 12)) == [(b"a", None), (b"b", None), (b"c", None), (b"d", None)]


def test_entries_that_are_made_already() -> None:
    sending = Sending()
    sending.send(b"before")
    entry = encode_single_entry(Record(value=b"made"), producer_name="x", sequence_id=8, publish_time=1)
    sending.producer.send_entry(entry, "made", sending.now)
    sending.send(b"behind")
    sending.producer.flush()
    assert sending.numbers() == [0, 8, 9]
    assert tickets(sending.confirm(0, 8, 9)) == [(b"before", None), "made", (b"behind", None)]
    sending.connect(largest=16)
    sending.producer.send_entry(entry, "large", sending.now)
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, TooLargeError)
    assert sending.producer.weight == 0


# --- batches


def test_a_batch_is_closed_by_its_count() -> None:
    sending = Sending(batching=BatchLimits(messages=3), compression=Compression.LZ4)
    sending.send(b"a", b"b")
    assert sending.heard() == []
    assert not sending.producer.idle
    sending.send(b"", None, b"e")
    ((send, metadata, payload),) = sending.heard()
    assert (send.sequence_id, send.num_messages, send.highest_sequence_id) == (0, 3, 2)
    assert (metadata.num_messages_in_batch, metadata.highest_sequence_id, metadata.publish_time) == (3, 2, WALL)
    singles = elements(metadata, payload)
    assert [value for _, value in singles] == [b"a", b"b", b""]
    assert [single.sequence_id for single, _ in singles] == [0, 1, 2]
    sending.producer.flush()
    ((send, metadata, payload),) = sending.heard()
    assert [single.null_value for single, _ in elements(metadata, payload)] == [True, False]
    assert (send.sequence_id, send.highest_sequence_id) == (3, 4)
    first, second = sending.confirm(0, 3)
    assert (first.sequence_ids, first.batched, first.messages) == ([0, 1, 2], True, 3)
    assert second.sequence_ids == [3, 4]


def test_a_batch_is_closed_by_its_bytes() -> None:
    sending = Sending(batching=BatchLimits(bytes=1000))
    sending.send(b"." * 400, b"." * 400)
    assert sending.heard() == []
    sending.send(b"." * 400)  # has no room beside the others
    ((send, _, _),) = sending.heard()
    assert send.num_messages == 2
    sending.send(b"." * 5000)  # more than a batch holds: alone
    sent = sending.heard()
    assert [(send.sequence_id, metadata.num_messages_in_batch) for send, metadata, _ in sent] == [(2, 1), (3, 1)]
    assert sent[1][1].HasField("num_messages_in_batch")  # a batch of one is still a batch


def test_a_batch_is_closed_by_its_age() -> None:
    sending = Sending(batching=BatchLimits(delay_s=0.5), send_timeout_s=30.0)
    assert sending.producer.deadline is None
    sending.send(b"a")
    sending.now += 0.4
    sending.send(b"b")
    assert sending.producer.deadline == 1000.5
    sending.producer.tick(1000.4)
    assert sending.heard() == []
    sending.producer.tick(1000.5)
    assert sending.numbers() == [0]
    assert sending.producer.deadline == 1030.0


def test_another_key_ends_a_batch() -> None:
    sending = Sending(batching=BatchLimits(messages=6))
    keys = [
        (None, None),
        (None, None),
        ("x", None),
        ("x", None),
        ("y", None),
        ("x", None),
        ("z", b"x"),
        ("w", b"x"),
        ("", None),
    ]
    for number, (key, ordering_key) in enumerate(keys):
        sending.send(b"%d" % number, key=key, ordering_key=ordering_key)
    sending.send(b"9", key="eA==", key_is_base64=True)
    sending.send(b"10", key="eA==")
    sending.producer.flush()
    sent = sending.heard()
    assert [[value for _, value in elements(metadata, payload)] for _, metadata, payload in sent] == [
        [b"0", b"1"], [b"2", b"3"], [b"4"], [b"5"], [b"6", b"7"], [b"8"], [b"9"], [b"10"],
    ]  # fmt: skip
    assert [metadata.partition_key for _, metadata, _ in sent] == ["", "x", "y", "x", "z", "", "eA==", "eA=="]
    assert [metadata.ordering_key for _, metadata, _ in sent] == [b"", b"", b"", b"", b"x", b"", b"", b""]
    assert [metadata.partition_key_b64_encoded for _, metadata, _ in sent] == [*[False] * 6, True, False]
    assert [send.sequence_id for send, _, _ in sent] == [0, 2, 4, 5, 6, 8, 9, 10]


def test_mixed_keys_share_a_batch_without_an_outer_key() -> None:
    sending = Sending(batching=BatchLimits(keys=Batching.MIXED))
    for key in ("x", "y"):
        sending.send(b"1", key=key)
    sending.producer.flush()
    ((_, metadata, _),) = sending.heard()
    assert metadata.num_messages_in_batch == 2
    assert not metadata.HasField("partition_key")


def test_numbers_of_the_sender_rise_from_entry_to_entry() -> None:
    """A broker that filters duplicates takes a lower number for a record that it has."""
    sending = Sending(batching=BatchLimits(keys=Batching.GROUPED))
    for number, key in enumerate("xxyxy"):
        sending.send(b"%d" % number, key=key, sequence_id=10 + number)
    sending.producer.flush()
    numbers = [(send.sequence_id, send.highest_sequence_id) for send, _, _ in sending.heard()]
    assert numbers == [(10, 11), (12, 0), (13, 0), (14, 0)]


def test_one_batch_for_each_key() -> None:
    sending = Sending(batching=BatchLimits(messages=6, keys=Batching.GROUPED))
    for key in ("x", "y", "x", "y"):
        sending.send(b"1", key=key)
    sending.send(b"2", key="z", ordering_key=b"x")
    assert sending.heard() == []
    sending.send(b"3", key="other", ordering_key=b"x")
    sent = sending.heard()
    assert [metadata.partition_key for _, metadata, _ in sent] == ["x", "y", "z"]
    assert [metadata.ordering_key for _, metadata, _ in sent] == [b"", b"", b"x"]
    # Each batch has a run of numbers, or the broker's filter for duplicates would eat one.
    assert [(send.sequence_id, send.highest_sequence_id) for send, _, _ in sent] == [(0, 1), (2, 3), (4, 5)]
    inner = [single.partition_key for _, metadata, payload in sent for single, _ in elements(metadata, payload)]
    assert inner == ["x", "x", "y", "y", "z", "other"]
    assert sending.producer.batches == 3


def test_numbers_of_the_sender_in_a_batch() -> None:
    sending = Sending()
    for number in (None, 10, None, 20):
        sending.send(b"", sequence_id=number)
    sending.producer.flush()
    ((send, metadata, payload),) = sending.heard()
    assert [single.sequence_id for single, _ in elements(metadata, payload)] == [0, 10, 11, 20]
    assert (send.sequence_id, send.highest_sequence_id, metadata.highest_sequence_id) == (0, 20, 20)
    assert sending.confirm(0)[0].sequence_ids == [0, 10, 11, 20]


def test_what_is_to_be_delivered_later_stands_alone() -> None:
    sending = Sending()
    sending.send(b"a")
    sending.send(b"later", deliver_at=5)
    sending.send(b"b")
    sending.producer.flush()
    sent = sending.heard()
    assert [metadata.HasField("num_messages_in_batch") for _, metadata, _ in sent] == [True, False, True]
    assert [metadata.deliver_at_time for _, metadata, _ in sent] == [0, 5, 0]
    assert [send.sequence_id for send, _, _ in sent] == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"messages": 0}, {"bytes": 0}, {"delay_s": -1.0}])
def test_limits_that_are_none(wrong: Any) -> None:
    with pytest.raises(ValueError):
        BatchLimits(**wrong)


# --- what is too large


def test_a_batch_that_is_too_large_is_cut() -> None:
    sending = Sending(largest=1000, batching=BatchLimits(messages=8, bytes=1 << 20))
    sending.send(*(b"%d" % number * 300 for number in range(8)))
    sent = sending.heard()
    assert [send.num_messages for send, _, _ in sent] == [2, 2, 2, 2]
    assert [send.sequence_id for send, _, _ in sent] == [0, 2, 4, 6]
    outcomes = sending.confirm(0, 2, 4, 6)
    assert [ticket[0][:1] for ticket in tickets(outcomes)] == [b"%d" % number for number in range(8)]
    assert sending.producer.weight == 0


@pytest.mark.parametrize("time", [1 << 63, -(1 << 63) - 1])
def test_a_time_beyond_64_bits_is_refused(time: int) -> None:
    sending = Sending()
    with pytest.raises(ValueError, match="beyond 64 bits"):
        sending.send(b"x", event_time=time)


def test_a_record_that_cannot_be_encoded_fails_alone() -> None:
    sending = Sending(batching=BatchLimits(messages=5, keys=Batching.MIXED))
    for number in range(5):
        sending.send(b"%d" % number, key="\ud800" if number == 2 else "k")
    (outcome,) = sending.producer.take_outcomes()
    assert "cannot be encoded: UnicodeEncodeError" in str(outcome.error)
    sent = [value for _, metadata, payload in sending.heard() for _, value in elements(metadata, payload)]
    assert sent == [b"0", b"1", b"3", b"4"]


def test_a_record_that_is_too_large_fails_alone() -> None:
    sending = Sending(largest=1000, batching=BatchLimits(messages=3, bytes=1 << 20))
    sending.send(b"a", b"." * 1000, b"c")
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, TooLargeError)
    assert "the broker takes up to 1,000" in str(outcome.error)
    assert tickets([outcome]) == [(b"." * 1000, None)]
    assert [value for _, metadata, payload in sending.heard() for _, value in elements(metadata, payload)] == [
        b"a",
        b"c",
    ]


def test_compression_decides_what_is_too_large() -> None:
    sending = Sending(largest=1000, compression=Compression.ZLIB, **ALONE)
    sending.send(b"." * 100_000)
    assert sending.numbers() == [0]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("batched", [True, False])
def test_chunks(codec: Compression, batched: bool) -> None:
    value = bytes(range(256)) * 4 + b"\1\0" * 5000 + bytes((n * n * 7919 >> 7) % 256 for n in range(9000))
    batching = BatchLimits(messages=2, keys=Batching.MIXED) if batched else None
    sending = Sending(largest=1500, compression=codec, batching=batching, chunking=True)
    sending.send(b"before")
    sending.send(value, key="k", properties=(("p", "1"),), event_time=3)
    sent = [one for one in sending.heard() if one[0].is_chunk]
    assert len(sent) > 3
    for number, (send, metadata, _) in enumerate(sent):
        assert (metadata.chunk_id, metadata.num_chunks_from_msg, send.sequence_id) == (number, len(sent), 1)
        assert (metadata.uuid, metadata.partition_key, metadata.event_time) == ("given-1-1", "k", 3)
        assert not metadata.HasField("num_messages_in_batch")
        assert metadata.uncompressed_size == len(value)
    whole = b"".join(payload for _, _, payload in sent)
    assert {metadata.total_chunk_msg_size for _, metadata, _ in sent} == {len(whole)}
    assert inflate(codec, whole, len(value)) == value
    # What storage puts in front of an entry needs room, too.
    assert all(1350 < len(p) + m.ByteSize() + 10 <= 1500 - 64 for _, m, p in sent[:-1])
    sending.confirm(0)
    for at in range(len(sent) - 1):
        sending.producer.confirmed(SendConfirmed(ID, 1, Position(7, at)))
        assert sending.producer.take_outcomes() == []
    sending.producer.confirmed(SendConfirmed(ID, 1, Position(7, 99)))
    (outcome,) = sending.producer.take_outcomes()
    assert (outcome.first, outcome.position, outcome.messages) == (Position(7, 0), Position(7, 99), 1)
    assert tickets([outcome]) == [(value, "k")]


def test_a_record_just_below_the_limit_goes_in_chunks_if_it_may() -> None:
    value = b"." * (5_242_880 - 100)
    sending = Sending(chunking=True, **ALONE)
    sending.send(value)
    assert [len(payload) < 5_242_880 - 1024 for _, _, payload in sending.heard()] == [True, True]
    sending = Sending(**ALONE)
    sending.send(value)
    assert len(sending.heard()) == 1


def test_chunks_that_would_have_no_room() -> None:
    sending = Sending(largest=1500, chunking=True, **ALONE)
    sending.send(b"." * 2000, key="k" * 1400)
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, TooLargeError)


def test_each_chunk_is_encrypted_by_itself_and_fits() -> None:
    calls: list[int] = []

    def encrypt(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        calls.append(len(payload))
        metadata.encryption_param = b"%012d" % len(calls)
        return payload[::-1] + b"T" * 16

    sending = Sending(largest=1000, chunking=True, encrypt=encrypt, **ALONE)
    sending.send(b"ab" * 2000)
    sent = sending.heard()
    assert b"".join(payload[:-16][::-1] for _, _, payload in sent) == b"ab" * 2000
    assert len({metadata.encryption_param for _, metadata, _ in sent}) == len(sent)
    assert all(len(payload) + metadata.ByteSize() + 10 <= 1000 for _, metadata, payload in sent)
    sending.send(b"small")
    ((_, _, payload),) = sending.heard()
    assert payload == b"llams" + b"T" * 16
    assert Sending(opened=False, encrypt=encrypt).connect().encrypted


def test_a_batch_is_encrypted_after_it_is_compressed() -> None:
    sending = Sending(compression=Compression.ZSTD, encrypt=lambda metadata, payload: b"!" + payload)
    sending.send(b"a" * 100, b"b" * 100)
    sending.producer.flush()
    ((_, metadata, payload),) = sending.heard()
    assert payload[:1] == b"!"
    assert [value for _, value in elements(metadata, payload[1:])] == [b"a" * 100, b"b" * 100]
