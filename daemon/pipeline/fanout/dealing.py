"""Deals the rows of a source's chunks to their topics."""

import asyncio
from array import array
from collections.abc import Callable, Sequence

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.columns.split import single_group, split_chunks
from fastwire.position import Log

from ...encoders.gather import deal, memory_of

ENOUGH_ROWS = 65_536
LATE_S = 0.1  # a row waits no longer for others to be dealt with
TOPIC = "topic"  # the column


class Dealer:
    """Takes chunks with records of many topics, and delivers chunks of one topic each, in the order of their arrival.

    A chunk of one topic passes as it is. Others are gathered until they have ``ENOUGH_ROWS`` rows or ``limit_bytes``,
    or ``LATE_S`` have passed: then the work for a topic, which is the same for one row and for a thousand, is done
    once. ``logs`` are those of the source.
    """

    def __init__(self, logs: Sequence[Log], limit_bytes: int, deliver: Callable[[str, Chunk], None]) -> None:
        self._logs = logs
        self._limit_bytes = limit_bytes
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._groups = array("i")  # by log index
        self._numbers: dict[str, int] = {}
        self._topics: list[str] = []
        self._chunks: list[Chunk] = []
        self._rows = self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, chunk: Chunk) -> None:
        """Take a chunk."""
        for log in self._logs[len(self._groups) :]:
            if log.topic not in self._numbers:
                self._numbers[log.topic] = len(self._topics)
                self._topics.append(log.topic)
            self._groups.append(self._numbers[log.topic])
        if not self._chunks and (group := single_group(chunk, self._groups)) >= 0:
            self._deliver(self._topics[group], chunk)
            return
        self._chunks.append(chunk)
        self._rows += chunk.rows
        self._bytes += chunk.nbytes
        if self._rows >= ENOUGH_ROWS or self._bytes >= self._limit_bytes:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(LATE_S, self.flush)

    def flush(self) -> None:
        """Deliver what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        chunks, self._chunks = self._chunks, []
        self._rows = self._bytes = 0
        if not chunks:
            return
        parts = {self._topics[group]: part for group, part in split_chunks(chunks, self._groups).items()}
        payload, rows = sum(chunk.payload_bytes for chunk in chunks), sum(chunk.rows for chunk in chunks)
        for topic, batch in self._rows_of(chunks):
            part = parts[topic]
            share = payload * batch.num_rows // rows
            payload, rows = payload - share, rows - batch.num_rows
            part.carry(batch, share, memory_of(batch))
        for topic, part in parts.items():
            self._deliver(topic, part)

    def drop(self) -> None:
        """Release what was gathered."""
        for chunk in self._chunks:
            chunk.release()
        self._chunks = []
        if self._timer is not None:
            self._timer.cancel()

    def _rows_of(self, chunks: list[Chunk]) -> Sequence[tuple[str, pa.RecordBatch]]:
        batches: list[tuple[pa.RecordBatch, list[tuple[str, int, int]]]] = []
        place = -1
        field: pa.Field | None = None
        for chunk in chunks:
            if not chunk.rows:
                continue
            batch = pa.record_batch(chunk)
            # The column is the same for all rows of a topic, and its dictionary has all topics.
            place = batch.schema.get_field_index(TOPIC)
            if place >= 0:
                field = batch.schema.field(place)
                batch = batch.drop_columns([TOPIC])
            batches.append(
                (batch, [(self._topics[self._groups[log]], first, rows) for log, first, rows in chunk.runs()])
            )
            chunk.release()
        if not batches:
            return []
        dealt = deal(batches)
        if field is None:
            return dealt
        return [(topic, rows.add_column(place, field, _same(topic, rows.num_rows, field))) for topic, rows in dealt]


def _same(topic: str, rows: int, field: pa.Field) -> pa.Array:
    """Return the column of ``rows`` rows of one topic, a text.

    It is made of buffers: from values of Python pyarrow makes none before it has loaded pandas, if that is installed.
    """
    kind, data = field.type, topic.encode()
    place = pa.py_buffer(array("i", (0, len(data))))
    one = pa.Array.from_buffers(pa.string(), 1, [None, place, pa.py_buffer(data)])
    if not pa.types.is_dictionary(kind):
        return pa.repeat(one[0], rows)
    zeros = pa.py_buffer(bytes(rows * kind.index_type.bit_width // 8))
    return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(kind.index_type, rows, [None, zeros]), one)
