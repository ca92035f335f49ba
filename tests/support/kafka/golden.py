"""Golden bytes of Kafka, as the brokers and clients named beside them wrote them, and a plain way to scan them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from struct import pack
from typing import Any

from fastwire.kafka.format.message import encode_response
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched, Planned
from fastwire.kafka.reading.scan import Scanner
from fastwire.kafka.reading.slot import SlotTable
from fastwire.position import Log, Position
from fastwire.wire.pool import Pool
from tests.support.scanned import Row, Scanned

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka"
FETCH = 1


def names(folder: str) -> list[str]:
    """Return the contents of a folder of the golden bytes."""
    return sorted(path.stem for path in (GOLDEN / folder).glob("*.bin"))


def golden(folder: str, name: str) -> bytes:
    return (GOLDEN / folder / f"{name}.bin").read_bytes()


def described(folder: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / folder / f"{name}.json").read_text())
    return found


def fetch_response(records: bytes | None, *, version: int = 12, correlation_id: int = 1, **partition: Any) -> bytes:
    """A Fetch response about partition 0 of topic t."""
    said = {"partition_index": 0, "high_watermark": 1 << 62, "records": records} | partition
    return encode_response(
        FETCH, version, correlation_id, {"responses": [{"topic": "t", "topic_id": bytes(16), "partitions": [said]}]}
    )


class Reading(Scanned):
    """A scanner over any number of partitions of topic t, and all that came out of it."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        topic: str = "t",
        offset: int = 0,
        committed: bool = False,
        version: int = 12,
        on_corrupt: str = "dead_letter",
        topic_id: bytes = bytes(16),
        columns: frozenset[str] | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.slots = SlotTable()
        super().__init__(Scanner(self.slots, pool or Pool(1 << 28), on_corrupt=on_corrupt, columns=columns))
        self.fetched: list[Fetched] = []
        self.corrupt: list[CorruptBatch] = []
        self.responses: list[bytes] = []
        self.version = version
        self.partitions = partitions
        self.committed = committed
        self.key = topic_id if version >= 13 else topic.encode()
        for partition in range(partitions):
            index = self.slots.add(Log("kafka", "c", topic, str(partition)))
            self.slots.attach(index, Position(offset, -1), 1)

    def plan(self, correlation_id: int = 1) -> None:
        asked = {index: (index, 1) for index in range(self.partitions)}
        self.scanner.plan(correlation_id, Planned(self.version, self.committed, {self.key: asked}))

    def _found(self) -> None:
        match self.scanner.take_found():
            case Fetched() as fetched:
                self.fetched.append(fetched)
            case CorruptBatch() as corrupt:
                self.corrupt.append(corrupt)
            case bytes() as response:
                self.responses.append(response)

    def read(self, data: bytes, cuts: Iterable[int] = ()) -> list[Row]:
        """All rows of one Fetch response."""
        self.plan(int.from_bytes(data[4:8]))
        self.feed(data, cuts)
        self.take()
        return self.rows


class StoredLog:
    """The stored batches of one partition: for each its first offset, the one behind it, and its bytes."""

    def __init__(self, batches: Iterable[tuple[int, int, bytes]]) -> None:
        self.batches = list(batches)
        self.end = self.batches[-1][1]

    def answer(self, offset: int, room: int) -> bytes:
        """The records of an answer from the batch that holds ``offset`` on; the first one is never cut."""
        found = [body for _, end, body in self.batches if end > offset]
        return b"".join(found)[: max(room, len(found[0]))] if found else b""

    def read(self, reading: Reading, room: int = 1 << 20, most: int = 500) -> list[Row]:
        """All rows, by as many answers of ``room`` bytes as it takes; the end is not reached where the log stops."""
        for number in range(1, most):
            if reading.slots.position(0).a >= self.end or reading.corrupt:
                break
            records = self.answer(reading.slots.fetch_offset(0), reading.slots.fetch_bytes(0, room))
            reading.read(fetch_response(records, correlation_id=number, high_watermark=self.end))
        return reading.rows


def digest(rows: Iterable[Row], timestamps: dict[int, int] | None = None) -> str:
    """The digest of the golden descriptions: SHA-256 over all records in order."""
    sum_ = hashlib.sha256()

    def put(value: bytes | None) -> None:
        sum_.update(pack(">i", -1 if value is None else len(value)) + (value or b""))

    for row in rows:
        time = row["timestamp"]
        milli = -1 if time is None else int(time.timestamp() * 1000)
        milli = milli if timestamps is None else timestamps[row["offset"]]
        sum_.update(pack(">qq", row["offset"], milli))
        put(row["key"])
        put(row["value"])
        headers = row["headers"] or []
        sum_.update(pack(">i", len(headers)))
        for header in headers:
            put(header["key"].encode())
            put(header["value"])
    return sum_.hexdigest()
