"""A producer without a network: numbers, batches, chunks, receipts in and out of order, reconnects, deadlines."""

from collections.abc import Iterable
from struct import Struct
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fastwire.errors import FastwireError, ProtocolError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.batcher import BatchLimits
from fastwire.pulsar.command import decode_command
from fastwire.pulsar.event import SendConfirmed, SendRefused
from fastwire.pulsar.payload import Compression, Entry, Record, encode_single_entry, split_payload
from fastwire.pulsar.producer import Access, Outcome, Phase, Producer, ProducerSettings, SendTimeout, TooLargeError
from fastwire.pulsar.request import BrokerError
from tests.connection_scene import TOPIC, C, Wire
from tests.pulsar_wire import inflate

_SIZES = Struct(">II")
WALL = 1_700_000_000_000
ID = 5
ALONE: Any = {"batching": None}


class Sending:
    """A producer, and what a broker sees of it."""

    def __init__(self, *, opened: bool = True, last: int = -1, largest: int = 0, **settings: Any) -> None:
        self.producer = Producer(TOPIC, ID, ProducerSettings(**settings))
        self.wire = Wire()
        self.now = self.wire.now
        if opened:
            self.connect(largest=largest, last=last)

    def connect(self, *, largest: int = 0, last: int = -1, **success: Any) -> pb.CommandProducer:
        """A new connection, and the producer opened on it; returns what it asked for."""
        self.wire = Wire()
        self.wire.ready(**({"max_message_size": largest} if largest else {}))
        ask = self.ask()
        self.answer(ask, last=last, **success)
        return ask

    def ask(self) -> pb.CommandProducer:
        self.producer.open(self.wire.connection, self.now)
        (command,) = self.wire.heard()
        assert command.type == C.PRODUCER
        return command.producer

    def answer(self, ask: pb.CommandProducer, *, last: int = -1, **parts: Any) -> None:
        name = ask.producer_name or "given-1"
        success = pb.CommandProducerSuccess(
            request_id=ask.request_id, producer_name=name, last_sequence_id=last, **parts
        )
        (reply,) = self.wire.say(C.PRODUCER_SUCCESS, producer_success=success)
        assert reply.error is None
        self.producer.opened(reply.command.producer_success)

    def send(self, *values: bytes | None, **parts: Any) -> None:
        for value in values:
            record = Record(value=value, **parts)
            self.producer.send(record, (value, parts.get("key")), self.now, WALL)

    def heard(self) -> list[tuple[pb.CommandSend, pb.MessageMetadata, bytes]]:
        """The SEND frames since the last call."""
        data = b"".join(self.wire.connection.take_outbound())
        found = []
        while data:
            total, size = _SIZES.unpack_from(data)
            command = decode_command(data[8 : 8 + size])
            assert command.type == C.SEND
            assert command.send.producer_id == ID
            metadata, payload = split_payload(data[8 + size : 4 + total])
            assert metadata.sequence_id == command.send.sequence_id
            found.append((command.send, metadata, bytes(payload)))
            data = data[4 + total :]
        return found

    def confirm(self, *numbers: int, ledger: int = 7) -> list[Outcome]:
        for number in numbers:
            self.producer.confirmed(SendConfirmed(ID, number, Position(ledger, number)))
        return self.producer.take_outcomes()

    def refuse(self, number: int, code: Any) -> bool:
        return self.producer.refused(SendRefused(ID, number, BrokerError(code, "no")))

    def numbers(self) -> list[int]:
        return [send.sequence_id for send, _, _ in self.heard()]


def elements(metadata: pb.MessageMetadata, payload: bytes) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    block = inflate(metadata.compression, payload, metadata.uncompressed_size)
    found, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        size = int.from_bytes(block[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(block[at + 4 : at + 4 + size])
        at += 4 + size
        found.append((single, block[at : at + single.payload_size]))
        at += single.payload_size
    assert at == len(block)
    return found


def tickets(outcomes: Iterable[Outcome]) -> list[Any]:
    return [ticket for outcome in outcomes for ticket in outcome.tickets]


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


def test_one_batch_for_each_key() -> None:
    sending = Sending(batching=BatchLimits(messages=6, by_key=True))
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
    batching = BatchLimits(messages=2) if batched else None
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


# --- reconnecting


def test_everything_without_a_receipt_is_sent_again_in_order() -> None:
    sending = Sending(batching=BatchLimits(messages=2), largest=1000, chunking=True)
    sending.send(b"a", b"b", b"c" * 3000, b"d", b"e")
    sending.producer.flush()
    first = sending.heard()
    sending.confirm(0, 2)  # the batch, and one chunk of four
    sending.producer.detached()
    sending.send(b"f", b"g", b"h")  # meanwhile
    assert sending.heard() == []
    sending.connect(largest=1000)
    again = sending.heard()
    assert again[: len(first) - 2] == first[2:]
    assert [send.sequence_id for send, _, _ in again[len(first) - 2 :]] == [5]
    sending.producer.flush()
    assert sending.numbers() == [7]
    outcomes = sending.confirm(*(send.sequence_id for send, _, _ in again), 7)
    assert [ticket[0][:1] for ticket in tickets(outcomes)] == [b"c", b"d", b"e", b"f", b"g", b"h"]
    assert sending.producer.idle


def test_a_broker_that_takes_less_than_the_one_before() -> None:
    sending = Sending(**ALONE)
    sending.send(b"a", b"b" * 3000, b"c")
    sending.producer.detached()
    sending.connect(largest=1000)
    assert sending.numbers() == [0, 2]
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, TooLargeError)


def test_opened_without_having_asked() -> None:
    with pytest.raises(ValueError):
        Sending(opened=False).producer.opened(pb.CommandProducerSuccess(request_id=1, producer_name="p"))


# --- refusals


def test_a_copy_that_is_damaged_here_is_dropped() -> None:
    sending = Sending(**ALONE)
    sending.send(b"a", b"b")
    body = bytearray(encode_single_entry(Record(value=b"c"), producer_name="p", sequence_id=2, publish_time=1).body)
    body[-1] ^= 1
    sending.producer.send_entry(Entry(bytes(body), 1, 2, 2, 1, batched=False), "bad", sending.now)
    sending.send(b"d")
    assert not sending.refuse(2, pb.ChecksumError)
    (outcome,) = sending.producer.take_outcomes()
    assert outcome.tickets == ("bad",)
    assert isinstance(outcome.error, BrokerError)
    assert len(tickets(sending.confirm(0, 1, 3))) == 3
    assert sending.producer.weight == 0


def test_a_copy_that_was_damaged_on_the_way_is_sent_again() -> None:
    sending = Sending(**ALONE)
    sending.send(b"a", b"b")
    assert sending.refuse(1, pb.ChecksumError)
    assert sending.producer.pending == 2


@pytest.mark.parametrize("code", [pb.PersistenceError, pb.UnknownError, pb.ServiceNotReady, pb.MetadataError])
def test_what_passes_is_sent_again(code: Any) -> None:
    sending = Sending(**ALONE)
    sending.send(b"a")
    assert sending.refuse(0, code)
    assert sending.refuse(17, code)
    assert sending.producer.take_outcomes() == []
    sending.producer.detached()
    assert not sending.refuse(0, code)


@pytest.mark.parametrize("code", [pb.NotAllowedError, pb.ProducerBlockedQuotaExceededError])
def test_what_concerns_one_entry_drops_that_one_with_its_chunks(code: Any) -> None:
    sending = Sending(largest=1000, chunking=True, **ALONE)
    sending.send(b"a", b"b" * 3000, b"c")
    assert not sending.refuse(1, code)
    (outcome,) = sending.producer.take_outcomes()
    assert outcome.error is not None
    assert outcome.messages == 1
    assert sending.producer.pending == 2
    assert len(tickets(sending.confirm(0, 2))) == 2


@pytest.mark.parametrize("code", [pb.TopicTerminatedError, pb.ProducerFenced, pb.AuthorizationError, pb.TopicNotFound])
def test_what_ends_a_producer_fails_everything(code: Any) -> None:
    sending = Sending(batching=BatchLimits(messages=2))
    sending.send(b"a", b"b", b"c")
    assert not sending.refuse(0, code)
    outcomes = sending.producer.take_outcomes()
    assert tickets(outcomes) == [(b"a", None), (b"b", None), (b"c", None)]
    assert all(isinstance(outcome.error, BrokerError) for outcome in outcomes)
    assert (sending.producer.idle, sending.producer.weight) == (True, 0)
    with pytest.raises(FastwireError):
        sending.send(b"d")


# --- deadlines


def test_no_receipt_in_time() -> None:
    sending = Sending(send_timeout_s=30.0, largest=1000, chunking=True, **ALONE)
    sending.send(b"a" * 3000)
    sending.now += 10
    sending.send(b"b")
    assert sending.producer.deadline == 1030.0
    sending.producer.tick(1029.9)
    assert sending.producer.take_outcomes() == []
    sending.producer.tick(1030.0)
    (outcome,) = sending.producer.take_outcomes()
    assert isinstance(outcome.error, SendTimeout)
    assert sending.producer.deadline == 1040.0
    assert tickets(sending.confirm(0, 0, 0, 0, 1)) == [(b"b", None)]  # those of the first come late, and are nothing
    assert sending.producer.deadline is None


def test_patience_without_end() -> None:
    sending = Sending(send_timeout_s=None, **ALONE)
    sending.send(b"a")
    sending.producer.tick(1e12)
    assert sending.producer.pending == 1
    assert sending.producer.deadline is None


# --- any order of events


class AnyOrder(RuleBasedStateMachine):
    """A broker that stores what it gets, may lose connections with receipts under way, and filters duplicates.

    Whatever happens, each record has one outcome, what was confirmed is stored, and numbers are stored in order.
    """

    @initialize(
        batching=st.sampled_from([None, BatchLimits(messages=3), BatchLimits(messages=5, by_key=True)]),
        codec=st.sampled_from(list(Compression)),
    )
    def start(self, batching: BatchLimits | None, codec: Compression) -> None:
        self.sending = Sending(batching=batching, compression=codec, chunking=True, largest=900, send_timeout_s=None)
        self.sent = 0
        self.stored: list[bytes] = []
        self.highest = -1
        self.chunks: list[bytes] = []
        self.receipts: list[int] = []
        self.outcomes: list[Outcome] = []
        self.open = True

    @rule(size=st.sampled_from([0, 20, 300, 2500]), key=st.sampled_from([None, "a", "b"]))
    def send(self, size: int, key: str | None) -> None:
        value = b"%d:" % self.sent + bytes((self.sent * 31 + n * n * 7919 >> 5) % 256 for n in range(size))
        self.sent += 1
        record = Record(value=value, key=key)
        self.sending.producer.send(record, value, self.sending.now, WALL)

    @rule()
    def flush(self) -> None:
        self.sending.producer.flush()

    @precondition(lambda self: self.open)
    @rule()
    def broker_reads(self) -> None:
        for send, metadata, payload in self.sending.heard():
            self.receipts.append(send.sequence_id)
            if send.sequence_id <= self.highest:
                continue  # stored before
            if send.is_chunk:
                if metadata.chunk_id == 0:
                    self.chunks = []
                assert metadata.chunk_id <= len(self.chunks)
                self.chunks[metadata.chunk_id :] = [payload]
                if metadata.chunk_id + 1 < metadata.num_chunks_from_msg:
                    continue
                whole = b"".join(self.chunks)
                self.stored.append(inflate(metadata.compression, whole, metadata.uncompressed_size))
            elif metadata.HasField("num_messages_in_batch"):
                self.stored += [value for _, value in elements(metadata, payload)]
            else:
                self.stored.append(inflate(metadata.compression, payload, metadata.uncompressed_size))
            assert send.sequence_id == self.highest + 1
            self.highest = send.highest_sequence_id or send.sequence_id

    @precondition(lambda self: self.open)
    @rule(most=st.integers(1, 5))
    def broker_confirms(self, most: int) -> None:
        for number in self.receipts[:most]:
            self.outcomes += self.sending.confirm(number)
        del self.receipts[:most]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def connection_is_lost(self, data: Any) -> None:
        self.sending.producer.detached()
        self.receipts.clear()
        self.open = False

    @precondition(lambda self: not self.open)
    @rule()
    def reconnect(self) -> None:
        self.sending.connect(largest=900)
        self.open = True

    def teardown(self) -> None:
        if not hasattr(self, "sending"):
            return
        if not self.open:
            self.reconnect()
        self.sending.producer.flush()
        self.broker_reads()
        self.broker_confirms(1 << 30)
        found = tickets(self.outcomes)
        assert self.sending.producer.idle
        assert self.sending.producer.weight == 0
        assert all(outcome.error is None for outcome in self.outcomes)
        assert self.stored == found
        numbers = [int(value.partition(b":")[0]) for value in found]
        assert sorted(numbers) == list(range(self.sent))
        if not self.sending.producer._settings.batching or not self.sending.producer._settings.batching.by_key:
            assert numbers == sorted(numbers)
        assert [n for outcome in self.outcomes for n in outcome.sequence_ids] == list(range(self.sent))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)
