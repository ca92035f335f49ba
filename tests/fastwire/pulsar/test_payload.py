import zlib

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Compression,
    Entry,
    Record,
    broker_entry_metadata,
    compress,
    encode_batch,
    encode_batch_entry,
    encode_broker_entry_metadata,
    encode_chunks,
    encode_payload,
    encode_send,
    encode_single_entry,
    encode_values,
    split_payload,
)
from fastwire.reason import Reason
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader, ack_bits, ack_words
from tests.support import golden

NOW = 1_700_000_000_000


def inflate(codec: Compression, data: bytes, size: int) -> bytes:
    """Each codec by a way that is not the writing side's."""
    match codec:
        case Compression.LZ4:
            return bytes(lz4.block.decompress(data, uncompressed_size=size)) if size else b""
        case Compression.ZLIB:
            return zlib.decompressobj().decompress(data)
        case Compression.ZSTD:
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.decompress_raw(data))
        case Compression.NONE:
            return data


def elements(block: bytes) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    found, at = [], 0
    while at < len(block):
        size = int.from_bytes(block[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(block[at + 4 : at + 4 + size])
        at += 4 + size + single.payload_size
        found.append((single, block[at - single.payload_size : at]))
    return found


def header(consumer_id: int, position: tuple[int, int], body: bytes, **parts: int | list[int]) -> bytes:
    return MessageHeader(consumer_id, 0).encode(position, len(body), **parts) + body  # type: ignore[arg-type]


def test_the_worked_message() -> None:
    record = Record(value=b"hello", key="k", properties=[("a", "1")])
    entry = encode_single_entry(record, producer_name="p-0", sequence_id=3, publish_time=NOW)
    assert header(7, (12, 34), entry.body) == golden.load("pulsar_e06_message")
    assert (entry.messages, entry.batched, entry.publish_time) == (1, False, NOW)


def test_the_worked_batch() -> None:
    """The same bytes but for the compressed block: two lz4 encoders may choose differently."""
    records = [Record(value=b"one", key="x"), Record(value=None, key="y"), Record(value=b"three")]
    entry = encode_batch_entry(
        records, producer_name="p-1", sequence_id=10, publish_time=NOW + 500, compression=Compression.LZ4
    )
    mine, payload = split_payload(entry.body)
    frame = golden.load("pulsar_e07_message_batch")
    body = frame[8 + 0x12 :]
    wanted, wanted_payload = split_payload(body)
    mine.ClearField("highest_sequence_id")  # official producers write it since 2.6
    assert mine == wanted
    assert inflate(Compression.LZ4, bytes(payload), 40) == inflate(Compression.LZ4, bytes(wanted_payload), 40)
    assert body[:15] == encode_broker_entry_metadata(NOW + 510, 99)
    written = broker_entry_metadata(body)
    assert written is not None
    assert (written.broker_timestamp, written.index) == (NOW + 510, 99)
    assert broker_entry_metadata(body[15:]) is None
    for size in range(2, 15):
        with pytest.raises(CorruptEntryError, match="broker entry metadata"):
            broker_entry_metadata(body[:size])
    assert header(7, (12, 35), body, redelivery_count=1, ack_set=[5]) == frame
    assert entry.messages == 3 and entry.highest_sequence_id == 12


def test_the_worked_send() -> None:
    metadata = pb.MessageMetadata(producer_name="p-2", sequence_id=0, publish_time=NOW + 1000)
    entry = Entry(encode_payload(metadata, b"hi"), 1, 0, 0, NOW + 1000, batched=False)
    assert encode_send(1, entry) == golden.load("pulsar_e12_send")


def test_the_worked_compression() -> None:
    wanted = {
        Compression.LZ4: "806661737477697265",
        Compression.SNAPPY: "081c6661737477697265",
        Compression.ZSTD: "28b52ffd20084100006661737477697265",
        Compression.NONE: "6661737477697265",
    }
    for codec, text in wanted.items():
        assert compress(codec, b"fastwire") == bytes.fromhex(text), codec
    assert compress(Compression.LZ4, b"") == b"\0"  # as the official client stores it
    assert compress(Compression.ZLIB, b"fastwire", open_ended=True) == bytes.fromhex("789c4a4b2c2e29cf2c4a05000000ffff")


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", b"fastwire" * 1000, bytes(range(256))])
def test_each_codec_comes_back(codec: Compression, data: bytes) -> None:
    assert inflate(codec, compress(codec, data), len(data)) == data


def test_an_open_ended_stream_has_no_end() -> None:
    data = b"fastwire" * 100
    reader = zlib.decompressobj()
    assert reader.decompress(compress(Compression.ZLIB, data, open_ended=True)) == data
    assert not reader.eof
    assert compress(Compression.ZLIB, data) == zlib.compress(data)


text = st.text(max_size=8)
records = st.builds(
    Record,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | text,
    key_is_base64=st.booleans(),
    null_key=st.booleans(),
    ordering_key=st.none() | st.binary(max_size=8),
    properties=st.lists(st.tuples(text, text), max_size=3),
    event_time=st.integers(0, 2**63),
    sequence_id=st.none() | st.integers(0, 2**64 - 1),
    compacted_out=st.booleans(),
)


@given(st.lists(records, max_size=5), st.integers(0, 2**60))
def test_what_is_encoded_can_be_read(batch: list[Record], first: int) -> None:
    read = elements(encode_batch(batch, first))
    assert len(read) == len(batch)
    for place, (record, (single, value)) in enumerate(zip(batch, read, strict=True)):
        assert (None if single.null_value else value) == record.value
        assert (single.partition_key if single.HasField("partition_key") else None) == record.key
        assert (single.ordering_key if single.HasField("ordering_key") else None) == record.ordering_key
        assert [(one.key, one.value) for one in single.properties] == list(record.properties)
        assert single.event_time == record.event_time
        assert single.sequence_id == (first + place if record.sequence_id is None else record.sequence_id)
        assert single.partition_key_b64_encoded == record.key_is_base64
        assert (single.null_partition_key, single.compacted_out) == (record.null_key, record.compacted_out)


@given(st.lists(st.binary(max_size=300), max_size=300), st.integers(0, 2**60), st.booleans())
def test_the_fast_way_is_the_same_as_the_plain_one(values: list[bytes], first: int, keyed: bool) -> None:
    keys = [b"key-%d" % (len(value) % 7) for value in values] if keyed else None
    plain = [Record(value=value, key=keys[at].decode() if keys else None) for at, value in enumerate(values)]
    assert encode_values(values, first, keys) == encode_batch(plain, first)


def test_keys_must_be_as_many_as_values() -> None:
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        encode_values([b"a", b"b"], 0, [b"k"])


@given(st.integers(0, 2**200))
def test_ack_sets_are_java_bitsets(bits: int) -> None:
    words = ack_words(bits)
    assert ack_bits(words) == bits
    assert not words or words[-1] != 0
    assert all(-(2**63) <= word < 2**63 for word in words)


def test_chunks_make_the_message_again() -> None:
    record = Record(value=b"0123456789" * 30, key="k")
    chunks = encode_chunks(record, chunk_bytes=128, producer_name="p", sequence_id=9, publish_time=NOW)
    parts = [split_payload(chunk.body) for chunk in chunks]
    assert b"".join(bytes(payload) for _, payload in parts) == record.value
    assert [metadata.chunk_id for metadata, _ in parts] == [0, 1, 2]
    assert {(one.uuid, one.num_chunks_from_msg, one.total_chunk_msg_size) for one, _ in parts} == {("p-9", 3, 300)}
    assert all(chunk.chunk and chunk.messages == 1 and chunk.sequence_id == 9 for chunk in chunks)
    send = pb.BaseCommand.FromString(encode_send(1, chunks[0])[8 : -len(chunks[0].body)])
    assert send.send.is_chunk


def test_metadata_of_the_caller_stays() -> None:
    outer = pb.MessageMetadata(schema_version=b"\0" * 7 + b"\1", partition_key="outer", producer_name="replaced")
    entry = encode_batch_entry([Record(value=b"v")], producer_name="p", sequence_id=1, publish_time=2, metadata=outer)
    metadata, _ = split_payload(entry.body)
    assert (metadata.partition_key, metadata.producer_name) == ("outer", "p")
    assert metadata.HasField("num_messages_in_batch") and not metadata.HasField("highest_sequence_id")
    assert outer.producer_name == "replaced"


def test_an_entry_without_a_checksum() -> None:
    entry = encode_single_entry(Record(value=b"v"), producer_name="p", sequence_id=1, publish_time=2, checksum=False)
    assert entry.body[:2] == b"\0\0"
    assert bytes(split_payload(entry.body)[1]) == b"v"


def test_damage_has_its_name() -> None:
    body = encode_single_entry(Record(value=b"v"), producer_name="p", sequence_id=1, publish_time=2).body
    for at in range(2, len(body)):  # without the magic there is no checksum to be wrong
        broken = body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]
        with pytest.raises(CorruptEntryError, match="ChecksumMismatch: frame says"):
            split_payload(broken)
    plain = body[6:]
    for cut in range(len(plain) - 1):
        with pytest.raises(CorruptEntryError) as caught:
            split_payload(plain[:cut])
        assert caught.value.reason is Reason.METADATA


def test_every_golden_frame_has_its_sizes() -> None:
    names = golden.names("pulsar_e")
    assert len(names) == 12
    for name in names:
        frame = golden.load(name)
        total, size = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")
        assert total == len(frame) - 4 and size <= total - 4, name
        pb.BaseCommand.FromString(frame[8 : 8 + size])
