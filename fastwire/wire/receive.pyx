"""Receive buffer of a connection, reused so that it stays in the CPU cache, and parsed in place."""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memmove

from fastwire.wire.pool cimport Pool, fw_give, fw_pool_receive, fw_take

cdef enum:
    LEAST_FREE = 65_536          # a smaller read is not worth a wake-up


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class ReceiveBuffer:
    """Bytes from a socket.

    ``writable()`` gives the free tail, ``commit(n)`` says that n bytes were put there, and the parser, compiled beside
    it, moves ``start``. A cut-off frame is carried to the front once; the buffer grows to a larger frame when the
    parser asks by ``wanted`` (it has checked the size) and shrinks back when that frame is through. It grows as bytes
    come, at most to twice what has: a size is soon written, and what is reserved for it is taken from everybody else.
    Only as much as a frame has already had on this connection is reserved at once.
    """

    def __cinit__(self, Pool pool not None, int64_t capacity=1 << 20):
        self._pool = pool
        self._class = -1
        self.usual = capacity
        self.largest = capacity
        self.move(capacity)

    def __dealloc__(self):
        self.give()

    cdef void give(self) noexcept:
        """Release the block, if there is one."""
        if self.data is not NULL:
            fw_pool_receive(self._pool.pool, -self.capacity)
            fw_give(self._pool.pool, self.data, self._class)
            self.data = NULL
            self.capacity = 0

    cdef int move(self, int64_t capacity) except -1:
        """Move to a block of ``capacity`` bytes, with the unparsed bytes."""
        cdef int klass = 0
        cdef uint8_t* at
        cdef int64_t size = self.end - self.start
        if self.exports:
            raise BufferError("the receive buffer cannot move while a view of it is out")
        at = <uint8_t*>fw_take(self._pool.pool, <size_t>capacity, &klass)
        if at is NULL:
            raise MemoryError()
        if self.data is not NULL:
            memcpy(at, self.data + self.start, <size_t>size)
            self.give()
        self.data = at
        self._class = klass
        self.capacity = <int64_t>1 << klass
        fw_pool_receive(self._pool.pool, self.capacity)
        self.start = 0
        self.end = size
        return 0

    def writable(self):
        """A writable view of the free tail, never empty."""
        cdef int64_t size = self.end - self.start
        cdef int64_t needed = size + LEAST_FREE
        cdef int64_t grown
        if size == 0:
            self.start = self.end = 0
        if self.wanted > needed:
            grown = self.capacity if needed <= self.capacity else self.capacity * 2
            needed = min(self.wanted, max(grown, self.largest))
        if self.data is NULL:
            self.move(max(needed, self.usual))
        elif needed > self.capacity:
            self.growths += 1
            self.move(needed)
        elif self.capacity > self.usual * 2 and needed <= self.usual:
            self.move(self.usual)
        elif self.capacity - self.start < needed or self.capacity - self.end < LEAST_FREE:
            memmove(self.data, self.data + self.start, <size_t>size)
            self.start = 0
            self.end = size
        return memoryview(self)

    def commit(self, int64_t count):
        """Count ``count`` bytes written to the last ``writable()``. Raises ValueError for more than its size."""
        if count < 0 or count > self.capacity - self.end:
            raise ValueError(f"{count} bytes do not fit the buffer")
        self.end += count
        self.largest = max(self.largest, self.end - self.start)

    cdef int fit(self) except -1:
        """Move to the smallest block that holds the unparsed bytes, unless a view of the present one exists."""
        cdef int64_t size = max(self.end - self.start, self.usual)
        if self.capacity >= size * 2 and not self.exports:
            self.move(size)
        return 0

    def rest(self):
        """Release the memory if the buffer is empty and no view of it exists; ``writable()`` allocates it again."""
        if self.end == self.start and not self.exports:
            self.give()
            self.start = self.end = 0

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data + self.end, self.capacity - self.end, 0, flags | PyBUF_WRITABLE)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    def __len__(self):
        return self.end - self.start
