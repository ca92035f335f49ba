"""Memory pool of receive buffers and columns; its counter is the memory budget of the process."""

cimport cython

from fastwire.wire.pool cimport (
    fw_count,
    fw_most_payload,
    fw_pool_charge,
    fw_pool_charged,
    fw_pool_kept,
    fw_pool_limit,
    fw_pool_new,
    fw_pool_peak,
    fw_pool_receiving,
    fw_pool_trim,
    fw_pool_unref,
    fw_pool_used,
)


@cython.final
cdef class Pool:
    """Blocks of memory by size class.

    ``limit`` is the budget in bytes. The pool never refuses a block because of it: callers check ``used`` before they
    request more data. Blocks may be released on any thread; the memory outlives this object while a chunk is alive.
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
        """Count ``size`` more bytes that records occupy outside of any block; a negative number releases them."""
        fw_pool_charge(self.pool, size)

    @property
    def charged(self):
        """Bytes charged and not released."""
        return fw_pool_charged(self.pool)

    @property
    def receiving(self):
        """Bytes of the blocks that are receive buffers; a part of ``used``."""
        return fw_pool_receiving(self.pool)

    @property
    def used(self):
        """Bytes in blocks in use, and charged bytes."""
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
    def most_payload(self):
        """Limit of the payload of one entry, as received and decompressed: an eighth of the budget in bytes."""
        return fw_most_payload(self.pool)

    @property
    def kept(self):
        """Bytes in released blocks that are kept for reuse."""
        return fw_pool_kept(self.pool)

    def trim(self, long long keep=0):
        """Return unused blocks to the system until at most ``keep`` bytes of them are left."""
        with nogil:
            fw_pool_trim(self.pool, keep)


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class Charge:
    """``size`` bytes of a pool's budget that are held outside of its blocks for the life of this object.

    In contrast to ``Pool.charge``, the bytes are released together with the chunk that holds this object.
    """

    def __cinit__(self, Pool pool not None):
        self._pool = pool

    def __dealloc__(self):
        if self._pool is not None:
            fw_count(self._pool.pool, -self.size)

    cdef void add(self, long long size) noexcept:
        fw_count(self._pool.pool, size)
        self.size += size
