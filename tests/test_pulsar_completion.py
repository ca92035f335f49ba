"""Entries that the hot loop leaves to others, from bytes to rows: every field, every refusal, every limit."""

import base64
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from fastwire.columns.chunk import SpanAccumulator
from fastwire.position import PULSAR_EARLIEST, Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import MOST_MESSAGE_BYTES, Assembly
from fastwire.pulsar.completion import Completion
from fastwire.pulsar.encryption import Decryptor, Encryptor
from fastwire.pulsar.event import EntryRejected
from fastwire.pulsar.payload import (
    Compression,
    Record,
    compress,
    encode_batch,
    encode_batch_entry,
    encode_chunks,
    encode_payload,
    encode_single_entry,
    split_payload,
)
from fastwire.pulsar.scan import Stop
from fastwire.wire.pool import Pool
from tests.keys import key_pair
from tests.pulsar_wire import CONSUMER, LOG, Row, Seen, message_frame, oracle, put, resealed, scanner, words

TIME = 1_700_000_000_000
ALICE, BOB = key_pair("alice"), key_pair("bob")
DATA_KEY = bytes(range(32))
RICH = [
    Record(value=b"first", key="a2V5", key_is_base64=True, properties=[("name", "wert"), ("a", "")], event_time=TIME),
    Record(value=None, key="key-2", ordering_key=b"order", sequence_id=77),
    Record(value=b"", null_key=True, key="unseen"),
    Record(value=b"", compacted_out=True),
    Record(value=b"last" * 9),
]
OUTER = pb.MessageMetadata(schema_version=b"\0\1", replicated_from="c", deliver_at_time=5)


@cache
def decryptor(*keys: tuple[str, bytes]) -> Decryptor:
    """Loading a key takes tens of milliseconds."""
    return Decryptor(dict(keys))


@dataclass
class Desk:
    """A scanner with its completion, one ordered (or shared) consumer, and everything that came out."""

    ordered: bool = True
    divert: bool = True
    keys: dict[str, bytes] = field(default_factory=lambda: {"alice": ALICE.private})
    on_failure: Any = "fail"
    most_open: int = 1000
    memory: int = 1 << 28

    def __post_init__(self) -> None:
        self.pool = Pool(self.memory)
        self.scanner, self.slots = scanner(
            self.pool, ordered=self.ordered, on_corrupt="divert" if self.divert else "stop", buffer_bytes=1 << 16
        )
        self.idle = self.pool.used
        self.assembly = Assembly(self.pool, most_open=self.most_open)
        self.completion = Completion(
            self.assembly,
            divert=self.divert,
            decryptor=decryptor(*self.keys.items()),
            on_failure=self.on_failure,
        )
        self.seen = Seen()
        self.events: list[EntryRejected] = []
        self.entry = 0
        self.accumulator = SpanAccumulator()

    def hand_on(self) -> None:
        chunk = self.scanner.take_chunk()
        if chunk is not None:
            self.accumulator.add(chunk)
            self.seen.take(chunk)

    def give(self, *bodies: bytes, **frame: Any) -> "Desk":
        """Entries of ledger 12, numbered in the order they are given."""
        for body in bodies:
            frame.setdefault("ledger", 12)
            put(self.scanner, message_frame(body, entry=self.entry, **frame))
            self.entry += 1
            while (stop := self.scanner.scan()) != Stop.NEED_BYTES:
                if stop == Stop.COLD_ENTRY:
                    entry = self.scanner.take_entry()
                    assert entry is not None
                    self.events += self.completion.take(entry, self.scanner, self.hand_on)
                elif stop == Stop.CHUNK_FULL:
                    self.hand_on()
                else:
                    assert stop == Stop.OUTPUT_CAP
                    self.scanner.resume()
        return self

    def rows(self) -> list[Row]:
        self.hand_on()
        return self.seen.rows

    def letters(self) -> dict[int, str]:
        """Dead letters by their entry, with the reason."""
        self.hand_on()
        return {letter.position.b: letter.reason for letter in self.seen.diverted}

    def spans(self) -> list[Span]:
        """What a commit now would say has landed."""
        self.hand_on()
        return self.accumulator.take()


def parts(
    number: int, value: bytes, count: int, compression: Compression = Compression.NONE, **record: Any
) -> list[bytes]:
    packed = len(compress(compression, value))
    found = encode_chunks(
        Record(value=value, **record),
        chunk_bytes=-(-packed // count),
        producer_name="p",
        sequence_id=number,
        publish_time=TIME,
        compression=compression,
    )
    assert len(found) == count
    return [each.body for each in found]


def plain(value: bytes) -> bytes:
    return encode_single_entry(Record(value=value), producer_name="q", sequence_id=1, publish_time=TIME).body


def sealed(body: bytes, iv: int = 0, *keys: Any, change: Any = None) -> bytes:
    metadata, payload = split_payload(body)
    encryptor = Encryptor({each.name: each.public for each in keys or (ALICE,)}, DATA_KEY)
    stored = encryptor.encrypt(metadata, bytes(payload), iv.to_bytes(12, "big"))
    if change is not None:
        stored = change(metadata, stored) or stored
    return encode_payload(metadata, stored)


def values(desk: Desk) -> list[bytes]:
    return [row["value"] for row in desk.rows()]


# --- chunked


@pytest.mark.parametrize("compression", list(Compression))
def test_a_chunked_message_is_one_row_with_the_place_of_its_last_part(compression: Compression) -> None:
    value = b"abc" * 200 + random.Random(1).randbytes(300)
    record: dict[str, Any] = {
        "key": "a2V5",
        "key_is_base64": True,
        "properties": [("a", "b")],
        "event_time": 7,
        "ordering_key": b"o",
    }
    whole = encode_single_entry(Record(value=value, **record), producer_name="p", sequence_id=4, publish_time=TIME)
    desk = Desk().give(*parts(4, value, 3, compression, **record))
    assert desk.rows() == oracle(message_frame(whole.body, entry=2, ledger=12))
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 1)]
    assert desk.slots.debited(CONSUMER) == 3
    assert (desk.pool.charged, len(desk.assembly), desk.events) == (0, 0, [])


def test_a_null_or_empty_chunked_value() -> None:
    bodies = parts(1, b"xy", 2)
    for place, body in enumerate(bodies):
        bodies[place] = resealed(body, lambda m: setattr(m, "null_value", True))
    (row,) = Desk().give(*bodies).rows()
    assert row["value"] is None


def test_interleaved_messages_and_what_stands_between_them() -> None:
    one, two = parts(1, b"1" * 90, 3), parts(2, b"2" * 80, 2)
    desk = Desk().give(one[0], plain(b"a"), two[0], one[1])
    # A commit now leaves out what is held, and says so.
    assert (
        desk.spans()
        == [
            Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0, None, None),
            Span(LOG, Position(12, 0), Position(12, 1), 1, None, PULSAR_EARLIEST),
        ][1:]
    )
    assert desk.slots.staged_position(CONSUMER) == Position(12, 3)
    desk.give(two[1])
    assert desk.spans() == [
        Span(LOG, Position(12, 1), Position(12, 2), 0),
        Span(LOG, Position(12, 3), Position(12, 4), 1, None, Position(12, 1)),
    ]
    desk.give(plain(b"b"), one[2])
    assert desk.spans() == [
        Span(LOG, PULSAR_EARLIEST, Position(12, 0), 0),
        Span(LOG, Position(12, 2), Position(12, 3), 0),
        Span(LOG, Position(12, 4), Position(12, 6), 2),
    ]
    assert values(desk) == [b"a", b"2" * 80, b"b", b"1" * 90]


def test_parts_that_are_whole_before_a_commit_leave_no_trace() -> None:
    one, two = parts(1, b"1" * 90, 3), parts(2, b"2" * 80, 2)
    desk = Desk().give(one[0], plain(b"a"), two[0], one[1], one[2], plain(b"b"), two[1])
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 6), 4)]


def test_shared_parts_come_in_any_order() -> None:
    bodies = parts(1, b"0123456789", 4)
    for seed in range(8):
        desk = Desk(ordered=False)
        order = random.Random(seed).sample(range(4), 4)
        for place in order:
            desk.entry = place
            desk.give(bodies[place])
        (row,) = desk.rows()
        assert (row["value"], row["offset"]) == (b"0123456789", 3)
        assert sum(span.rows for span in desk.spans()) == 1
        assert {entry for _, first, last, _ in desk.slots.entry_runs(CONSUMER) for entry in range(first, last + 1)} == {
            0,
            1,
            2,
            3,
        }
        assert desk.letters() == {} and desk.pool.charged == 0


def test_a_row_that_fills_the_chunk_takes_its_parts_along() -> None:
    big = b"x" * (3 << 20)
    desk = Desk()
    desk.give(plain(b"y" * (2 << 20)))
    desk.give(*parts(1, big, 2))
    # The first chunk was handed on before; row and parts are in the second one together.
    assert [span.end for span in desk.seen.spans] == [Position(12, 0)]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 2)]
    assert values(desk) == [b"y" * (2 << 20), big]


def test_parts_that_come_twice_are_covered_and_not_used() -> None:
    one = parts(1, b"123456789", 3)
    desk = Desk().give(one[0], one[1], one[1], plain(b"-"), one[2], plain(b"+"))
    assert values(desk) == [b"-", b"123456789", b"+"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 5), 3)]
    assert desk.letters() == {} and desk.events == [] and desk.pool.charged == 0


def test_a_message_begun_anew_replaces_what_was_sent_of_it() -> None:
    old, new = parts(1, b"ooooooooo", 3), parts(1, b"nnnnnn", 2)
    desk = Desk().give(old[0], old[1], new[0], new[1])
    assert values(desk) == [b"nnnnnn"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 3), 1)]
    assert desk.letters() == {} and desk.pool.charged == 0
    # The same message, sent again after a reconnect.
    desk = Desk().give(old[0], old[1], *old)
    assert values(desk) == [b"ooooooooo"]
    # What begins anew and makes no sense either puts nothing but itself aside.
    desk = Desk().give(old[0], resealed(new[0], lambda m: setattr(m, "total_chunk_msg_size", 1)))
    assert desk.letters() == {1: "Chunked: parts hold more than the 1 bytes that were announced"}
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 1), 0)]


def test_missing_parts_read_in_order() -> None:
    one = parts(1, b"123456789", 3)
    desk = Desk().give(one[1], plain(b"-"))
    assert desk.letters() == {0: "Chunked: part 2 of 3, but the parts before it did not come"}
    desk = Desk().give(one[0], one[2], plain(b"-"))
    assert desk.letters() == dict.fromkeys((0, 1), "Chunked: part 3 of 3 came behind part 1")
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 1)]
    assert [event.diverted for event in desk.events] == [True, True]
    # A dead letter is the entry as it came.
    assert desk.seen.diverted[0].payload == one[0]


def wrong(name: str, value: Any, place: int = 1) -> list[bytes]:
    bodies = parts(1, b"123456789", 3)
    bodies[place] = resealed(bodies[place], lambda m: setattr(m, name, value))
    return bodies


@pytest.mark.parametrize(
    ("bodies", "letters", "why"),
    [
        (wrong("num_chunks_from_msg", 4), {0, 1, 2}, "differ in what they announce"),
        (wrong("total_chunk_msg_size", 10), {0, 1, 2}, "differ in what they announce"),
        (wrong("num_chunks_from_msg", 1_000_000, 0), {0, 1, 2}, "differ in what they announce"),
        (wrong("chunk_id", 7), {1}, "part 8 of 3"),
        (wrong("chunk_id", -1), {1}, "part 0 of 3"),
        (wrong("num_messages_in_batch", 1), {1}, "a batch"),
        (wrong("total_chunk_msg_size", MOST_MESSAGE_BYTES + 1), {1}, "the limit is"),
        (wrong("total_chunk_msg_size", -1), {1}, "-1 bytes"),
        ([resealed(body, lambda m: m.ClearField("uuid")) for body in parts(1, b"ab", 2)], {0, 1}, "without uuid"),
        ([resealed(body, lambda m: m.ClearField("chunk_id")) for body in parts(1, b"ab", 2)], {0, 1}, "chunk_id"),
        (
            [resealed(body, lambda m: setattr(m, "total_chunk_msg_size", 8)) for body in parts(1, b"123456789", 3)],
            {0, 1, 2},
            "more than the 8 bytes",
        ),
        (
            [resealed(body, lambda m: setattr(m, "total_chunk_msg_size", 10)) for body in parts(1, b"123456789", 3)],
            {0, 1, 2},
            "hold 9 bytes, 10 were announced",
        ),
        (
            [
                resealed(body, lambda m: setattr(m, "uncompressed_size", 1 << 30))
                for body in parts(1, b"1" * 900, 3, Compression.ZSTD)
            ],
            {0, 1, 2},
            "UncompressedSizeCorruption",
        ),
    ],
)
def test_parts_that_do_not_fit_are_put_aside(bodies: list[bytes], letters: set[int], why: str) -> None:
    desk = Desk().give(*bodies, plain(b"-"))
    found = desk.letters()
    assert letters <= set(found) and any(why in reason for reason in found.values()), found
    desk.assembly.forget()
    assert values(desk) == [b"-"]
    assert desk.pool.charged == 0
    assert desk.pool.peak < 8 << 20  # the columns of the row between them


def test_a_million_announced_parts_cost_what_has_come() -> None:
    huge = resealed(parts(1, b"ab", 2)[0], lambda m: setattr(m, "num_chunks_from_msg", 1_000_000))
    desk = Desk().give(resealed(huge, lambda m: setattr(m, "total_chunk_msg_size", MOST_MESSAGE_BYTES)))
    assert len(desk.assembly) == 1
    assert desk.pool.charged < 2000 and desk.pool.peak < 1 << 18


def test_too_many_open_messages_let_the_oldest_go() -> None:
    desk = Desk(most_open=3)
    for number in range(5):
        desk.give(parts(number, b"12", 2)[0])
    assert desk.letters() == dict.fromkeys((0, 1), "Chunked: more than 3 chunked messages are incomplete")
    for number in range(5):
        desk.give(parts(number, b"12", 2)[1])
    assert len(values(desk)) == 3
    assert len(desk.letters()) == 4 and desk.pool.charged == 0


def test_open_messages_take_up_half_of_the_budget() -> None:
    desk = Desk(memory=1 << 20)
    first = parts(1, b"1" * 400_000, 2)
    desk.give(first[0])
    charged = desk.pool.charged
    assert 200_000 < charged < 210_000
    desk.give(parts(2, b"2" * 400_000, 2)[0], parts(3, b"3" * 400_000, 2)[0])
    assert list(desk.letters()) == [0] and "take up more than 524288 bytes" in desk.letters()[0]
    # One that alone is more than that goes too.
    desk.give(*parts(4, b"4" * 1_200_000, 2))
    assert set(desk.letters()) == {0, 1, 2, 3, 4}
    assert values(desk) == [] and desk.pool.charged == 0


def test_time_passes_only_while_something_could_come() -> None:
    desk = Desk().give(parts(1, b"12", 2)[0])
    for _ in range(59):
        assert desk.assembly.expired([CONSUMER], 1.0) == []
    for _ in range(100):
        assert desk.assembly.expired([CONSUMER + 1], 1.0) == []
    (torn,) = desk.assembly.expired([CONSUMER], 1.0)
    assert torn.detail == "1 of 2 parts did not come within 60 s"
    desk.events += desk.completion.give_up([torn], desk.scanner)
    assert desk.letters() == {0: f"Chunked: {torn.detail}"}
    # Each new part is a sign of life.
    one = parts(2, b"123", 3)
    desk.give(one[0])
    desk.assembly.expired([CONSUMER], 59.0)
    desk.give(one[1])
    assert desk.assembly.expired([CONSUMER], 59.0) == []
    desk.give(one[2])
    assert values(desk) == [b"123"]


def test_what_others_have_landed_is_forgotten() -> None:
    one = parts(1, b"123", 3)
    desk = Desk().give(one[0], plain(b"-"), one[1])
    assert desk.assembly.landed(CONSUMER, lambda at: at > Position(12, 5)) == []
    assert desk.assembly.landed(CONSUMER + 1, lambda at: True) == []
    (torn,) = desk.assembly.landed(CONSUMER, lambda at: at == Position(12, 0))
    assert torn.entry.position == Position(12, 2)
    assert desk.pool.charged == 0


def test_without_diverting_the_first_fault_is_told_and_nothing_is_landed() -> None:
    one = parts(1, b"123", 3)
    desk = Desk(divert=False).give(one[0], one[2])
    assert [(event.entry.entry, event.diverted) for event in desk.events] == [(0, False), (1, False)]
    assert desk.spans() == [] and desk.letters() == {}


# --- encrypted


def entries_of_all_kinds() -> Iterable[tuple[str, bytes, dict[str, Any]]]:
    for codec in Compression:
        common: dict[str, Any] = {"producer_name": "p", "publish_time": TIME, "compression": codec, "metadata": OUTER}
        yield f"batch {codec.name}", encode_batch_entry(RICH, sequence_id=3, **common).body, {}
        yield f"single {codec.name}", encode_single_entry(RICH[0], sequence_id=3, **common).body, {}
        yield f"null {codec.name}", encode_single_entry(RICH[1], sequence_id=3, **common).body, {}
    acked = {"ack_set": words({0, 1, 4})}
    common = {"producer_name": "p", "publish_time": TIME}
    yield "ack set", encode_batch_entry(RICH, sequence_id=3, **common).body, acked


@pytest.mark.parametrize(("body", "frame"), [pytest.param(b, f, id=name) for name, b, f in entries_of_all_kinds()])
def test_a_decrypted_entry_is_what_it_was_before(body: bytes, frame: dict[str, Any]) -> None:
    clear, desk = Desk().give(body, **frame), Desk().give(sealed(body, 1, BOB, ALICE), **frame)
    assert desk.rows() == clear.rows() and len(desk.rows()) > 0
    assert desk.spans() == clear.spans()
    assert desk.slots.debited(CONSUMER) == clear.slots.debited(CONSUMER)


def test_each_part_of_a_chunked_message_is_encrypted_by_itself() -> None:
    value = b"secret" * 100
    bodies = [sealed(body, place) for place, body in enumerate(parts(1, value, 4, Compression.LZ4))]
    desk = Desk().give(*bodies)
    assert values(desk) == [value] and desk.pool.charged == 0


def test_fail_stops_before_the_entry() -> None:
    desk = Desk(keys={"bob": BOB.private}).give(plain(b"-"), sealed(plain(b"x")))
    (event,) = desk.events
    assert not event.diverted
    assert event.entry.reason == "DecryptionError"
    assert event.entry.detail == "it is encrypted for alice, of which no private key is given"
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 0), 1)]
    assert desk.letters() == {}


def test_discard_lands_the_position_alone() -> None:
    desk = Desk(keys={}, on_failure="discard").give(plain(b"-"), sealed(plain(b"x")), plain(b"+"))
    assert values(desk) == [b"-", b"+"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 2)]
    assert desk.completion.discarded == 1
    assert desk.events == [] and desk.letters() == {}


def test_consume_keeps_the_ciphertext_with_all_it_takes_to_open_it() -> None:
    batch = encode_batch_entry(
        RICH, producer_name="p", sequence_id=3, publish_time=TIME, compression=Compression.ZSTD
    ).body
    desk = Desk(keys={}, on_failure="consume").give(sealed(batch, 9), ack_set=words({2}))
    (row,) = desk.rows()
    assert (row["batchIndex"], row["sequenceId"], row["producer"], row["offset"]) == (-1, 3, "p", 0)
    headers = {name: value.decode() for name, value in row["headers"]}
    assert sorted(headers) == [
        "pulsar.batch.size",
        "pulsar.compression",
        "pulsar.encryption.key.alice",
        "pulsar.encryption.param",
        "pulsar.uncompressed.size",
    ]
    metadata, payload = split_payload(batch)
    again = pb.MessageMetadata(encryption_param=base64.b64decode(headers["pulsar.encryption.param"]))
    again.encryption_keys.add(key="alice", value=base64.b64decode(headers["pulsar.encryption.key.alice"]))
    assert Decryptor({"alice": ALICE.private}).decrypt(again, row["value"]) == bytes(payload)
    assert headers["pulsar.compression"] == "ZSTD"
    assert headers["pulsar.uncompressed.size"] == str(metadata.uncompressed_size)
    assert headers["pulsar.batch.size"] == "5"
    assert desk.slots.debited(CONSUMER) == 1  # what its ack_set leaves


def test_consumed_parts_stay_parts() -> None:
    bodies = [sealed(body, place) for place, body in enumerate(parts(1, b"secret", 2, properties=[("a", "b")]))]
    desk = Desk(keys={}, on_failure="consume").give(*bodies)
    rows = desk.rows()
    assert [row["offset"] for row in rows] == [0, 1] and desk.pool.charged == 0
    headers = dict(rows[1]["headers"])
    assert headers["a"] == b"b"
    found = {name: headers[f"pulsar.chunk.{name}"] for name in ("uuid", "id", "count", "total.size")}
    assert found == {"uuid": b"p-1", "id": b"1", "count": b"2", "total.size": b"6"}


def flip(metadata: pb.MessageMetadata, stored: bytes) -> bytes:
    return stored[:-1] + bytes((stored[-1] ^ 1,))


@pytest.mark.parametrize(
    "change",
    [
        flip,
        lambda metadata, stored: b"short",
        lambda metadata, stored: setattr(metadata, "encryption_param", b"x" * 11),
        lambda metadata, stored: setattr(metadata, "encryption_param", b"x" * 12),
        lambda metadata, stored: setattr(metadata.encryption_keys[0], "value", b"v"),
    ],
)
def test_a_damaged_encrypted_entry_follows_the_policy_too(change: Any) -> None:
    desk = Desk(on_failure="discard").give(sealed(plain(b"x"), 1, change=change))
    assert desk.rows() == [] and desk.completion.discarded == 1


def test_what_is_damaged_inside_becomes_a_dead_letter() -> None:
    bad = encode_batch_entry(RICH, producer_name="p", sequence_id=3, publish_time=TIME).body
    desk = Desk().give(sealed(resealed(bad, lambda m: setattr(m, "num_messages_in_batch", 9))))
    (reason,) = desk.letters().values()
    assert reason.startswith("BatchDeSerializeError")
    assert desk.rows() == []


# --- compacted


def compacted(
    kept: list[int], codec: Compression = Compression.NONE, listed: list[int] | None = None, count: int = 5
) -> bytes:
    """A batch of five of which a broker has kept some and listed them."""
    records = [Record(value=b"v%d" % index, key=f"k{index}", sequence_id=70 + index) for index in range(5)]
    block = encode_batch([records[index] for index in kept])
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=70,
        publish_time=TIME,
        num_messages_in_batch=count,
        uncompressed_size=len(block),
        compacted_batch_indexes=kept if listed is None else listed,
    )
    if codec:
        metadata.MergeFrom(pb.MessageMetadata(compression=pb.CompressionType.Value(codec.name)))  # type: ignore[arg-type]
    return encode_payload(metadata, compress(codec, block))


@pytest.mark.parametrize("codec", list(Compression))
def test_what_compaction_has_left_keeps_its_index(codec: Compression) -> None:
    desk = Desk().give(compacted([1, 4], codec))
    assert [(row["batchIndex"], row["key"], row["value"], row["sequenceId"]) for row in desk.rows()] == [
        (1, b"k1", b"v1", 71),
        (4, b"k4", b"v4", 74),
    ]
    assert desk.slots.debited(CONSUMER) == 5  # the broker counts what is gone
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 0), 2)]


def test_compaction_and_an_ack_set() -> None:
    desk = Desk().give(compacted([1, 2, 4]), ack_set=words({2, 3, 4}))
    assert [row["batchIndex"] for row in desk.rows()] == [2, 4]
    assert desk.slots.debited(CONSUMER) == 3


def test_a_list_beside_a_whole_batch_means_nothing() -> None:
    desk = Desk().give(compacted([0, 1, 2, 3, 4], listed=[1, 4]))
    assert [row["batchIndex"] for row in desk.rows()] == [0, 1, 2, 3, 4]
    single = resealed(plain(b"x"), lambda m: m.compacted_batch_indexes.append(0))
    assert values(Desk().give(single)) == [b"x"]


@pytest.mark.parametrize(
    ("kept", "listed"), [([1, 4], [1]), ([1, 4], [4, 1]), ([1, 4], [1, 1]), ([1, 4], [1, 5]), ([1, 4], [-1, 4])]
)
def test_a_list_that_cannot_be_is_put_aside(kept: list[int], listed: list[int]) -> None:
    desk = Desk().give(compacted(kept, listed=listed))
    (reason,) = desk.letters().values()
    assert reason == f"BatchDeSerializeError: 2 messages, {len(listed)} are listed as left of 5"
    assert desk.rows() == []


# --- any damage


def sound_bodies() -> list[bytes]:
    bodies = [sealed(body, place) for place, (_, body, _) in enumerate(entries_of_all_kinds())]
    bodies += parts(1, b"one" * 30, 3) + parts(2, b"two" * 30, 2, Compression.LZ4)
    bodies += [sealed(body, place) for place, body in enumerate(parts(3, b"three" * 30, 3))]
    return [*bodies, compacted([1, 4]), compacted([0, 2, 3], Compression.ZSTD)]


@pytest.mark.parametrize("ordered", [True, False])
def test_every_truncation_is_a_row_or_a_dead_letter(ordered: bool) -> None:
    """The frame is whole and its checksum good, but what it holds ends anywhere."""
    for body in (
        sealed(plain(b"value")),
        *parts(1, b"abcdef", 2),
        compacted([1, 4]),
        compacted([1, 4], Compression.LZ4),
    ):
        metadata, stored = split_payload(body)
        for cut in range(len(stored)):
            desk = Desk(ordered=ordered, on_failure="discard").give(encode_payload(metadata, bytes(stored[:cut])))
            desk.assembly.forget()
            assert desk.rows() == [] or b"chunk" in body, cut
            assert desk.pool.charged == 0
        described = metadata.SerializeToString()
        for cut in range(len(described)):
            broken = (cut).to_bytes(4, "big") + described[:cut] + bytes(stored)
            desk = Desk(ordered=ordered, on_failure="discard").give(broken)
            desk.assembly.forget()
            desk.hand_on()
            assert desk.pool.charged == 0


def test_mutated_entries_never_break_the_accounts() -> None:
    bodies, chance = sound_bodies(), random.Random(5)
    for _ in range(30):
        desk = Desk(ordered=chance.random() < 0.5, on_failure=chance.choice(["discard", "consume"]), memory=1 << 22)
        for _ in range(60):
            metadata, stored = split_payload(chance.choice(bodies))
            payload = bytearray(stored)
            if chance.random() < 0.4 and payload:
                payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
            described = bytearray(metadata.SerializeToString())
            if chance.random() < 0.4:
                described[chance.randrange(len(described))] ^= 1 << chance.randrange(8)
            desk.give(len(described).to_bytes(4, "big") + bytes(described) + bytes(payload))
        covered = {position for span in desk.spans() for position in range(span.start.b + 1, span.end.b + 1)}
        held = {entry.entry for message in desk.assembly._open.values() for entry in message.entries()}
        # Each entry is landed, put aside, or held, and never two of them.
        assert not covered & held
        assert covered | held == set(range(60)), desk.events
        assert sum(span.rows for span in desk.seen.spans) == len(desk.seen.rows)
        desk.assembly.forget()
        assert desk.pool.charged == 0
