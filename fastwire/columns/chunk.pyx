"""A chunk: records of all partitions of one connection as Arrow columns, with their spans.

The Arrow C data interface exports the memory; plain C code releases it on the thread of the last holder. No Arrow
library is needed for that.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from fastwire.columns.arrow cimport export_array, export_schema
from fastwire.columns.builder cimport (
    BLOCK_TOPICS,
    COL_TIMESTAMP,
    COL_TOPIC,
    NO_TIME,
    Columns,
    columns_drop,
    columns_finish,
    has,
    int64s,
)
from fastwire.columns.layout cimport RowLayout
from fastwire.wire.array cimport array_grown
from fastwire.wire.pool cimport Charge, fw_memory_bytes, fw_take

from dataclasses import dataclass

from fastwire.reason import Reason
from fastwire.position import Log, Position, Span

__all__ = ["Chunk", "DeadLetter", "SpanAccumulator", "marker_chunk"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that could not be decoded: ``payload`` is everything after the command, ``rows`` its announced row
    count.

    ``reason`` is text for people, ``damage`` a code for programs. ``wanted`` selects elements of a batch: bits of words
    with 8 bytes each, low first; empty for all. ``start`` is the position before the entry, if ``position`` does not
    determine it.
    """

    log: Log
    position: Position
    reason: str
    payload: bytes
    rows: int
    wanted: bytes = b""
    damage: Reason | None = None
    start: Position | None = None


# --- spans and runs of an open chunk

cdef int64_t places_open_span(Places* p, int32_t log, int64_t a, int64_t b) noexcept nogil:
    """Start a span without rows after position (a, b)."""
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
    row.holds = row.witnessed = False
    p.span_count += 1
    return p.span_count - 1


cdef int places_run(Places* p, int32_t log, int64_t first, int64_t rows) noexcept nogil:
    """Add the rows from ``first`` on to the runs; they extend the last run if it has the same log."""
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


cdef inline bint before(int64_t a, int64_t b, int64_t other_a, int64_t other_b) noexcept nogil:
    return a < other_a or (a == other_a and b < other_b)


cdef object span_object(SpanRow* row, list logs):
    held_from = Position(row.held_a, row.held_b) if row.holds else None
    return Span(
        logs[row.log], Position(row.start_a, row.start_b), Position(row.end_a, row.end_b), row.rows, None, held_from,
        row.witness if row.witnessed else None,
    )


@cython.final
cdef class Chunk:
    """Records as Arrow columns (a struct array by the C data interface) and their spans.

    ``rows`` records with ``payload_bytes`` of values in ``nbytes`` of pooled memory; ``dead_letter_bytes`` is the share
    of the ``dead_letters`` of the budget. A chunk may have spans or dead letters and no rows.
    """

    def __dealloc__(self):
        columns_drop(&self.columns)
        places_drop(&self.places)

    def __arrow_c_schema__(self):
        """Return an ``arrow_schema`` capsule."""
        if self._carried is not None:
            return self._carried.__arrow_c_schema__()
        return export_schema(&self.columns)

    def __arrow_c_array__(self, requested_schema=None):
        """Return the pair of capsules of the Arrow PyCapsule interface; the memory is shared, not copied.

        ``requested_schema`` is ignored, as the interface allows: consumers cast. A chunk without rows gives all columns
        without rows. Raises ValueError after ``release`` of rows.
        """
        if self._carried is not None:
            return self._carried.__arrow_c_array__(requested_schema)
        if self.rows and self.columns.memory is NULL:
            raise ValueError("the chunk was released")
        return export_schema(&self.columns), export_array(&self.columns, len(self._topics))

    def carry(self, batch, int64_t payload_bytes, int64_t nbytes):
        """Give a part of split chunks its rows: ``batch``, an Arrow record batch of its own ``nbytes`` of memory.

        They are released like those of any chunk. Raises ValueError if they are not as many as the part has.
        """
        if batch.num_rows != self.rows or self.columns.memory is not NULL:
            raise ValueError(f"{batch.num_rows} rows for a part of {self.rows}")
        self._carried = batch
        self.payload_bytes = payload_bytes
        self.nbytes = nbytes

    @property
    def apart(self):
        """True if the memory of the rows is not that of the pool."""
        return self._carried is not None

    @property
    def unfit_times(self):
        """Number of times that the columns cannot hold: the nearest time that they can stands for each."""
        return self.columns.unfit_times

    def newest_time(self):
        """Return the latest timestamp of the rows, in microseconds since 1970.

        None without one, or after ``release``.
        """
        cdef int64_t* times
        cdef int64_t newest = NO_TIME
        cdef int64_t i
        if not self.rows or self.columns.memory is NULL or not has(self.columns.mask, COL_TIMESTAMP):
            return None
        times = int64s(&self.columns, COL_TIMESTAMP)
        with nogil:
            for i in range(self.rows):
                newest = times[i] if times[i] > newest else newest
        return None if newest == NO_TIME else newest

    @property
    def dead_letter_bytes(self):
        """Bytes of the budget that the dead letters occupy for the life of the chunk."""
        return 0 if self._dead_letter_charge is None else self._dead_letter_charge.size

    def spans(self):
        """The spans as objects; a commit uses SpanAccumulator instead."""
        return [*self._marked, *(span_object(&self.places.spans[i], self._logs) for i in range(self.places.span_count))]

    def runs(self):
        """Return runs of consecutive rows of one log in row order: (log index, first row, rows)."""
        cdef RunRow* r = self.places.runs
        return [(r[i].log, r[i].first, r[i].rows) for i in range(self.places.run_count)]

    def entries(self):
        """Return (log index, a, first b, last b) of each span, for systems whose spans lie within one ``a``."""
        cdef SpanRow* r = self.places.spans
        return [(r[i].log, r[i].end_a, r[i].start_b + 1, r[i].end_b) for i in range(self.places.span_count)]

    def log(self, int index):
        """Return the Log of a log index in ``runs``."""
        return self._logs[index]

    def release(self):
        """Release the columns; Arrow consumers keep their references. The spans stay. Repeated calls are allowed."""
        columns_drop(&self.columns)
        self._carried = None
        self.nbytes = 0


cdef int build_topics(Chunk chunk) except -1:
    """Build the dictionary of the topic column: offsets and text in one block of the chunk's memory."""
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


cdef Chunk chunk_close(
    RowLayout row, Columns* columns, Places* places, list logs, list topics, list dead_letters, Charge charge
):
    """Make a Chunk of the open columns; ``columns`` and ``places`` are empty afterwards, hints stay."""
    cdef Chunk chunk = Chunk.__new__(Chunk)
    cdef int64_t rows = columns.rows
    chunk._logs = logs
    chunk._topics = topics
    chunk._marked = []
    chunk.dead_letters = dead_letters
    chunk._dead_letter_charge = charge
    chunk.rows = rows
    chunk.payload_bytes = columns.payload
    chunk.places = places[0]
    memset(places, 0, sizeof(Places))
    chunk._row = row
    if rows == 0:
        chunk.columns.layout, chunk.columns.mask = columns.layout, columns.mask
        columns_drop(columns)
        return chunk
    columns_finish(columns)
    chunk.columns = columns[0]
    columns.memory = NULL
    columns.rows = 0
    if has(columns.mask, COL_TOPIC):
        build_topics(chunk)
    chunk.nbytes = fw_memory_bytes(chunk.columns.memory)
    return chunk


def marker_chunk(spans):
    """Return a chunk without rows that carries ``spans``: first positions, declared gaps."""
    cdef Chunk chunk = Chunk.__new__(Chunk)
    chunk._logs = []
    chunk._topics = []
    chunk._marked = list(spans)
    chunk.dead_letters = []
    return chunk


cdef void extend_hold(SpanRow* known, SpanRow* row) noexcept nogil:
    """Merge ``row`` into ``known``, which it follows; the earlier of their held positions counts for both."""
    if not row.holds or not before(row.held_a, row.held_b, known.start_a, known.start_b):
        return
    if not known.holds or before(row.held_a, row.held_b, known.held_a, known.held_b):
        known.holds = True
        known.held_a = row.held_a
        known.held_b = row.held_b


def in_order(spans):
    """Sort the spans of each log by their start and merge adjacent ones: late spans fill the holes of held entries."""
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
                held = [each.held_from for each in (before, span) if each.held_from is not None]
                held_from = min((each for each in held if each < before.start), default=None)
                rows = before.rows + span.rows
                whole[-1] = Span(log, before.start, span.end, rows, None, held_from, span.witness)
            else:
                whole.append(span)
        merged += whole
    return merged


@cython.final
cdef class SpanAccumulator:
    """Merges the spans of many chunks in C; Python objects are created once per commit."""
    cdef Places places
    cdef list logs               # the list that log indexes of the C rows refer to
    cdef list marked             # spans of markers, and of chunks with another list
    cdef int32_t* last           # log index -> its newest span + 1
    cdef int64_t last_size
    cdef bint late               # some span begins before an earlier one of its log: chunks of a message were held
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
                known.witnessed = row.witnessed
                known.witness = row.witness
                extend_hold(known, row)
                return 0
            if before(row.start_a, row.start_b, known.end_a, known.end_b):
                self.late = True
        at = places_open_span(&self.places, row.log, row.start_a, row.start_b)
        if at < 0:
            raise MemoryError()
        self.places.spans[at] = row[0]
        self.last[row.log] = <int32_t>(at + 1)
        return 0

    def add(self, Chunk chunk not None):
        """Add the spans of ``chunk``; chunks of one log must come in order."""
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
        """Return all spans since the last call, adjacent ones merged; the accumulator is empty afterwards."""
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
