"""A chunk: records of all partitions of one connection as Arrow columns, with the spans they are.

The memory is exported by the Arrow C data interface and given back by plain C on whatever thread the last holder lets
go; nothing of Arrow needs to be installed for that.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from fastwire.columns.arrow cimport export_array, export_schema
from fastwire.columns.builder cimport (
    BLOCK_TOPICS,
    HAS_BATCH_INDEX,
    HAS_LEDGER,
    HAS_OFFSET,
    HAS_REDELIVERY_COUNT,
    HAS_TOPIC,
    Columns,
    columns_drop,
    columns_finish,
)
from fastwire.wire.array cimport array_grown
from fastwire.wire.pool cimport fw_memory_bytes, fw_take

from dataclasses import dataclass

from fastwire.position import Log, Position, Span

cdef enum:
    PLACE_COLUMNS = HAS_LEDGER | HAS_OFFSET | HAS_BATCH_INDEX

__all__ = ["Chunk", "DeadLetter", "SpanAccumulator", "marker_chunk"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that could not be decoded: ``payload`` is all that stood behind the command, ``rows`` its claim.

    ``wanted`` says which elements of a batch it is about: bits of words with 8 bytes each, low first; empty for all.
    """

    log: Log
    position: Position
    reason: str
    payload: bytes
    rows: int
    wanted: bytes = b""


# --- spans and runs of an open chunk

cdef int64_t places_open_span(Places* p, int32_t log, int64_t a, int64_t b) noexcept nogil:
    """Start a span of no rows behind position (a, b)."""
    cdef SpanRow* row
    cdef SpanRow* grown = <SpanRow*>array_grown(p.spans, &p.span_capacity, p.span_count + 1, sizeof(SpanRow))
    if grown is NULL:
        return -1
    p.spans = grown
    row = &p.spans[p.span_count]
    row.log = log
    row.start_a = row.end_a = a
    row.start_b = row.end_b = b
    row.rows = 0
    row.holds = False
    p.span_count += 1
    return p.span_count - 1


cdef int places_run(Places* p, int32_t log, int64_t first, int64_t rows) noexcept nogil:
    """Rows ``first`` … of ``log`` have come; they join the last run if it is the same log's."""
    cdef RunRow* grown
    if p.run_count and p.runs[p.run_count - 1].log == log:
        p.runs[p.run_count - 1].rows += rows
        return 0
    grown = <RunRow*>array_grown(p.runs, &p.run_capacity, p.run_count + 1, sizeof(RunRow))
    if grown is NULL:
        return -1
    p.runs = grown
    p.runs[p.run_count].log = log
    p.runs[p.run_count].first = first
    p.runs[p.run_count].rows = rows
    p.run_count += 1
    return 0


cdef void places_drop(Places* p) noexcept nogil:
    free(p.spans)
    free(p.runs)
    memset(p, 0, sizeof(Places))


cdef object span_object(SpanRow* row, list logs):
    held_from = Position(row.held_a, row.held_b) if row.holds else None
    return Span(
        logs[row.log], Position(row.start_a, row.start_b), Position(row.end_a, row.end_b), row.rows, None, held_from
    )


@cython.final
cdef class Chunk:
    """Records as Arrow columns (a struct array by the C data interface) and the spans that they are.

    ``rows`` records with ``payload_bytes`` of values in ``nbytes`` of pooled memory; ``diverted`` are the entries that
    could not be decoded. A chunk may have spans and no rows.
    """

    def __dealloc__(self):
        columns_drop(&self.columns)
        places_drop(&self.places)

    def __arrow_c_schema__(self):
        """An ``arrow_schema`` capsule."""
        return export_schema(self.columns.mask)

    def __arrow_c_array__(self, requested_schema=None):
        """The pair of capsules of the Arrow PyCapsule interface; the memory is shared, not copied.

        ``requested_schema`` is ignored, as the interface allows: consumers cast. Raises ValueError after ``release``.
        """
        if self.columns.memory is NULL:
            raise ValueError("the chunk was released, or has no rows")
        return export_schema(self.columns.mask), export_array(&self.columns, len(self._topics))

    def spans(self):
        """The spans as objects; a commit uses SpanAccumulator instead."""
        return [*self._marked, *(span_object(&self.places.spans[i], self._logs) for i in range(self.places.span_count))]

    def runs(self):
        """(log index, first row, rows) of consecutive rows of one log, in row order."""
        cdef RunRow* r = self.places.runs
        return [(r[i].log, r[i].first, r[i].rows) for i in range(self.places.run_count)]

    def entries(self):
        """(log index, a, first b, last b) of each span, for systems whose spans lie within one ``a`` (Pulsar)."""
        cdef SpanRow* r = self.places.spans
        return [(r[i].log, r[i].end_a, r[i].start_b + 1, r[i].end_b) for i in range(self.places.span_count)]

    def elements(self, int64_t first, int64_t end):
        """What rows ``first`` … ``end`` are, one tuple an entry.

        (log index, ledger, entry, its first row, bits of all its rows, bits of these rows): bit i is the element with
        batchIndex i, bit 0 a message outside a batch. Raises ValueError after ``release``, or where the columns for it
        were not built, and IndexError beyond the rows.
        """
        cdef Columns* c = &self.columns
        cdef int64_t at = first, start, stop, run = 0
        if not 0 <= first <= end <= self.rows:
            raise IndexError(f"rows {first} to {end} of {self.rows}")
        if first == end:
            return []
        if c.memory is NULL:
            raise ValueError("the chunk was released")
        if c.mask & PLACE_COLUMNS != PLACE_COLUMNS:
            raise ValueError("single rows are known by the columns ledger, offset and batchIndex: build them")
        found = []
        while at < end:
            while self.places.runs[run].first + self.places.runs[run].rows <= at:
                run += 1
            start = at
            while start > self.places.runs[run].first and same_entry(c, start - 1, at):
                start -= 1
            stop = at + 1
            while stop < self.places.runs[run].first + self.places.runs[run].rows and same_entry(c, stop, at):
                stop += 1
            found.append((
                self.places.runs[run].log, c.ledger[at], c.offset[at], start,
                element_bits(c, start, stop), element_bits(c, at, min(stop, end)),
            ))
            at = stop
        return found

    def batch_index(self, int64_t row):
        """The place of a row in its batch, -1 outside of one. Raises as ``elements`` does."""
        self.elements(row, row + 1)
        return self.columns.batch_index[row]

    def redeliveries(self, int64_t row):
        """How often the entry of a row was delivered again; 0 where that column was not built."""
        self.elements(row, row + 1)
        return self.columns.redelivery_count[row] if self.columns.mask & HAS_REDELIVERY_COUNT else 0

    def log(self, int index):
        """The Log behind a log index of ``runs``."""
        return self._logs[index]

    def release(self):
        """Let go of the columns; Arrow consumers keep what they hold. Spans stay. May be called again."""
        columns_drop(&self.columns)
        self.nbytes = 0


cdef inline bint same_entry(Columns* c, int64_t row, int64_t other) noexcept:
    return c.offset[row] == c.offset[other] and c.ledger[row] == c.ledger[other]


cdef object element_bits(Columns* c, int64_t first, int64_t end):
    """The batch indexes of rows of one entry, as the bits of a number."""
    cdef int64_t row
    cdef int32_t i, most = 0
    for row in range(first, end):
        most = max(most, c.batch_index[row])
    cdef bytearray bits = bytearray(most // 8 + 1)
    for row in range(first, end):
        i = max(c.batch_index[row], 0)
        bits[i >> 3] |= <uint8_t>(1 << (i & 7))
    return int.from_bytes(bits, "little")


cdef int build_topics(Chunk chunk) except -1:
    """The dictionary of the topic column: offsets and text in one block of the chunk's memory."""
    cdef Columns* c = &chunk.columns
    cdef int64_t count = len(chunk._topics)
    cdef int64_t size = (count + 1) * 4
    cdef int64_t i, at = 0
    cdef int32_t* offsets
    cdef uint8_t* data
    cdef bytes name
    cdef int klass = 0
    for name in chunk._topics:
        size += len(name)
    offsets = <int32_t*>fw_take(c.pool, <size_t>size, &klass)
    if offsets is NULL:
        raise MemoryError()
    c.memory.block[BLOCK_TOPICS] = offsets
    c.memory.klass[BLOCK_TOPICS] = klass
    if c.memory.count <= BLOCK_TOPICS:
        c.memory.count = BLOCK_TOPICS + 1
    data = <uint8_t*>(offsets + count + 1)
    for i in range(count):
        name = chunk._topics[i]
        offsets[i] = <int32_t>at
        memcpy(data + at, <const char*>name, <size_t>len(name))
        at += len(name)
    offsets[count] = <int32_t>at
    return 0


cdef Chunk chunk_close(Columns* columns, Places* places, list logs, list topics, list diverted):
    """Make a Chunk of what was built; ``columns`` and ``places`` are empty afterwards, hints stay."""
    cdef Chunk chunk = Chunk.__new__(Chunk)
    cdef int64_t rows = columns.rows
    chunk._logs = logs
    chunk._topics = topics
    chunk._marked = []
    chunk.diverted = diverted
    chunk.rows = rows
    chunk.payload_bytes = columns.payload
    chunk.places = places[0]
    memset(places, 0, sizeof(Places))
    if columns.memory is NULL:
        return chunk
    if rows == 0:
        columns_drop(columns)
        return chunk
    columns_finish(columns)
    chunk.columns = columns[0]
    columns.memory = NULL
    columns.rows = 0
    if columns.mask & HAS_TOPIC:
        build_topics(chunk)
    chunk.nbytes = fw_memory_bytes(chunk.columns.memory)
    return chunk


def marker_chunk(spans):
    """A chunk without rows that carries ``spans``: first positions, declared gaps."""
    cdef Chunk chunk = Chunk.__new__(Chunk)
    chunk._logs = []
    chunk._topics = []
    chunk._marked = list(spans)
    chunk.diverted = []
    return chunk


def in_order(spans):
    """Spans of each log by their start, adjacent ones merged: what was held closes the holes that it had left."""
    by_log = {}
    for span in spans:
        by_log.setdefault(span.log, []).append(span)
    merged = []
    for log, parts in by_log.items():
        parts.sort(key=lambda span: span.start)
        whole = []
        for span in parts:
            if whole and whole[-1].end == span.start:
                before = whole[-1]
                whole[-1] = Span(log, before.start, span.end, before.rows + span.rows, None, before.held_from)
            else:
                whole.append(span)
        merged += whole
    return merged


@cython.final
cdef class SpanAccumulator:
    """Merges the spans of many chunks in C; objects are made once a commit."""
    cdef Places places
    cdef list logs               # the list object that log indexes of the C rows refer to
    cdef list marked             # spans of markers, and of chunks with another list
    cdef int32_t* last           # log index -> its newest span + 1
    cdef int64_t last_size
    cdef bint late               # some span of a log begins before one that came earlier: parts that were held
    cdef readonly int64_t rows

    def __cinit__(self):
        self.marked = []

    def __dealloc__(self):
        places_drop(&self.places)
        free(self.last)

    cdef int merge(self, SpanRow* row) except -1:
        cdef SpanRow* known
        cdef int64_t at
        cdef int32_t* grown = <int32_t*>array_grown(self.last, &self.last_size, row.log + 1, sizeof(int32_t))
        if grown is NULL:
            raise MemoryError()
        self.last = grown
        if self.last[row.log]:
            known = &self.places.spans[self.last[row.log] - 1]
            if known.end_a == row.start_a and known.end_b == row.start_b:
                known.end_a = row.end_a
                known.end_b = row.end_b
                known.rows += row.rows
                return 0
            if row.start_a < known.end_a or (row.start_a == known.end_a and row.start_b < known.end_b):
                self.late = True
        at = places_open_span(&self.places, row.log, row.start_a, row.start_b)
        if at < 0:
            raise MemoryError()
        self.places.spans[at] = row[0]
        self.last[row.log] = <int32_t>(at + 1)
        return 0

    def add(self, Chunk chunk not None):
        """Take the spans of ``chunk``; chunks of one log must come in order."""
        cdef int64_t i
        self.rows += chunk.rows
        if self.logs is None and chunk.places.span_count:
            self.logs = chunk._logs
        if chunk._logs is not self.logs:
            self.marked.extend(chunk.spans())
            return
        self.marked.extend(chunk._marked)
        for i in range(chunk.places.span_count):
            self.merge(&chunk.places.spans[i])

    def take(self):
        """All spans since the last call, adjacent ones merged; the accumulator is empty afterwards."""
        cdef int64_t i
        spans = []
        for i in range(self.places.span_count):
            spans.append(span_object(&self.places.spans[i], self.logs))
        if self.late:
            spans = in_order(spans)
        spans = [*self.marked, *spans]
        self.marked = []
        self.logs = None
        self.late = False
        self.rows = 0
        places_drop(&self.places)
        if self.last is not NULL:
            memset(self.last, 0, <size_t>self.last_size * sizeof(int32_t))
        return spans
