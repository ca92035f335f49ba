"""A producer without a network: reconnects, refusals, deadlines, and any order of all that can happen."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Entry, Record, encode_single_entry
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.encoder import TooLargeError
from fastwire.pulsar.producing.outgoing import MessageRoutes
from fastwire.pulsar.producing.producer import Outcome, SendTimeout
from fastwire.pulsar.protocol.request import BrokerError
from tests.support.pulsar.frames import inflate
from tests.support.pulsar.producer_bench import ALONE, WALL, Sending, elements, tickets

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


@pytest.mark.parametrize(
    "code",
    [
        pb.PersistenceError,
        pb.UnknownError,
        pb.ServiceNotReady,
        pb.MetadataError,
        pb.ProducerBlockedQuotaExceededError,
        pb.ProducerBlockedQuotaExceededException,
    ],
)
def test_what_passes_is_sent_again(code: Any) -> None:
    sending = Sending(**ALONE)
    sending.send(b"a")
    assert sending.refuse(0, code)
    assert sending.refuse(17, code)
    assert sending.producer.take_outcomes() == []
    sending.producer.detached()
    assert not sending.refuse(0, code)


def test_what_concerns_one_entry_drops_that_one_with_its_chunks() -> None:
    sending = Sending(largest=1000, chunking=True, **ALONE)
    sending.send(b"a", b"b" * 3000, b"c")
    assert not sending.refuse(1, pb.NotAllowedError)
    (outcome,) = sending.producer.take_outcomes()
    assert outcome.error is not None
    assert outcome.messages == 1
    assert sending.producer.pending == 2
    assert len(tickets(sending.confirm(0, 2))) == 2


def test_a_batch_of_rows_that_is_not_allowed_is_divided_until_one_row_is() -> None:
    sending = Sending(batching=BatchLimits(messages=4, keys=Batching.MIXED))
    values = [b"a", b"b", b"c", b"d", b"behind"]
    rows = Rows(pa.record_batch({"value": pa.array(values)}), origin=40)
    routes = MessageRoutes(rows, WALL)
    ((_, first, stop, _),) = routes.step(1, 0, (100, 1 << 20), 1 << 20)
    sending.producer.send_rows(routes, first, stop, sending.now, WALL)
    sending.producer.flush()
    weight, refused = sending.producer.weight, 0
    while True:
        heard = [(send, [value for _, value in elements(of, body)]) for send, of, body in sending.heard()]
        wrong = next((send.sequence_id for send, found in heard if b"c" in found), None)
        if wrong is None:
            break
        again = sending.refuse(wrong, pb.NotAllowedError)
        refused += 1
        if not again:
            break
        assert sending.producer.weight == weight
        sending.producer.detached()  # all comes again in order
        sending.connect()
    assert refused == 3
    (outcome,) = sending.producer.take_outcomes()
    assert (list(outcome.refused), outcome.messages) == ([42], 1)
    assert [value for _, found in heard for value in found] == values
    assert [found.refused for found in sending.confirm(0, 3, 4)] == [(), (), ()]
    assert (sending.producer.idle, sending.producer.weight) == (True, 0)


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
        batching=st.sampled_from(
            [
                None,
                BatchLimits(messages=3),
                BatchLimits(messages=3, keys=Batching.MIXED),
                BatchLimits(messages=5, keys=Batching.GROUPED),
            ]
        ),
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
        limits = self.sending.producer._settings.batching
        if limits is None or limits.keys is not Batching.GROUPED:
            assert numbers == sorted(numbers)
        assert [n for outcome in self.outcomes for n in outcome.sequence_ids] == list(range(self.sent))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)
