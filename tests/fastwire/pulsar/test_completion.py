"""Entries that the hot loop leaves to others, from bytes to rows: compacted ones, and any of them damaged."""

import random

import pytest

from fastwire.position import Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record, compress, encode_batch, encode_payload, split_payload
from fastwire.pulsar.position import PULSAR_EARLIEST
from tests.support.pulsar.completion_desk import TIME, Desk, entries_of_all_kinds, parts, plain, sealed, values
from tests.support.pulsar.frames import CONSUMER, LOG, resealed, words

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
    (reason,) = desk.dead_letters().values()
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
