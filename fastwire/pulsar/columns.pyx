"""The columns of Pulsar's records, and what those of a chunk say of single rows: which elements of which entries."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport COL_OFFSET, Columns, has, int32s, int64s
from fastwire.columns.chunk cimport Chunk

from fastwire.columns.layout import RowLayout
from fastwire.columns.schema import StoredColumn

__all__ = ["ROW", "batch_index", "elements", "redeliveries"]

# The offset is that of the entry, the timestamp is when it was published: both are the same for a whole batch.
ROW = RowLayout(
    "pulsar",
    offset="constant",
    timestamp="constant",
    own=(
        StoredColumn("ledger", "constant", stats=True, storage="int64"),
        StoredColumn("batchIndex", "counter", storage="int32"),
        StoredColumn("eventTime", "counter", storage="rare time"),
        StoredColumn("producer", "constant", storage="strings"),
        StoredColumn("sequenceId", "counter", storage="int64"),
        StoredColumn("orderingKey", "plain", storage="bytes"),
        StoredColumn("schemaVersion", "constant", storage="bytes"),
        StoredColumn("redeliveryCount", "constant", storage="int32"),
    ),
    place=("ledger", "offset", "batchIndex"),
)


def elements(Chunk chunk not None, int64_t first, int64_t end):
    """Return which elements the rows ``first`` … ``end`` of ``chunk`` are, one tuple an entry.

    (log index, ledger, entry, its first row, bits of all its rows, bits of these rows): bit i is the element with
    batchIndex i, bit 0 a message outside a batch. Raises ValueError after ``Chunk.release``, or where the columns for
    it were not built, and IndexError beyond the rows.
    """
    cdef Columns* c = &chunk.columns
    cdef int64_t at = first, start, stop, run = 0
    if not 0 <= first <= end <= chunk.rows:
        raise IndexError(f"rows {first} to {end} of {chunk.rows}")
    if first == end:
        return []
    if c.memory is NULL:
        raise ValueError("the chunk was released")
    if not (has(c.mask, COL_LEDGER) and has(c.mask, COL_OFFSET) and has(c.mask, COL_BATCH_INDEX)):
        raise ValueError("single rows are known by the columns ledger, offset and batchIndex: build them")
    found = []
    while at < end:
        while chunk.places.runs[run].first + chunk.places.runs[run].rows <= at:
            run += 1
        start = at
        while start > chunk.places.runs[run].first and same_entry(c, start - 1, at):
            start -= 1
        stop = at + 1
        while stop < chunk.places.runs[run].first + chunk.places.runs[run].rows and same_entry(c, stop, at):
            stop += 1
        found.append((
            chunk.places.runs[run].log, int64s(c, COL_LEDGER)[at], int64s(c, COL_OFFSET)[at], start,
            element_bits(c, start, stop), element_bits(c, at, min(stop, end)),
        ))
        at = stop
    return found


def batch_index(Chunk chunk not None, int64_t row):
    """Return the place of a row in its batch, -1 outside of one. Raises as :func:`elements` does."""
    elements(chunk, row, row + 1)
    return int32s(&chunk.columns, COL_BATCH_INDEX)[row]


def redeliveries(Chunk chunk not None, int64_t row):
    """Return how often the entry of a row was delivered again; 0 where that column was not built.

    Raises as :func:`elements` does.
    """
    elements(chunk, row, row + 1)
    if not has(chunk.columns.mask, COL_REDELIVERY_COUNT):
        return 0
    return int32s(&chunk.columns, COL_REDELIVERY_COUNT)[row]


cdef inline bint same_entry(Columns* c, int64_t row, int64_t other) noexcept:
    cdef int64_t* entries = int64s(c, COL_OFFSET)
    cdef int64_t* ledgers = int64s(c, COL_LEDGER)
    return entries[row] == entries[other] and ledgers[row] == ledgers[other]


cdef object element_bits(Columns* c, int64_t first, int64_t end):
    """The batch indexes of rows of one entry, as the bits of a number."""
    cdef int32_t* indexes = int32s(c, COL_BATCH_INDEX)
    cdef int64_t row
    cdef int32_t i, most = 0
    for row in range(first, end):
        most = max(most, indexes[row])
    cdef bytearray bits = bytearray(most // 8 + 1)
    for row in range(first, end):
        i = max(indexes[row], 0)
        bits[i >> 3] |= <uint8_t>(1 << (i & 7))
    return int.from_bytes(bits, "little")
