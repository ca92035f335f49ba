"""Chunks for tests of sinks, made by the same compiled code that parses a broker's bytes."""

from collections.abc import Iterable

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import Stop
from fastwire.coverage import Coverage
from fastwire.position import Log
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import encode_block_entry, encode_values
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

_LEDGER = 7
_CONNECTION = 1
_CHUNK_ROWS = 16_384
_FIRST_PUBLISH_MS = 1_700_000_000_000


class Feed:
    """A topic of numbered records, read in order, as the chunks that a pipeline passes to a sink.

    Entry ``e`` of partition ``p`` holds ``rows`` records; the value of record ``i`` is ``p:e:i`` padded with dots to
    ``value_bytes``, its key ``p``. Entries are ``entry_ms`` apart in publish time. So the expected content of a sink
    follows from its Coverage alone: :meth:`values_of`. With ``start`` the feed continues after these positions, like a
    source after a crash.
    """

    def __init__(
        self,
        *,
        partitions: int = 2,
        rows: int = 100,
        value_bytes: int = 0,
        entry_ms: int = 1_000,
        topic: str = "persistent://public/default/feed",
        cluster: str = "feed",
        start: Coverage | None = None,
    ) -> None:
        self.logs = [Log("pulsar", cluster, topic, str(partition)) for partition in range(partitions)]
        self.pool = Pool(1 << 30)
        self._rows = rows
        self._value_bytes = value_bytes
        self._entry_ms = entry_ms
        slots = SlotTable(self.logs)
        self._scanner = Scanner(slots, self.pool, _CONNECTION, buffer_bytes=1 << 22)
        self._next: list[int] = []
        for number, log in enumerate(self.logs):
            landed = (start.end(log) if start is not None else None) or PULSAR_EARLIEST
            slots.add(number, number, ordered=True)
            slots.attach(number, _CONNECTION)
            slots.set_landed(number, landed)
            self._next.append(landed.b + 1)
        self._turn = 0
        self._damaged: set[tuple[int, int]] = set()
        self._idle_bytes = self.pool.used

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of chunks that are not released."""
        return self.pool.used - self._idle_bytes

    def chunk(self, entries: int = 4, *, damaged: Iterable[int] = ()) -> Chunk:
        """Return the next ``entries`` entries, round-robin over the partitions; ``damaged`` ones cannot be decoded.

        Raises ValueError for more than 16,384 rows.
        """
        if entries * self._rows > _CHUNK_ROWS:
            raise ValueError(f"a chunk has at most {_CHUNK_ROWS} rows")
        damaged = set(damaged)
        for number in range(entries):
            partition = self._turn
            entry = self._next[partition]
            self._turn = (partition + 1) % len(self.logs)
            self._next[partition] += 1
            if number in damaged:
                self._damaged.add((partition, entry))
            self._receive(self._frame(partition, entry))
        chunk = self._scanner.take_chunk()
        assert chunk is not None
        return chunk

    def values_of(self, coverage: Coverage) -> list[bytes]:
        """Return the values of all records that ``coverage`` contains, in order within a partition."""
        return [
            value
            for partition, log in enumerate(self.logs)
            for start, end in coverage.intervals(log)
            for entry in range(start.b + 1, end.b + 1)
            if (partition, entry) not in self._damaged
            for value in self._values(partition, entry)
        ]

    def _values(self, partition: int, entry: int) -> list[bytes]:
        return [f"{partition}:{entry}:{i}".encode().ljust(self._value_bytes, b".") for i in range(self._rows)]

    def _block(self, partition: int, entry: int) -> bytes:
        values = self._values(partition, entry)
        return encode_values(values, entry * self._rows, [str(partition).encode()] * self._rows)

    def _frame(self, partition: int, entry: int) -> bytes:
        body = encode_block_entry(
            self._block(partition, entry),
            self._rows,
            producer_name=f"producer-{partition}",
            sequence_id=entry * self._rows,
            publish_time=_FIRST_PUBLISH_MS + entry * self._entry_ms,
        ).body
        if (partition, entry) in self._damaged:
            body = body[:-1] + bytes((body[-1] ^ 1,))  # the checksum no longer fits
        command = pb.BaseCommand(
            type=pb.BaseCommand.MESSAGE,
            message=pb.CommandMessage(
                consumer_id=partition, message_id=pb.MessageIdData(ledgerId=_LEDGER, entryId=entry)
            ),
        ).SerializeToString()
        size = len(command)
        return (4 + size + len(body)).to_bytes(4, "big") + size.to_bytes(4, "big") + command + body

    def _receive(self, data: bytes) -> None:
        while data:
            room = self._scanner.get_buffer(len(data))
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            room.release()
            self._scanner.received(taken)
            data = data[taken:]
            stop = self._scanner.scan()
            if stop != Stop.NEED_BYTES:
                raise ValueError(f"too much for one chunk: the scanner stopped with {Stop(stop).name}")
