"""Assembly of chunked messages from chunks that arrive interleaved, duplicated, or not at all (spec: pulsar 11).

A message has the id of its last chunk. No chunk is landed or acknowledged before that one has arrived: after a crash
the broker must send all of them again. So chunks are held, within limits, and a message that can no longer be completed
comes out as torn.

Only Shared and Key_Shared subscriptions may deliver chunks out of order (an entry of another consumer is redelivered).
In an ordered subscription a missing chunk never arrives. In a shared one another consumer may hold it, and wait for
ours: so chunks that wait go back to the broker, each time after another while, until one consumer has them all.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.wire.pool import Pool

MOST_OPEN = 1000  # open messages; Java's consumer allows 10, Go's 100, but neither keeps the entries it drops
EXPIRY_S = 60.0  # since the last chunk
RETURN_S = (5.0, 15.0)  # without a chunk, until those of a shared subscription go back; between these, by chance
MOST_UUID = 256  # characters of the uuid of a message that is remembered while its chunks are at the broker
SHARE = 2  # chunks may use the budget divided by this: with all of it, the missing chunks could not be read
OVERHEAD_BYTES = 512  # of the objects around a chunk


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk: the entry as received, and its decrypted payload."""

    entry: ColdEntry
    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the chunk occupies."""
        return len(self.entry.payload) + (len(self.data) if isinstance(self.data, bytes) else 0) + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Torn:
    """An entry that no longer belongs to any message, and the reason."""

    entry: ColdEntry
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of a new chunk. ``complete`` holds all chunks of a message, in order, once the last one is here.

    ``surplus`` are entries that the producer sent twice, or that belong to a message it has started anew. ``hold`` is
    True if the new chunk is kept.
    """

    complete: tuple[Part, ...] = ()
    surplus: tuple[ColdEntry, ...] = ()
    torn: tuple[Torn, ...] = ()
    hold: bool = False


@dataclass(slots=True)
class _Open:
    """A message with missing chunks."""

    count: int
    total: int  # announced bytes of all chunks together
    parts: dict[int, Part] = field(default_factory=dict)
    nbytes: int = 0  # bytes of payload so far
    most: int = 0  # chunks that were here at the same time
    age_s: float = 0.0  # seconds since there were more of them than before
    quiet_s: float = 0.0  # seconds since the newest chunk
    return_s: float = 0.0  # value of ``quiet_s`` at which the chunks go back

    def entries(self) -> Iterator[ColdEntry]:
        return (part.entry for part in self.parts.values())


_Key = tuple[int, str]


class Assembly:
    """The incomplete chunked messages of all consumers of one client. Their memory is charged to ``pool``.

    ``chance`` returns a number from 0 to 1: two clients that give chunks back at the same times would exchange them.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        most_open: int = MOST_OPEN,
        expiry_s: float = EXPIRY_S,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._pool = pool
        self._most_open = most_open
        self._expiry_s = expiry_s
        self._chance = chance
        self._open: dict[_Key, _Open] = {}  # by consumer and uuid, the oldest first
        self._returned: dict[_Key, tuple[int, float]] = {}  # ``most`` and ``age_s`` of those whose chunks went back

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, consumer_id: int) -> bool:
        """Return whether this consumer has chunks of incomplete messages."""
        return any(key[0] == consumer_id for key in self._open)

    def held(self, consumer_id: int) -> list[Position]:
        """Return the positions of this consumer's chunks of incomplete messages."""
        return [
            entry.position
            for key, message in self._open.items()
            if key[0] == consumer_id
            for entry in message.entries()
        ]

    def add(self, metadata: pb.MessageMetadata, part: Part) -> Verdict:
        """Add a chunk. If its message is torn, all chunks of that message come out as torn."""
        entry, number = part.entry, metadata.chunk_id
        key = entry.consumer_id, metadata.uuid
        fault = _fault(metadata, self._pool.most_payload)
        if fault:
            return Verdict(torn=(Torn(entry, fault),))
        surplus: tuple[ColdEntry, ...] = ()
        message = self._open.get(key)
        if number == 0 and message is not None and 0 in message.parts:
            # The producer sends the message again after a reconnect, or another message under the same uuid.
            surplus = tuple(self._drop(key).entries())
            message = None
        if message is not None and number in message.parts:
            return Verdict(surplus=(entry,))
        if message is None:
            if entry.ordered and number:
                detail = f"part {number + 1} of {metadata.num_chunks_from_msg}, but the parts before it did not come"
                return Verdict(surplus=surplus, torn=(Torn(entry, detail),))
            message = _Open(metadata.num_chunks_from_msg, metadata.total_chunk_msg_size)
            message.most, message.age_s = self._returned.pop(key, (0, 0.0))
        fault = _misfit(message, metadata, part)
        if fault:
            return Verdict(surplus=surplus, torn=(*self._torn(key, fault), Torn(entry, fault)))
        message.parts[number] = part
        message.nbytes += len(part.data)
        message.quiet_s = 0.0
        least, most = RETURN_S
        message.return_s = least + (most - least) * self._chance()
        if len(message.parts) > message.most:
            message.most, message.age_s = len(message.parts), 0.0
        self._open.setdefault(key, message)
        self._pool.charge(part.nbytes)
        if len(message.parts) == message.count:
            self._drop(key)
            return self._whole(message, surplus)
        torn = self._make_room()
        # The chunk's own message may have been dropped.
        return Verdict(surplus=surplus, torn=torn, hold=key in self._open)

    def _whole(self, message: _Open, surplus: tuple[ColdEntry, ...]) -> Verdict:
        parts = tuple(message.parts[place] for place in range(message.count))
        if message.nbytes == message.total:
            return Verdict(complete=parts, surplus=surplus)
        detail = f"{message.count} parts hold {message.nbytes} bytes, {message.total} were announced"
        return Verdict(surplus=surplus, torn=tuple(Torn(part.entry, detail) for part in parts))

    def _make_room(self) -> tuple[Torn, ...]:
        """Drop the oldest messages while there are too many, or their chunks exceed their share of the budget."""
        torn: list[Torn] = []
        while len(self._open) > self._most_open:
            torn += self._torn(next(iter(self._open)), f"more than {self._most_open} chunked messages are incomplete")
        limit = self._pool.limit // SHARE
        while self._open and self._pool.charged > limit:
            torn += self._torn(
                next(iter(self._open)),
                f"incomplete chunked messages take up more than {limit} bytes, half of the memory budget: "
                "more memory (daemon.memory) has room for more of them",
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
        """Age the messages of the consumers ``reading`` by ``seconds``; return the chunks of those that have expired.

        Time in which a consumer does not read does not count: the missing chunks may still be at the broker.
        """
        if not self._open:
            return []
        readers = set(reading)
        torn: list[Torn] = []
        for key, message in tuple(self._open.items()):
            if key[0] in readers:
                message.age_s += seconds
                message.quiet_s += seconds
                if message.age_s >= self._expiry_s:
                    missing = message.count - len(message.parts)
                    torn += self._torn(
                        key, f"{missing} of {message.count} parts did not come within {self._expiry_s:g} s"
                    )
        return torn

    def returned(self, reading: Iterable[int]) -> dict[int, list[Position]]:
        """Drop messages whose chunks have waited for a while; return the positions of the chunks, by consumer.

        The caller asks the broker to deliver these again. The consumers ``reading`` may get them once more, and their
        message does not grow younger by it.
        """
        readers = set(reading)
        back: dict[int, list[Position]] = {}
        for key, message in tuple(self._open.items()):
            entries = list(message.entries())
            waited = message.quiet_s >= message.return_s and not entries[0].ordered
            if waited and key[0] in readers and len(key[1]) <= MOST_UUID:
                self._drop(key)
                self._returned[key] = message.most, message.age_s
                back.setdefault(key[0], []).extend(entry.position for entry in entries)
        while len(self._returned) > self._most_open:
            del self._returned[next(iter(self._returned))]
        return back

    def landed(self, consumer_id: int, landed: Callable[[Position], bool]) -> list[Torn]:
        """Drop messages of which a chunk has landed elsewhere; return their remaining chunks as torn."""
        torn: list[Torn] = []
        for key, message in tuple(self._open.items()):
            if key[0] == consumer_id and any(landed(entry.position) for entry in message.entries()):
                rest = self._torn(key, "other parts of its message have landed already")
                torn += [each for each in rest if not landed(each.entry.position)]
        return torn

    def forget(self, consumer_id: int | None = None) -> None:
        """Drop the chunks of one consumer, or of all consumers: the broker will send them again."""
        for key in tuple(self._open):
            if consumer_id is None or key[0] == consumer_id:
                self._drop(key)


def _fault(metadata: pb.MessageMetadata, most: int) -> str:
    """Return the reason why the entry is not a valid chunk of any message; "" if it is valid."""
    if not metadata.HasField("uuid") or not metadata.HasField("chunk_id"):
        return "a part without uuid or chunk_id"
    if metadata.HasField("num_messages_in_batch"):
        return "a part that is a batch"
    if not 0 <= metadata.chunk_id < metadata.num_chunks_from_msg:
        return f"part {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}"
    if metadata.total_chunk_msg_size < 0:
        return f"a message of {metadata.total_chunk_msg_size} bytes is announced"
    if metadata.total_chunk_msg_size > most:
        return (
            f"a message of {metadata.total_chunk_msg_size} bytes is announced, and one may have {most}, "
            "an eighth of the memory budget: more memory (daemon.memory) lets it pass"
        )
    return ""


def _misfit(message: _Open, metadata: pb.MessageMetadata, part: Part) -> str:
    """Return the reason why the chunk does not fit ``message``; "" if it fits."""
    number, count = metadata.chunk_id, metadata.num_chunks_from_msg
    if (count, metadata.total_chunk_msg_size) != (message.count, message.total):
        return (
            f"parts differ in what they announce: {message.count} parts with {message.total} bytes, "
            f"{count} with {metadata.total_chunk_msg_size}"
        )
    if part.entry.ordered and number != len(message.parts):
        return f"part {number + 1} of {count} came after part {len(message.parts)}"
    if message.nbytes + len(part.data) > message.total:
        return f"parts hold more than the {message.total} bytes that were announced"
    return ""
