"""Mutated Pulsar frames against the scanner: only ProtocolError, dead letters or cold entries may come of them.

    python -m tests.fuzz.pulsar --seconds 600 --seed 1

What was found is a test (``tests/fastwire/pulsar/test_mutation.py``).
"""

import random
import sys
from collections.abc import Callable, Iterator
from itertools import islice

import pyarrow as pa
from crc32c import crc32c
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import Stop
from fastwire.errors import FastwireError, ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command
from fastwire.pulsar.format.payload import (
    MAGIC_CHECKSUM,
    Compression,
    Record,
    encode_batch,
    encode_batch_entry,
    encode_broker_entry_metadata,
    encode_chunks,
    encode_payload,
    encode_single_entry,
    split_payload,
)
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.batch import MessageBatch
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.encryption import Decryptor
from fastwire.pulsar.reading.scan import Scanner
from fastwire.wire.pool import Pool
from tests.fuzz.hunt import Case, Subject, main
from tests.support import golden
from tests.support.pulsar.frames import CONSUMER, Row, message_frame, oracle, rows_of, scanner, words

BLOCK = 20_000
TIME = 1_700_000_000_000
# Nothing that fits a frame of a few KiB may ask for more than this.
MOST_MEMORY = 96 << 20

# What lengths, counts and numbers are tried with.
_BYTES = bytes((0, 1, 2, 4, 8, 9, 0x0A, 0x12, 0x18, 0x20, 0x22, 0x4A, 0x58, 0x7F, 0x80, 0x81, 0xFE, 0xFF))
_NUMBERS = [
    number.to_bytes(4, "big")
    for number in (
        0,
        1,
        3,
        4,
        5,
        127,
        128,
        255,
        256,
        65_535,
        1 << 20,
        5 << 20,
        (5 << 20) + 10_241,
        0x7FFFFFFF,
        0x80000000,
    )
] + [b"\xff\xff\xff\xff", b"\x0e\x01\x00\x00", b"\x0e\x02\x00\x00"]
_VARINTS = [
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
    b"\x80\x00",
]


def seeds() -> list[bytes]:
    """Sound frames of every kind, all small."""
    rich = [
        Record(
            value=b"first value",
            key="a2V5",
            key_is_base64=True,
            properties=[("name", "wert"), ("", "")],
            event_time=TIME,
        ),
        Record(value=None, key="key-2", ordering_key=b"order", sequence_id=77),
        Record(value=b"", null_key=True, key="unseen"),
        Record(value=b"", compacted_out=True),
        Record(value=b"last" * 9),
    ]
    outer = pb.MessageMetadata(schema_version=b"\0\0\0\0\0\0\0\1", replicated_from="c", deliver_at_time=5)
    found = [golden.load(name) for name in golden.names("pulsar_") if "_message" in name]
    for codec in Compression:
        sent = encode_batch_entry(
            rich,
            producer_name="producer",
            sequence_id=5,
            publish_time=TIME,
            compression=codec,
            open_ended=codec is Compression.ZLIB,
            metadata=outer,
        )
        found.append(message_frame(sent.body, ledger=3, entry=9, redelivery=1, ack_set=words({0, 1, 4}), epoch=2))
        one = encode_single_entry(
            rich[0], producer_name="p", sequence_id=5, publish_time=TIME, compression=codec, metadata=outer
        )
        found.append(message_frame(encode_broker_entry_metadata(TIME, 44) + one.body))
        found += [message_frame(encrypted(each.body)) for each in (sent, one)]
    many = [Record(value=b"%d" % place, key="k") for place in range(70)]
    sent = encode_batch_entry(many, producer_name="p", sequence_id=0, publish_time=TIME, checksum=False)
    found.append(message_frame(sent.body, ack_set=words(range(0, 70, 2)), permits=35))
    for place, part in enumerate(
        encode_chunks(rich[0], chunk_bytes=4, producer_name="p", sequence_id=1, publish_time=TIME)
    ):
        found += [message_frame(part.body, entry=place), message_frame(encrypted(part.body), entry=place)]
    for metadata in (
        pb.MessageMetadata(marker_type=20),
        pb.MessageMetadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], encryption_param=b"p" * 12),
        pb.MessageMetadata(compacted_batch_indexes=[0, 2]),
    ):
        sent = encode_batch_entry(rich, producer_name="p", sequence_id=1, publish_time=TIME, metadata=metadata)
        found.append(message_frame(sent.body))
    # Commands are decoded by generated code: fewer of them.
    return found * 3 + [golden.load(name) for name in golden.names("pulsar_") if "_message" not in name]


def reseal(frame: bytearray, checksum: bool) -> None:
    """Make the sizes at the front true, and the checksum if there is one and it is wanted."""
    size = len(frame)
    if size < 8:
        return
    frame[0:4] = (size - 4).to_bytes(4, "big")
    if not checksum:
        return
    at = 8 + int.from_bytes(frame[4:8], "big")
    if frame[at : at + 2] == b"\x0e\x02":
        at += 6 + int.from_bytes(frame[at + 2 : at + 6], "big")
    if frame[at : at + 2] == MAGIC_CHECKSUM and size >= at + 6:
        frame[at + 2 : at + 6] = crc32c(memoryview(frame)[at + 6 :]).to_bytes(4, "big")


def mutate(sound: bytes, chance: Callable[[], float]) -> bytearray:
    """One to four changes anywhere; afterwards, mostly, sizes and checksum are made true again."""
    frame = bytearray(sound)
    for _ in range(1 + int(chance() * chance() * 4)):
        place = int(chance() * len(frame))
        kind = int(chance() * 8)
        if kind <= 2:
            frame[place] = _BYTES[int(chance() * len(_BYTES))]
        elif kind == 3:
            frame[place] ^= 1 << int(chance() * 8)
        elif kind == 4:
            frame[place : place + 4] = _NUMBERS[int(chance() * len(_NUMBERS))]
        elif kind == 5:
            frame[place:place] = _VARINTS[int(chance() * len(_VARINTS))]
        elif kind == 6:
            del frame[place : place + 1 + int(chance() * 6)]
        else:
            other = int(chance() * len(frame))
            frame[place:place] = frame[other : other + 1 + int(chance() * 12)]
        if len(frame) < 8:
            break
    how = chance()
    if how < 0.9:
        reseal(frame, how < 0.5)
    return frame


def cases(seed: int, count: int) -> Iterator[bytearray]:
    """``count`` mutated frames; the same ones for the same seed."""
    sound = seeds()
    chance = random.Random(seed).random
    for _ in range(count):
        yield mutate(sound[int(chance() * len(sound))], chance)


OUTCOMES = ("protocol error", "need bytes", "command", "cold entry", "rejected", "dead letters", "rows")
# Fixed, and not wrapped by a real key, so that a case is the same bytes in each process.
DATA_KEY, WRAPPED = bytes(range(32)), b"wrapped"


class Opener(Decryptor):
    """Opens what ``encrypted`` has made."""

    def __init__(self) -> None:
        super().__init__({})
        self._private = dict.fromkeys("k")  # type: ignore[assignment]

    def _data_key(self, name: str, wrapped: bytes) -> AESGCM | None:
        return AESGCM(DATA_KEY) if wrapped == WRAPPED else None


def encrypted(body: bytes) -> bytes:
    """The same entry, encrypted."""
    metadata, payload = split_payload(body)
    metadata.encryption_keys.add(key="k", value=WRAPPED)
    metadata.encryption_param = bytes(12)
    return encode_payload(metadata, AESGCM(DATA_KEY).encrypt(bytes(12), bytes(payload), None))


class Target:
    """Takes cases and complains by AssertionError; any other exception is a finding too."""

    def __init__(self, validate_every: int = 500, compare_every: int = 0) -> None:
        self.pool = Pool(1 << 30)
        self.validate_every = validate_every
        self.compare_every = compare_every
        self.done = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.completion = Completion(Assembly(self.pool), decryptor=Opener(), on_failure="consume")
        self._scanner: Scanner | None = None
        self._ordered = False
        self._slots = {ordered: scanner(self.pool, ordered=ordered)[1] for ordered in (False, True)}

    def run(self, frame: bytes | bytearray) -> None:
        self.done += 1
        if self._scanner is None:
            self._ordered = not self._ordered
            self._scanner = Scanner(self._slots[self._ordered], self.pool, 1, buffer_bytes=1 << 16)
        to, slots = self._scanner, self._slots[self._ordered]
        view = to.get_buffer()
        view[: len(frame)] = frame
        view.release()
        to.received(len(frame))
        before = to.rows
        try:
            self._drain(to)
        except ProtocolError:
            self.outcomes["protocol error"] += 1
            self._scanner = None
        if to.buffered:  # an error, or a frame that says it is longer
            to.get_buffer()
            self._scanner = None
        if to.rows > before:
            self.outcomes["rows"] += 1
        if self.done % 7 == 0:  # parts of one message come one after the other, as long as nothing is voided
            slots.void_staged(CONSUMER)
            self.completion.assembly.forget()
        if self.compare_every and self.done % self.compare_every == 0:
            self._take(to)
            compare(frame)
        elif self.done % self.validate_every == 0 or self._scanner is None:
            self._take(to, self.done % self.validate_every == 0)

    def _drain(self, to: Scanner) -> None:
        while (stop := to.scan()) != Stop.NEED_BYTES:
            if stop == Stop.FOUND:
                found = to.take_found()
                assert found is not None
                self._found(found, to)
            elif stop == Stop.CHUNK_FULL:
                assert self._take(to) is not None, "CHUNK_FULL without a chunk"
            else:
                to.resume()
        self.outcomes["need bytes"] += 1

    def _found(self, found: bytes | ColdEntry, to: Scanner) -> None:
        if isinstance(found, ColdEntry):
            self.outcomes["cold entry"] += 1
            rejected = self.completion.take(found, to, lambda: self._hand_on(to))
            self.outcomes["rejected"] += len(rejected)
            return
        self.outcomes["command"] += 1
        try:
            decode_command(found)
        except FastwireError:
            pass

    def _hand_on(self, to: Scanner) -> None:
        assert self._take(to) is not None, "no room without a chunk"

    def _take(self, to: Scanner, validate: bool = False) -> Chunk | None:
        chunk = to.take_chunk()
        if chunk is None:
            return None
        self.outcomes["dead letters"] += len(chunk.dead_letters)
        assert sum(span.rows for span in chunk.spans()) == chunk.rows
        assert sum(run[2] for run in chunk.runs()) == chunk.rows
        if validate and chunk.rows:
            batch = pa.record_batch(chunk)
            batch.validate(full=True)
            assert batch.num_rows == chunk.rows
        return chunk

    def finish(self) -> None:
        """The pool is empty again, and its peak was within reason."""
        if self._scanner is not None:
            self._take(self._scanner, validate=True)
        self._scanner = None
        self.completion.assembly.forget()
        assert self.pool.used == 0, f"{self.pool.used} bytes are still out"
        assert self.pool.peak <= MOST_MEMORY, f"{self.pool.peak} bytes were out at once"


def compare(frame: bytes | bytearray) -> None:
    """If the oracle can read a frame and the scanner gives rows, they are the same."""
    to, _ = scanner(buffer_bytes=1 << 16)
    view = to.get_buffer()
    view[: len(frame)] = frame
    to.received(len(frame))
    try:
        if to.scan() != Stop.NEED_BYTES:
            return
    except ProtocolError:
        return
    chunk = to.take_chunk()
    if chunk is None or not chunk.rows:
        return
    rows = rows_of(chunk)
    try:
        wanted = oracle(bytes(frame))
    except Exception:  # whatever protobuf or a codec's package dislikes: text that is not UTF-8, say
        return
    assert strip(rows) == strip(wanted), f"{rows}\n{wanted}"


def strip(rows: list[Row]) -> list[Row]:
    """Without the place: several message ids in one command are merged by protobuf, and the last one wins here."""
    return [{name: cell for name, cell in row.items() if name not in ("ledger", "offset")} for row in rows]


def run_views(seed: int, count: int) -> None:
    """Mutated batch blocks through the lazy views: every property of every message is read."""
    records = [Record(value=b"v" * 9, key="a2V5", key_is_base64=True, properties=[("a", "b")], ordering_key=b"o")] * 4
    sound = encode_batch(records)
    chance = random.Random(seed).random
    for _ in range(count):
        block = mutate(sound, chance) if chance() < 0.9 else bytearray(sound[: int(chance() * len(sound))])
        try:
            for message in MessageBatch(bytes(block), 5):
                _ = (message.value, message.key, message.ordering_key, message.sequence_id, message.event_time)
                _ = (message.properties, message.compacted_out)
        except ProtocolError:
            pass


def run_block(seed: int, count: int, compare_every: int = 0, first: int = 0) -> Target:
    target = Target(compare_every=compare_every)
    for frame in islice(cases(seed, first + count), first, None):
        target.run(frame)
    target.finish()
    return target


# --- hunting


def _block(seed: int, first: int, count: int) -> None:
    run_block(seed, count, compare_every=20, first=first)
    run_views(seed, max(count // 10, 1))


def _cases(seed: int) -> Iterator[Case]:
    return ([f"{byte:02x}" for byte in frame] for frame in cases(seed, BLOCK))


def run_case(words: Case) -> None:
    """One case twice, so that it may be a repetition; and its rows by the oracle."""
    frame = bytes.fromhex("".join(words))
    target = Target(validate_every=1)
    for _ in range(2):
        target.run(frame)
    target.finish()
    compare(frame)


if __name__ == "__main__":
    sys.exit(main(Subject("tests.fuzz.pulsar", "hex", BLOCK, _block, _cases, run_case), __doc__))
