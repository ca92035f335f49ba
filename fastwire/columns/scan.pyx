"""Base of the scanners of all systems: a receive buffer, the open chunk, and the reason of each stop."""

from fastwire.columns.open cimport OUTPUT_CAP_BYTES
from fastwire.wire.pool cimport OUTPUT_SHARE, fw_most_frame, fw_pool_limit

from enum import IntEnum

cdef enum:
    PEEKED = 8

__all__ = ["CHUNK_FULL", "NEED_BYTES", "OUTPUT_CAP", "ChunkScanner", "Stop"]

# Plain numbers: a comparison with a member of an enumeration takes several times as long.
NEED_BYTES = STOP_NEED_BYTES
CHUNK_FULL = STOP_CHUNK_FULL
OUTPUT_CAP = STOP_OUTPUT_CAP


class Stop(IntEnum):
    """Reason of the return of ``ChunkScanner.scan``. The caller handles it and calls again, which keeps wire order."""

    NEED_BYTES = STOP_NEED_BYTES
    CHUNK_FULL = STOP_CHUNK_FULL
    OUTPUT_CAP = STOP_OUTPUT_CAP
    FOUND = STOP_FOUND


cdef class ChunkScanner:
    """Decodes the bytes of one connection into chunks.

    ``get_buffer`` and ``received`` take the bytes, ``scan`` decodes until it stops for a reason, and ``take_chunk`` and
    ``take_found`` return what it stopped for.

    With a ``clock`` (a capsule "fastwire.clock" of a C function that returns nanoseconds) ``times`` returns durations.
    ``memory`` is the budget of the pool, in bytes.
    """

    def __cinit__(self):
        if type(self) is ChunkScanner:
            raise TypeError("every system has a scanner of its own")

    cdef int prepare(
        self, LogTable table, Pool pool, RowLayout row, columns, str on_corrupt, int64_t buffer_bytes, clock
    ) except -1:
        """Initialise the members; a system's ``__cinit__`` begins with this call."""
        if on_corrupt not in ("dead_letter", "stop"):
            raise ValueError(f"on_corrupt is {on_corrupt!r}")
        self.watch = Stopwatch(clock)
        self.table = table
        self.buffer = ReceiveBuffer(pool, buffer_bytes)
        self.codecs = Decompressor(pool)
        self.open = OpenChunk(pool, table, row, columns)
        self.keeps_corrupt = on_corrupt == "dead_letter"
        self.memory = fw_pool_limit(pool.pool)
        self.output_cap = min(<int64_t>OUTPUT_CAP_BYTES, self.memory // OUTPUT_SHARE)
        self.most_frame = fw_most_frame(pool.pool)
        return 0

    cdef str frame_too_large(self, int64_t size):
        """Return the error text for ``size`` bytes that must be received in one piece."""
        return (
            f"{size} bytes in one piece are more than {self.most_frame}, a quarter of the memory budget: "
            "more memory (daemon.memory) lets it pass"
        )

    @property
    def open_rows(self):
        """Rows in the open chunk."""
        return self.open.columns.rows

    @property
    def has_open(self):
        """True if ``take_chunk`` would return a chunk."""
        return not self.open.empty()

    @property
    def buffered(self):
        """Bytes received and not parsed yet."""
        return self.buffer.end - self.buffer.start

    def peek(self):
        """Return the first of the bytes received and not parsed yet, 8 at most."""
        return (<const char*>self.buffer.data)[self.buffer.start:min(self.buffer.end, self.buffer.start + PEEKED)]

    def get_buffer(self, int sizehint=-1):
        """Return a writable buffer for the next bytes, never empty."""
        view = self.buffer.writable()
        self.watch.asked()
        return view

    def received(self, int64_t nbytes):
        """Accept ``nbytes`` bytes that were written to the last ``get_buffer``."""
        self.watch.received()
        self.buffer.commit(nbytes)
        self.received_bytes += nbytes
        self.produced = 0

    def rest(self):
        """Release an empty receive buffer and the decompression buffer, if nothing came since the last call."""
        if self.received_bytes == self.rested_at:
            self.buffer.rest()
            self.codecs.release()
        self.rested_at = self.received_bytes

    def shrink(self):
        """Release the part of the receive buffer that its bytes do not need; for a connection that is not read."""
        self.buffer.fit()

    @property
    def growths(self):
        """The number of times that the receive buffer has grown for a frame."""
        return self.buffer.growths

    def resume(self):
        """Start a new turn after OUTPUT_CAP."""
        self.produced = 0

    def times(self):
        """Return nanoseconds of receive, framing and checksums, decompression, decoding (the last two are
        extrapolated).

        A receive lasts from ``get_buffer`` to ``received``. All are 0 without a clock.
        """
        return self.watch.times()

    def scan(self):
        """Decode buffered bytes; return a Stop as int.

        A chunk that must not grow is full even if no further record is there: other connections may use up the budget
        before this one receives its next bytes.
        """
        cdef int64_t began = self.watch.begin()
        cdef int stop
        self.found = None
        try:
            stop = self.run()
        finally:
            self.watch.end(began)
        if stop <= STOP_OUTPUT_CAP and self.open.heavy():
            return STOP_CHUNK_FULL
        return stop

    cdef int run(self) except -1:
        raise NotImplementedError

    def take_found(self):
        """Return the object of the system that ``scan`` stopped for with FOUND; None if it was taken before."""
        found = self.found
        self.found = None
        return found

    def take_chunk(self):
        """Close the open chunk and return it; None if there is nothing in it."""
        return self.open.take()

    def drop_chunk(self):
        """Discard the open chunk; the slots still count its records as staged."""
        self.open.drop()
