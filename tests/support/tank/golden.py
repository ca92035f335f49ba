"""Golden bytes of TANK, as a broker and its own client exchanged them, and a plain way to scan them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from struct import pack
from typing import Any

from fastwire.position import Log, Position
from fastwire.tank.format.message import MessageType
from fastwire.tank.reading.response import Fetched, Planned
from fastwire.tank.reading.scan import CorruptBundle, Scanner
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support.scanned import Row, Scanned
from tests.support.times import EPOCH

GOLDEN = Path(__file__).parents[2] / "golden" / "tank"


def described(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def names(*kinds: str) -> list[str]:
    """The vectors of these types."""
    return sorted(path.stem for path in GOLDEN.glob("*.json") if described(path.stem)["type"] in kinds)


def request(name: str) -> bytes:
    return (GOLDEN / f"{name}.req.bin").read_bytes()


def response(name: str) -> bytes:
    return (GOLDEN / f"{name}.resp.bin").read_bytes()


def timestamp_of(row: Row) -> int:
    """The timestamp of a row as it stood on the wire, in milliseconds; all ones is null in a row.

    One message of the vectors says that its timestamp is in microseconds; its row shows the time that is meant.
    """
    if row["timestamp"] is None:
        return (1 << 64) - 1
    unit = timedelta(microseconds=1) if row["value"] == "μs ✓".encode() else timedelta(milliseconds=1)
    return int((row["timestamp"] - EPOCH) // unit)


def digest(rows: Iterable[Row]) -> str:
    """Return the bytes of ``messages_digest`` of a vector."""
    summed = hashlib.sha256()
    for row in rows:
        key = row["key"]
        summed.update(pack("<QQBI", row["offset"], timestamp_of(row), key is not None, len(key or b"")))
        summed.update(key or b"")
        summed.update(pack("<I", len(row["value"])) + row["value"])
    return summed.hexdigest()


class Reading(Scanned):
    """A scanner over some partitions, and all that came out of it."""

    def __init__(
        self,
        asked: Mapping[tuple[str, int], int],
        *,
        on_corrupt: str = "dead_letter",
        columns: frozenset[str] | None = None,
        pool: Pool | None = None,
        buffer_bytes: int = 1 << 20,
    ) -> None:
        self.slots = SlotTable()
        pool = pool or Pool(1 << 28)
        super().__init__(Scanner(self.slots, pool, on_corrupt=on_corrupt, columns=columns, buffer_bytes=buffer_bytes))
        self.fetched: list[Fetched] = []
        self.corrupt: list[CorruptBundle] = []
        self.answers: list[tuple[int, bytes]] = []
        self.pings = 0
        self.index: dict[tuple[str, int], int] = {}
        for (topic, partition), sequence in asked.items():
            index = self.slots.add(Log("tank", "c", topic, str(partition)))
            self.slots.attach(index, Position(sequence, 0), 1)
            self.index[topic, partition] = index

    def plan(self, request_id: int, *partitions: tuple[str, int]) -> None:
        topics: dict[bytes, dict[int, tuple[int, int]]] = {}
        for topic, partition in partitions or self.index:
            topics.setdefault(topic.encode(), {})[partition] = (self.index[topic, partition], 1)
        self.scanner.plan(request_id, Planned(topics))

    def _found(self) -> None:
        match self.scanner.take_found():
            case Fetched() as fetched:
                self.fetched.append(fetched)
            case CorruptBundle() as corrupt:
                self.corrupt.append(corrupt)
            case (MessageType.PING, b""):
                self.pings += 1
            case (int() as kind, bytes() as payload):
                self.answers.append((kind, payload))

    def read(self, data: bytes, cuts: Iterable[int] = ()) -> list[Row]:
        """All rows of one consume answer."""
        self.plan(int.from_bytes(data[9:13], "little"))
        self.feed(data, cuts)
        self.take()
        return self.rows

    def of(self, topic: str, partition: int) -> list[Row]:
        return [row for row in self.rows if (row["topic"], row["partition"]) == (topic, partition)]


def asked_by(said: dict[str, Any]) -> dict[tuple[str, int], int]:
    """The sequence that the answer of a vector, or of a part of one, was asked for, by partition."""
    found = {}
    for topic in said.get("params", {}).get("topics", []):
        for one in topic["partitions"]:
            found[topic["topic"], one["partition"]] = one["sequence"]
    expected = said.get("expected", said)
    for one in expected.get("partitions", []):
        if "partition" in one:
            found.setdefault((one["topic"], one["partition"]), one.get("requested_seq", 0))
    # 2^64-1 is no position of a reader: it would have asked for the end by DiscoverPartitions.
    return {key: 0 if sequence > 1 << 63 else sequence for key, sequence in found.items()}
