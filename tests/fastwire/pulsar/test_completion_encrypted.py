"""Encrypted entries, from bytes to rows, and what becomes of those that cannot be opened."""

import base64
from typing import Any

import pytest

from fastwire.position import Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, encode_batch_entry, split_payload
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.reading.encryption import Decryptor
from tests.support.pulsar.completion_desk import (
    ALICE,
    BOB,
    RICH,
    TIME,
    Desk,
    entries_of_all_kinds,
    parts,
    plain,
    sealed,
    values,
)
from tests.support.pulsar.frames import CONSUMER, LOG, resealed, words


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
    assert not event.is_dead_letter
    assert event.entry.reason == "DecryptionError"
    assert event.entry.detail == "it is encrypted for alice, of which no private key is given"
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 0), 1)]
    assert desk.dead_letters() == {}


def test_discard_lands_the_position_alone() -> None:
    desk = Desk(keys={}, on_failure="discard").give(plain(b"-"), sealed(plain(b"x")), plain(b"+"))
    assert values(desk) == [b"-", b"+"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 2)]
    assert desk.completion.discarded == 1
    assert desk.events == [] and desk.dead_letters() == {}


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
    (reason,) = desk.dead_letters().values()
    assert reason.startswith("BatchDeSerializeError")
    assert desk.rows() == []
