"""Permits that the broker debits for a frame, whatever becomes of that frame (spec: pulsar 13)."""

from typing import Any

import pytest

from fastwire.position import Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry, encode_chunks, encode_single_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.reason import Reason
from fastwire.wire.pool import Pool
from tests.support import golden
from tests.support.pulsar.frames import CONSUMER, LOG, Seen, feed, message_frame, resealed, scanner, words

TIME = 1_700_000_000_000


def body(records: list[Record], metadata: pb.MessageMetadata | None = None) -> bytes:
    return encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=TIME, metadata=metadata).body


def of(count: int) -> bytes:
    return body([Record(value=b"%d" % place) for place in range(count)])


def packed(count: int) -> bytes:
    return encode_batch_entry(
        [Record(value=b"a")] * count, producer_name="p", sequence_id=0, publish_time=TIME, compression=Compression.LZ4
    ).body


def single(value: bytes | None = b"x", metadata: pb.MessageMetadata | None = None) -> bytes:
    return encode_single_entry(
        Record(value=value), producer_name="p", sequence_id=0, publish_time=TIME, metadata=metadata
    ).body


def cost(frame: bytes, *, ordered: bool = True) -> tuple[int, Seen, Scanner, SlotTable]:
    """Return the permits that one frame costs a fresh consumer."""
    to, slots = scanner(ordered=ordered)
    seen = feed(to, frame)
    return slots.debited(CONSUMER), seen, to, slots


def test_a_message_without_a_batch_costs_one() -> None:
    assert cost(message_frame(single()))[0] == 1


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
def test_a_batch_costs_its_messages(count: int) -> None:
    assert cost(message_frame(of(count)))[0] == count


def test_an_empty_batch_costs_nothing() -> None:
    debited, seen, _, _ = cost(message_frame(of(0)))
    assert (debited, seen.rows, seen.dead_letters) == (0, [], [])
    assert seen.spans == [Span(LOG, Position(-1, -1), Position(12, 0), 0)]


@pytest.mark.parametrize(
    ("count", "left"),
    [
        (3, {0, 2}),
        (3, {0, 1, 2}),
        (3, {2}),
        (64, {63}),
        (64, set(range(64))),
        (65, {64}),
        (130, {0, 64, 129}),
        (200, {5}),  # trailing words are cut
    ],
)
def test_ack_set_bits_are_what_costs_and_what_comes(count: int, left: set[int]) -> None:
    debited, seen, _, _ = cost(message_frame(of(count), ack_set=words(left)))
    assert debited == len(left)
    assert [row["batchIndex"] for row in seen.rows] == sorted(left)
    assert [row["value"] for row in seen.rows] == [b"%d" % place for place in sorted(left)]


def test_bits_beyond_the_batch_do_not_count() -> None:
    debited, seen, _, _ = cost(message_frame(of(3), ack_set=[-1, -1]))
    assert (debited, len(seen.rows)) == (3, 3)


def test_an_ack_set_without_bits_costs_nothing_and_gives_nothing() -> None:
    debited, seen, _, _ = cost(message_frame(of(3), ack_set=[0]))
    assert (debited, seen.rows, seen.spans[0].rows) == (0, [], 0)


@pytest.mark.parametrize(("ack_set", "rows"), [([1], 1), ([0], 0), ([2], 0), ([-1], 1)])
def test_an_ack_set_on_a_single_message(ack_set: list[int], rows: int) -> None:
    debited, seen, _, _ = cost(message_frame(single(), ack_set=ack_set))
    assert (debited, len(seen.rows)) == (rows, rows)


def test_a_packed_ack_set() -> None:
    frame = message_frame(of(130), ack_set=words({1, 64, 129}))
    size = int.from_bytes(frame[4:8], "big")
    message = pb.BaseCommand.FromString(frame[8 : 8 + size]).message
    packed = b"".join(b"%c" % word if word < 128 else b"" for word in message.ack_set)
    del message.ack_set[:]
    raw = message.SerializeToString() + b"\x22" + bytes([len(packed)]) + packed
    command = b"\x08\x09\x4a" + bytes([len(raw)]) + raw
    rest = len(command).to_bytes(4, "big") + command + frame[8 + size :]
    debited, seen, _, _ = cost(len(rest).to_bytes(4, "big") + rest)
    assert debited == 3
    assert [row["batchIndex"] for row in seen.rows] == [1, 64, 129]


def test_compacted_out_elements_cost_but_do_not_come() -> None:
    records = [Record(value=b"a"), Record(value=b"", compacted_out=True), Record(value=b"c")]
    debited, seen, _, _ = cost(message_frame(body(records)))
    assert debited == 3
    assert [(row["batchIndex"], row["value"]) for row in seen.rows] == [(0, b"a"), (2, b"c")]
    debited, seen, _, _ = cost(message_frame(body(records), ack_set=words({1, 2})))
    assert debited == 2
    assert [row["batchIndex"] for row in seen.rows] == [2]


@pytest.mark.parametrize("ordered", [True, False])
def test_entries_that_come_again_cost_again(ordered: bool) -> None:
    to, slots = scanner(ordered=ordered)
    frame = message_frame(of(5), entry=4)
    assert len(feed(to, frame).rows) == 5
    assert feed(to, frame).rows == []  # staged
    assert slots.debited(CONSUMER) == 10
    slots.set_landed(CONSUMER, Position(12, 4))
    assert feed(to, frame).rows == []  # landed
    assert slots.debited(CONSUMER) == 15
    assert (to.staged_again, to.landed_again) == (1, 1)
    # Its batch was acknowledged in part meanwhile: fewer were debited.
    feed(to, message_frame(of(5), entry=4, ack_set=words({0, 3})))
    assert slots.debited(CONSUMER) == 17


def test_an_older_epoch_costs_but_does_not_come() -> None:
    to, slots = scanner()
    slots.attach(CONSUMER, 1, epoch=3)
    frames = [message_frame(of(2), entry=entry, epoch=epoch) for entry, epoch in enumerate([2, 3, 4, None])]
    seen = feed(to, b"".join(frames))
    assert sorted({row["offset"] for row in seen.rows}) == [1, 2, 3]
    assert slots.debited(CONSUMER) == 8
    assert to.dropped_frames == 1


def test_an_epoch_counts_where_one_was_given() -> None:
    """The daemon's shared consumers have none; those of the client for people have, whatever their type."""
    to, slots = scanner(ordered=False)
    slots.attach(CONSUMER, 1, epoch=3)
    assert feed(to, message_frame(of(2), epoch=2)).rows == []
    to, slots = scanner(ordered=False)
    slots.attach(CONSUMER, 1)
    assert len(feed(to, message_frame(of(2), epoch=2)).rows) == 2


def test_attach_starts_the_count_again() -> None:
    to, slots = scanner()
    feed(to, message_frame(of(5)))
    slots.attach(CONSUMER, 1)
    assert slots.debited(CONSUMER) == 0
    feed(to, message_frame(of(2), entry=1))
    assert slots.debited(CONSUMER) == 2


@pytest.mark.parametrize("ordered", [True, False])
def test_a_marker_costs_and_is_covered_but_is_no_row(ordered: bool) -> None:
    debited, seen, _, _ = cost(message_frame(single(metadata=pb.MessageMetadata(marker_type=21))), ordered=ordered)
    assert (debited, seen.rows) == (1, [])
    assert [(span.end, span.rows) for span in seen.spans] == [(Position(12, 0), 0)]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (pb.MessageMetadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")]), "Encrypted"),
        (pb.MessageMetadata(compacted_batch_indexes=[0]), "CompactedIndexes"),
    ],
)
def test_entries_for_somebody_else_cost_and_wait(metadata: pb.MessageMetadata, reason: str) -> None:
    debited, seen, to, slots = cost(message_frame(body([Record(value=b"a")] * 3, metadata)))
    assert (debited, seen.rows, seen.spans, seen.dead_letters) == (3, [], [], [])
    (cold,) = seen.cold
    assert (cold.reason, cold.permits) == (reason, 3)
    # Until it is a dead letter it is not covered.
    to.keep_dead_letter(cold)
    late = feed(to, b"")
    assert [(letter.position, letter.rows) for letter in late.dead_letters] == [(Position(12, 0), 3)]
    assert [span.end for span in late.spans] == [Position(12, 0)]
    assert slots.debited(CONSUMER) == 3


def test_each_chunk_costs_one() -> None:
    entries = encode_chunks(Record(value=b"abcdef"), chunk_bytes=2, producer_name="p", sequence_id=0, publish_time=TIME)
    to, slots = scanner()
    seen = feed(to, b"".join(message_frame(entry.body, entry=place) for place, entry in enumerate(entries)))
    assert [(cold.reason, cold.detail, cold.entry) for cold in seen.cold] == [
        ("Chunked", "one of 3 parts", place) for place in range(3)
    ]
    assert slots.debited(CONSUMER) == 3


def test_a_message_in_one_chunk_is_a_message() -> None:
    (entry,) = encode_chunks(Record(value=b"abc"), chunk_bytes=9, producer_name="p", sequence_id=0, publish_time=TIME)
    assert [row["value"] for row in cost(message_frame(entry.body))[1].rows] == [b"abc"]


# --- damaged entries (13.4)


def damage(payload: bytes) -> bytes:
    return payload[:-1] + bytes([payload[-1] ^ 0xFF])


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 1), ({"ack_set": words({0, 1, 2, 70})}, 4), ({"permits": 9}, 9), ({"permits": 0}, 1)],
)
def test_a_checksum_failure_costs_what_the_command_says(options: dict[str, object], expected: int) -> None:
    debited, seen, _, _ = cost(message_frame(damage(of(5)), **options))  # type: ignore[arg-type]
    assert debited == expected
    assert [letter.reason.partition(":")[0] for letter in seen.dead_letters] == ["ChecksumMismatch"]
    assert [letter.rows for letter in seen.dead_letters] == [expected]


def test_a_sound_batch_that_cannot_be_decoded_costs_its_messages() -> None:
    # A claim of one byte more, under a good checksum.
    debited, seen, _, _ = cost(message_frame(resealed(packed(7), lambda m: setattr(m, "uncompressed_size", 99))))
    assert debited == 7
    assert [letter.rows for letter in seen.dead_letters] == [7]


def overlong(entry: bytes) -> bytes:
    """The metadata's size reaches beyond the frame; there is no checksum to tell."""
    return b"\x7f" + entry[7:]


KINDS = {
    Reason.CHECKSUM: (damage(of(5)), True),
    Reason.METADATA: (overlong(of(5)), True),
    Reason.SIZE: (resealed(packed(7), lambda m: setattr(m, "uncompressed_size", 1 << 31)), False),
    Reason.DECOMPRESSION: (resealed(packed(7), lambda m: setattr(m, "uncompressed_size", 99)), False),
    Reason.BATCH: (resealed(of(5), lambda m: setattr(m, "num_messages_in_batch", 6)), False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_damage_says_whether_permits_were_counted(kind: Reason) -> None:
    entry, uncounted = KINDS[kind]
    _, seen, _, slots = cost(message_frame(entry))
    assert [letter.damage for letter in seen.dead_letters] == [kind]
    assert slots.uncounted(CONSUMER) == uncounted


@pytest.mark.parametrize("more", [{"permits": 5}, {"ack_set": words({0, 1})}], ids=["stated", "ack set"])
def test_the_command_counts_the_permits_of_a_damaged_entry(more: dict[str, Any]) -> None:
    _, seen, _, slots = cost(message_frame(damage(of(5)), **more))
    assert len(seen.dead_letters) == 1
    assert not slots.uncounted(CONSUMER)


@pytest.mark.parametrize("known", ["new", "landed", "older epoch"])
def test_permits_of_a_damaged_or_too_large_entry_are_uncounted_whatever_becomes_of_it(known: str) -> None:
    too_large = of(5) + bytes(1 << 20)
    for entry, budget in ((damage(of(5)), 1 << 26), (too_large, 1 << 20)):
        to, slots = scanner(pool=Pool(budget))
        if known == "landed":
            slots.set_landed(CONSUMER, Position(12, 5))
        slots.attach(CONSUMER, 1, epoch=1)
        feed(to, message_frame(entry, entry=5, epoch=0 if known == "older epoch" else 1))
        assert (slots.debited(CONSUMER), slots.uncounted(CONSUMER)) == (1, True)
        slots.attach(CONSUMER, 1)
        assert not slots.uncounted(CONSUMER)


def test_a_damaged_entry_that_has_landed_is_deduplicated_and_no_dead_letter() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(12, 5))
    seen = feed(to, message_frame(damage(of(5)), entry=5))
    assert (seen.rows, seen.dead_letters) == ([], [])
    assert slots.take_landed_again(CONSUMER) == [(12, 5, 5)]


# --- the proposed message_permits


def test_message_permits_that_agree() -> None:
    assert cost(message_frame(of(5), permits=5))[0] == 5
    assert cost(message_frame(of(5), ack_set=words({1}), permits=1))[0] == 1
    assert cost(message_frame(single(), permits=1))[0] == 1


@pytest.mark.parametrize(("permits", "expected"), [(0, 5), (4, 4), (6, 6), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_the_broker_is_believed_about_what_it_has_debited(permits: int, expected: int) -> None:
    debited, seen, _, slots = cost(message_frame(of(5), permits=permits))
    assert (debited, len(seen.rows), seen.dead_letters) == (expected, 5, [])
    assert slots.uncounted(CONSUMER) == (expected != 5)  # its own count is asked for once it is silent


def test_the_golden_batch_costs_two() -> None:
    assert cost(golden.load("pulsar_e07_message_batch"))[0] == 2
