"""A desk for entries that the hot loop leaves to others, and such entries: chunked, encrypted, of every kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fastwire.columns.chunk import SpanAccumulator
from fastwire.columns.scan import Stop
from fastwire.position import Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Compression,
    Record,
    compress,
    encode_batch_entry,
    encode_chunks,
    encode_payload,
    encode_single_entry,
    split_payload,
)
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.event import EntryRejected
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.encryption import Decryptor, Encryptor
from fastwire.wire.pool import Pool
from tests.support.pulsar.frames import Row, Seen, message_frame, put, scanner, words
from tests.support.rsa_keys import key_pair

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
    keeps_corrupt: bool = True
    keys: dict[str, bytes] = field(default_factory=lambda: {"alice": ALICE.private})
    on_failure: Any = "fail"
    most_open: int = 1000
    memory: int = 1 << 28

    def __post_init__(self) -> None:
        self.pool = Pool(self.memory)
        self.scanner, self.slots = scanner(
            self.pool,
            ordered=self.ordered,
            on_corrupt="dead_letter" if self.keeps_corrupt else "stop",
            buffer_bytes=1 << 16,
        )
        self.idle = self.pool.used
        self.assembly = Assembly(self.pool, most_open=self.most_open)
        self.completion = Completion(
            self.assembly,
            keeps_corrupt=self.keeps_corrupt,
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
                if stop == Stop.FOUND:
                    entry = self.scanner.take_found()
                    assert isinstance(entry, ColdEntry)
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

    def dead_letters(self) -> dict[int, str]:
        """Dead letters by their entry, with the reason."""
        self.hand_on()
        return {letter.position.b: letter.reason for letter in self.seen.dead_letters}

    def spans(self) -> list[Span]:
        """Return the Coverage that a commit now would record."""
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


def entries_of_all_kinds() -> Iterable[tuple[str, bytes, dict[str, Any]]]:
    for codec in Compression:
        common: dict[str, Any] = {"producer_name": "p", "publish_time": TIME, "compression": codec, "metadata": OUTER}
        yield f"batch {codec.name}", encode_batch_entry(RICH, sequence_id=3, **common).body, {}
        yield f"single {codec.name}", encode_single_entry(RICH[0], sequence_id=3, **common).body, {}
        yield f"null {codec.name}", encode_single_entry(RICH[1], sequence_id=3, **common).body, {}
    acked = {"ack_set": words({0, 1, 4})}
    common = {"producer_name": "p", "publish_time": TIME}
    yield "ack set", encode_batch_entry(RICH, sequence_id=3, **common).body, acked
