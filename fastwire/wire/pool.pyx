"""The memory that receive buffers and columns are made of; its counter is the byte budget of the process."""

cimport cython

from fastwire.wire.pool cimport (
    fw_pool_charge,
    fw_pool_charged,
    fw_pool_kept,
    fw_pool_limit,
    fw_pool_new,
    fw_pool_peak,
    fw_pool_trim,
    fw_pool_unref,
    fw_pool_used,
)


@cython.final
cdef class Pool:
    """Blocks of memory by size class.

    ``limit`` is the budget in bytes. The pool never refuses a block because of it: whoever asks a broker for more looks
    at ``used`` first. Blocks come back on any thread; the memory outlives this object while a chunk is alive.
    """

    def __cinit__(self, long long limit):
        if limit <= 0:
            raise ValueError("limit must be positive")
        self.pool = fw_pool_new(limit)
        if self.pool is NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.pool is not NULL:
            fw_pool_unref(self.pool)

    def charge(self, long long size):
        """``size`` bytes more are held for records outside of any block; a negative number gives them back."""
        fw_pool_charge(self.pool, size)

    @property
    def charged(self):
        """Bytes that were charged and not given back."""
        return fw_pool_charged(self.pool)

    @property
    def used(self):
        """Bytes in blocks that are out, and what was charged."""
        return fw_pool_used(self.pool)

    @property
    def peak(self):
        """The highest ``used`` so far."""
        return fw_pool_peak(self.pool)

    @property
    def limit(self):
        """The budget in bytes."""
        return fw_pool_limit(self.pool)

    @property
    def kept(self):
        """Bytes in blocks that came back and wait for the next use."""
        return fw_pool_kept(self.pool)

    def trim(self, long long keep=0):
        """Give blocks that nobody uses back to the system until at most ``keep`` bytes of them stay."""
        with nogil:
            fw_pool_trim(self.pool, keep)
