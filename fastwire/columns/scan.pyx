"""What every system's scanner is: a receive buffer on one side, the open chunk on the other, and why it stopped."""

from fastwire.columns.schema import column_mask

__all__ = ["CHUNK_FULL", "NEED_BYTES", "OUTPUT_CAP", "ChunkScanner"]

NEED_BYTES = STOP_NEED_BYTES
CHUNK_FULL = STOP_CHUNK_FULL
OUTPUT_CAP = STOP_OUTPUT_CAP


cdef class ChunkScanner:
    """Bytes of one connection to chunks.

    ``get_buffer`` and ``received`` take the bytes, ``scan`` decodes until it stops for a reason, and ``take_chunk`` and
    what else a system's scanner has to take give what it stopped for.

    With a ``clock`` (a capsule "fastwire.clock" of a C function that returns nanoseconds) ``times`` tells what took how
    long.
    """

    def __cinit__(self):
        if type(self) is ChunkScanner:
            raise TypeError("every system has a scanner of its own")

    cdef int prepare(
        self, LogTable table, Pool pool, str system, columns, str on_corrupt, int64_t buffer_bytes, clock
    ) except -1:
        """What a system's ``__cinit__`` begins with: nothing here works without."""
        if on_corrupt not in ("divert", "stop"):
            raise ValueError(f"on_corrupt is {on_corrupt!r}")
        self.watch = Stopwatch(clock)
        self.table = table
        self.buffer = ReceiveBuffer(pool, buffer_bytes)
        self.codecs = Decompressor(pool)
        self.open = OpenChunk(pool, table, column_mask(system, columns))
        self.divert_corrupt = on_corrupt == "divert"
        return 0

    @property
    def open_rows(self):
        """Rows in the open chunk."""
        return self.open.columns.rows

    @property
    def has_open(self):
        """Whether ``take_chunk`` would give something."""
        return not self.open.empty()

    @property
    def buffered(self):
        """Bytes received and not parsed yet."""
        return self.buffer.end - self.buffer.start

    def get_buffer(self, int sizehint=-1):
        """Where the next bytes go; never empty."""
        view = self.buffer.writable()
        self.watch.asked()
        return view

    def received(self, int64_t nbytes):
        """``nbytes`` were put into the last ``get_buffer``."""
        self.watch.received()
        self.buffer.commit(nbytes)
        self.received_bytes += nbytes
        self.produced = 0

    def rest(self):
        """Called now and then: where nothing has come since the last call, an empty receive buffer goes back."""
        if self.received_bytes == self.rested_at:
            self.buffer.rest()
        self.rested_at = self.received_bytes

    def resume(self):
        """After OUTPUT_CAP: the caller has let others run."""
        self.produced = 0

    def times(self):
        """Nanoseconds spent on receiving, on frames and checksums, on decompression, on decoding (these two by sample).

        Receiving is what lies between ``get_buffer`` and ``received``. All 0 without a clock.
        """
        return self.watch.times()

    def scan(self):
        """Decode what is buffered; returns a Stop of the system's as int."""
        cdef int64_t began = self.watch.begin()
        try:
            return self.run()
        finally:
            self.watch.end(began)

    cdef int run(self) except -1:
        raise NotImplementedError

    def take_chunk(self):
        """Close the open chunk and return it; None if there is nothing in it."""
        return self.open.take()

    def drop_chunk(self):
        """Forget what the open chunk holds; the slots still count it as staged."""
        self.open.drop()
