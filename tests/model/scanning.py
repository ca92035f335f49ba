"""A reader that is given entries and not rows: the scanner, slots and chunked messages are the real ones.

A reader in miniature says what it has read; here the spans of a commit are what the columns say of entries of which
some are parts of messages that are not whole. Messages of several producers interleave.
"""

from collections.abc import Sequence

import pyarrow as pa

from fastwire.columns.chunk import SpanAccumulator
from fastwire.columns.scan import Stop
from fastwire.position import Position, Span
from fastwire.pulsar.format.payload import Record, encode_chunks, encode_single_entry
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.systems.pulsar.source.coverage import landed_of
from tests.support.pulsar.frames import message_frame, put

from .broker import OrderedBroker
from .reader import LEDGER, Reader, log_of


class ChunkedBroker(OrderedBroker):
    """Failover, with the same ``entries`` in each partition, a letter each.

    A small letter is a message, a capital one part of a message that has as many parts as the letter stands there.
    """

    def __init__(self, partitions: int, entries: str) -> None:
        super().__init__(partitions, len(entries))
        self._entries = entries

    def produced(self) -> set[tuple[int, int]]:
        last = {self._entries.rindex(letter) for letter in self._entries if letter.isupper()}
        whole = {number for number, letter in enumerate(self._entries) if letter.islower()}
        return {(partition, number) for partition in range(self.partitions) for number in last | whole}

    def body(self, partition: int, number: int) -> bytes:
        """The entry as it is stored; a row's value names the entry that completes its message."""
        letter = self._entries[number]
        value = b"%d:%03d" % (partition, self._entries.rindex(letter) if letter.isupper() else number)
        if letter.islower():
            return encode_single_entry(Record(value=value), producer_name="p", sequence_id=number, publish_time=1).body
        count = self._entries.count(letter)
        parts = encode_chunks(
            Record(value=value),
            chunk_bytes=-(-len(value) // count),
            producer_name=letter,
            sequence_id=0,
            publish_time=1,
        )
        assert len(parts) == count
        return parts[self._entries[:number].count(letter)].body


class Scanning(Reader):
    """A reader whose records go through the scanner, and whose spans are committed."""

    _broker: ChunkedBroker

    def _new_life(self) -> None:
        partitions = range(self._broker.partitions)
        pool = Pool(1 << 24)
        self._slots = SlotTable([log_of(partition) for partition in partitions])
        for partition in partitions:
            self._slots.add(partition, partition, ordered=True)
            self._slots.attach(partition, 1)
        self._scanner = Scanner(self._slots, pool, 1, columns=frozenset({"value"}), buffer_bytes=1 << 12)
        self._assembly = Assembly(pool)
        self._completion = Completion(self._assembly)

    def _new_roll(self) -> None:
        super()._new_roll()
        self._accumulator = SpanAccumulator()
        self._has_spans = False

    def _session(self) -> None:
        self._new_life()  # a void roll: everything that is held comes again
        super()._session()

    @property
    def _has_something(self) -> bool:
        return self._has_spans

    def _assigned(self, partition: int) -> None:
        super()._assigned(partition)
        self._learn(partition)
        covers = self._coverage.covers
        torn = self._assembly.landed(partition, lambda position: covers(log_of(partition), position))
        self._take(self._completion.give_up(torn, self._scanner))

    def _learn(self, partition: int) -> Position:
        landed = landed_of(self._coverage, log_of(partition), None, ordered=True)
        self._slots.set_landed(partition, landed.floor)
        self._slots.set_ahead(partition, landed.above)
        return landed.floor

    def _row(self, partition: int, number: int) -> None:
        put(
            self._scanner,
            message_frame(self._broker.body(partition, number), consumer=partition, ledger=LEDGER, entry=number),
        )
        while (stop := self._scanner.scan()) != Stop.NEED_BYTES:
            assert stop == Stop.FOUND
            entry = self._scanner.take_found()
            assert isinstance(entry, ColdEntry)
            self._take(self._completion.take(entry, self._scanner, self._hand_on))
        self._hand_on()
        if self._slots.take_landed_again(partition):
            self._ack_landed(partition)
        if len(self._staged) >= self.roll_rows:
            self._commit()

    @staticmethod
    def _take(rejected: Sequence[object]) -> None:
        assert not rejected, f"nothing is damaged, but {rejected} was put aside"

    def _hand_on(self) -> None:
        chunk = self._scanner.take_chunk()
        if chunk is None:
            return
        self._has_spans = True
        self._accumulator.add(chunk)
        for value in pa.record_batch(chunk).column("value").to_pylist() if chunk.rows else ():
            partition, number = map(int, value.split(b":"))
            self._stage(partition, number)

    def _spans(self) -> list[Span]:
        return self._accumulator.take()

    def _acknowledge(self, spans: Sequence[Span], staged: Sequence[tuple[int, int]]) -> None:
        for partition in sorted({int(span.log.partition) for span in spans}):
            self._ack_landed(partition)

    def _ack_landed(self, partition: int) -> None:
        floor = self._learn(partition)
        if floor.b >= 0:
            self._ack(partition, floor.b)
