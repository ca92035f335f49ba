"""Topics as the embedded TANK broker stores them: bundles by sequence, in segments (spec: tank 1, 5, 7)."""

from bisect import bisect_left
from dataclasses import dataclass

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import ProduceCode
from fastwire.tank.producing.bundle import BundleHead, Message, encode_bundle, read_head, read_messages
from fastwire.wire.writer import encode_varint

from ..base import RefusedError

MOST_MESSAGES = 65_535  # a broker counts the messages of a bundle modulo 65,536 in some places (spec: tank 5.4)
EXTRA = 0x80


@dataclass(slots=True)
class StoredBundle:
    """One bundle with its sequences, and the number of the segment that holds it."""

    data: bytes
    head: BundleHead
    segment: int

    @property
    def framed(self) -> bytes:
        """The bundle behind its length, as a chunk has it."""
        return encode_varint(len(self.data)) + self.data


class PartitionLog:
    """The log of one partition. ``first`` is the first available sequence, ``last`` the last one; both 0 at first."""

    def __init__(self, topic: str, number: int, leader: int, segment_bytes: int) -> None:
        self.topic = topic
        self.number = number
        self.leader = leader  # a node; -1: none
        self.first = 0
        self.last = 0
        self.bundles: list[StoredBundle] = []
        self._segment_bytes = segment_bytes
        self._segment = 0
        self._filled = 0  # bytes of the last segment

    def append(self, data: bytes, base: int | None = None) -> StoredBundle:
        """Store one bundle; ``base`` is the first sequence that a producer chose by message type 5.

        Raises RefusedError for a sequence that is not above the last one, and ProtocolError for a bundle that a real
        broker would not survive, or would serve under other sequences than those it was sent with.
        """
        head = read_head(data, 0, len(data), self.last + 1)
        if head.flags & EXTRA or head.count > MOST_MESSAGES:
            raise ProtocolError("bundle", 0, detail=f"flags {head.flags:#04x}, {head.count} messages")
        if base is not None and (not head.sparse or head.first != base):
            raise ProtocolError("base sequence", 0, detail=f"{base} of a bundle that does not begin with it")
        if head.first <= self.last:
            raise RefusedError(ProduceCode.BAD_SEQUENCE, f"the last sequence is {self.last}")
        if self._filled and self._filled + len(data) > self._segment_bytes:
            self._segment += 1
            self._filled = 0
        stored = StoredBundle(data, head, self._segment)
        self._filled += len(stored.framed)
        self.bundles.append(stored)
        self.first = self.first or head.first
        self.last = head.last
        return stored

    def find(self, sequence: int) -> int:
        """Return the index of the bundle with ``sequence``, or with the next one if it lies in a hole."""
        return bisect_left(self.bundles, sequence, key=lambda stored: stored.head.last)

    def read(self, sequence: int, fetch_bytes: int) -> list[StoredBundle]:
        """Return whole bundles of one segment from ``sequence`` on: at least one, and about ``fetch_bytes``.

        In a hole that ``skip`` has left it is the bundle before, as a real broker answers (spec: tank 5.5).
        """
        place = min(self.find(sequence), len(self.bundles) - 1)
        segment, size = self.bundles[place].segment, 0
        found: list[StoredBundle] = []
        for stored in self.bundles[place:]:
            if stored.segment != segment or (found and size + len(stored.framed) > fetch_bytes):
                break
            found.append(stored)
            size += len(stored.framed)
        return found

    def trim(self, sequence: int) -> None:
        """Delete the segments that end before ``sequence``, as retention does; the last one stays."""
        keep = self.bundles[min(self.find(sequence), len(self.bundles) - 1)].segment if self.bundles else 0
        self.bundles = [stored for stored in self.bundles if stored.segment >= keep]
        if self.bundles:
            self.first = self.bundles[0].head.first

    def roll(self) -> None:
        """Close the last segment: the next bundle begins another one."""
        if self._filled:
            self._segment += 1
            self._filled = 0

    def after(self, sequence: int) -> tuple[list[StoredBundle], bool]:
        """Return the bundles after ``sequence`` up to the end of their segment, and True if that is closed."""
        rest = self.bundles[self.find(sequence + 1) :]
        found = [stored for stored in rest if stored.segment == rest[0].segment]
        return found, bool(found) and found[0].segment != self._segment

    def skip(self, count: int) -> None:
        """Pass over ``count`` sequences, as a wrong use of message type 5 does; the next bundle begins a segment."""
        if not self.bundles:
            raise ValueError("a hole begins after a message")
        self.last += count
        self.roll()

    def compact(self) -> None:
        """Keep the newest message of each key in the closed segments (spec: tank 5.2).

        A bundle becomes sparse if it has lost messages, or if it does not begin where the one before it ends any more.
        """
        newest: dict[bytes, int] = {}
        read: list[tuple[StoredBundle, list[Message]]] = []
        for stored in self.bundles:
            messages = read_messages(stored.data, stored.head)
            read.append((stored, messages))
            newest.update({one.key: one.sequence for one in messages if one.key is not None})
        kept: list[StoredBundle] = []
        for stored, messages in read:
            alive = [one for one in messages if one.key is None or newest[one.key] == one.sequence]
            whole = len(alive) == len(messages)
            follows = not kept or kept[-1].segment != stored.segment or kept[-1].head.last + 1 == stored.head.first
            if stored.segment == self._segment or (whole and (stored.head.sparse or follows)):
                kept.append(stored)
            elif alive:
                data = encode_bundle(alive, sparse=True)
                kept.append(StoredBundle(data, read_head(data, 0, len(data), 0), stored.segment))
        self.bundles = kept
