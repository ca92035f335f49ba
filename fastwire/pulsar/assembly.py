"""Chunked messages: parts that come as entries of their own, interleaved, twice, or not at all (pulsar 11).

A message's identity is that of its last part. Until that has come no part may be landed or acknowledged: after a
crash the broker must send all of them again. So parts are held, within limits, and what cannot become a message any
more comes out as torn.

Only Shared and Key_Shared may deliver parts in another order than they were sent in (an entry that was somebody
else's comes again later); read in order, a part that is missing never comes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.cold import ColdEntry
from fastwire.wire.pool import Pool

__all__ = ["Assembly", "Part", "Torn", "Verdict"]

MOST_OPEN = 1000  # messages at once; Java's consumer allows 10, Go's 100, but neither puts aside what is dropped
MOST_MESSAGE_BYTES = 128 << 20  # of one message, compressed; as much as an entry may decompress to
EXPIRY_S = 60.0  # without a further part
SHARE = 2  # parts may take up this part of the budget; with all of it, the missing ones could not be read any more
OVERHEAD_BYTES = 512  # of the objects around a part


@dataclass(frozen=True, slots=True)
class Part:
    """One part: the entry as it came, and its payload after decryption."""

    entry: ColdEntry
    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """What it keeps from being used for other things."""
        return len(self.entry.payload) + (len(self.data) if isinstance(self.data, bytes) else 0) + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Torn:
    """An entry that is a part of no message any more, and why."""

    entry: ColdEntry
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a new part means. ``complete`` are all parts of a message, in order, once it is whole.

    ``surplus`` were sent again by their producer, or belong to a message that it began anew. If nothing of this names
    the new part, it is to be held.
    """

    complete: tuple[Part, ...] = ()
    surplus: tuple[ColdEntry, ...] = ()
    torn: tuple[Torn, ...] = ()
    hold: bool = False


@dataclass(slots=True)
class _Open:
    """A message of which parts are missing."""

    count: int
    total: int  # bytes of all parts together, as announced
    parts: dict[int, Part] = field(default_factory=dict)
    nbytes: int = 0  # of payload so far
    age_s: float = 0.0  # since the newest part

    def entries(self) -> Iterator[ColdEntry]:
        return (part.entry for part in self.parts.values())


_Key = tuple[int, str]


class Assembly:
    """The open chunked messages of all consumers of one client; what they hold is charged to ``pool``."""

    def __init__(self, pool: Pool, *, most_open: int = MOST_OPEN, expiry_s: float = EXPIRY_S) -> None:
        self._pool = pool
        self._most_open = most_open
        self._expiry_s = expiry_s
        self._open: dict[_Key, _Open] = {}  # by consumer and uuid, the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, consumer_id: int) -> bool:
        """Whether parts of this consumer wait for others."""
        return any(key[0] == consumer_id for key in self._open)

    def add(self, metadata: pb.MessageMetadata, part: Part) -> Verdict:
        """Take a part in. Torn parts come out with those that were held with them."""
        entry, number = part.entry, metadata.chunk_id
        key = entry.consumer_id, metadata.uuid
        fault = _fault(metadata)
        if fault:
            return Verdict(torn=(Torn(entry, fault),))
        surplus: tuple[ColdEntry, ...] = ()
        message = self._open.get(key)
        if number == 0 and message is not None and 0 in message.parts:
            # The producer has begun anew: after a reconnect with the same message, or under its old name with another.
            surplus = tuple(self._drop(key).entries())
            message = None
        if message is not None and number in message.parts:
            return Verdict(surplus=(entry,))
        if message is None:
            if entry.ordered and number:
                detail = f"part {number + 1} of {metadata.num_chunks_from_msg}, but the parts before it did not come"
                return Verdict(surplus=surplus, torn=(Torn(entry, detail),))
            message = _Open(metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
        fault = _misfit(message, metadata, part)
        if fault:
            return Verdict(surplus=surplus, torn=(*self._torn(key, fault), Torn(entry, fault)))
        message.parts[number] = part
        message.nbytes += len(part.data)
        message.age_s = 0.0
        self._open.setdefault(key, message)
        self._pool.charge(part.nbytes)
        if len(message.parts) == message.count:
            self._drop(key)
            return self._whole(message, surplus)
        torn = self._make_room()
        # Its own message may have been what had to go.
        return Verdict(surplus=surplus, torn=torn, hold=key in self._open)

    def _whole(self, message: _Open, surplus: tuple[ColdEntry, ...]) -> Verdict:
        parts = tuple(message.parts[place] for place in range(message.count))
        if message.nbytes == message.total:
            return Verdict(complete=parts, surplus=surplus)
        detail = f"{message.count} parts hold {message.nbytes} bytes, {message.total} were announced"
        return Verdict(surplus=surplus, torn=tuple(Torn(part.entry, detail) for part in parts))

    def _make_room(self) -> tuple[Torn, ...]:
        """Let the oldest messages go where there are too many, or too much of the budget is in them."""
        torn: list[Torn] = []
        while len(self._open) > self._most_open:
            torn += self._torn(next(iter(self._open)), f"more than {self._most_open} chunked messages are incomplete")
        limit = self._pool.limit // SHARE
        while self._open and self._pool.charged > limit:
            torn += self._torn(
                next(iter(self._open)),
                f"incomplete chunked messages take up more than {limit} bytes, a part of the memory budget",
            )
        return tuple(torn)

    def _torn(self, key: _Key, detail: str) -> list[Torn]:
        return [Torn(entry, detail) for entry in self._drop(key).entries()] if key in self._open else []

    def _drop(self, key: _Key) -> _Open:
        message = self._open.pop(key)
        self._pool.charge(-sum(part.nbytes for part in message.parts.values()))
        return message

    # --- time, and what others have done

    def expired(self, reading: Iterable[int], seconds: float) -> list[Torn]:
        """``seconds`` more have passed in which the consumers ``reading`` could get what the broker has for them.

        Time in which nothing is read does not count: the missing parts may be waiting at the broker.
        """
        if not self._open:
            return []
        readers = set(reading)
        torn: list[Torn] = []
        for key, message in tuple(self._open.items()):
            if key[0] in readers:
                message.age_s += seconds
                if message.age_s >= self._expiry_s:
                    missing = message.count - len(message.parts)
                    torn += self._torn(
                        key, f"{missing} of {message.count} parts did not come within {self._expiry_s:g} s"
                    )
        return torn

    def landed(self, consumer_id: int, landed: Callable[[Position], bool]) -> list[Torn]:
        """Forget messages of which parts have landed elsewhere; what has not landed of them comes out as torn."""
        torn: list[Torn] = []
        for key, message in tuple(self._open.items()):
            if key[0] == consumer_id and any(landed(entry.position) for entry in message.entries()):
                rest = self._torn(key, "other parts of its message have landed already")
                torn += [each for each in rest if not landed(each.entry.position)]
        return torn

    def forget(self, consumer_id: int | None = None) -> None:
        """Drop the parts of one consumer, or of all: the broker will send them again."""
        for key in tuple(self._open):
            if consumer_id is None or key[0] == consumer_id:
                self._drop(key)


def _fault(metadata: pb.MessageMetadata) -> str:
    """What makes this no part of any message."""
    if not metadata.HasField("uuid") or not metadata.HasField("chunk_id"):
        return "a part without uuid or chunk_id"
    if metadata.HasField("num_messages_in_batch"):
        return "a part that is a batch"
    if not 0 <= metadata.chunk_id < metadata.num_chunks_from_msg:
        return f"part {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}"
    if not 0 <= metadata.total_chunk_msg_size <= MOST_MESSAGE_BYTES:
        return f"a message of {metadata.total_chunk_msg_size} bytes is announced, the limit is {MOST_MESSAGE_BYTES}"
    return ""


def _misfit(message: _Open, metadata: pb.MessageMetadata, part: Part) -> str:
    """What makes this no part of ``message``."""
    number, count = metadata.chunk_id, metadata.num_chunks_from_msg
    if (count, metadata.total_chunk_msg_size) != (message.count, message.total):
        return (
            f"parts differ in what they announce: {message.count} parts with {message.total} bytes, "
            f"{count} with {metadata.total_chunk_msg_size}"
        )
    if part.entry.ordered and number != len(message.parts):
        return f"part {number + 1} of {count} came behind part {len(message.parts)}"
    if message.nbytes + len(part.data) > message.total:
        return f"parts hold more than the {message.total} bytes that were announced"
    return ""
