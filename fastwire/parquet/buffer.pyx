"""The buffers that pages are laid out in, kept from one file to the next."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo

from fastwire.parquet.codec import compressor, context_size

cdef enum:
    KEPT = 4 << 20               # bytes of a buffer that stays for the next chunk
    SPARE = 8 << 20              # bytes of all that stays for the next file
    MOST_SPARE = 2

# Fresh memory is mapped page by page at its first use, which costs a small file more than its levels do. The
# interpreter lock guards the list.
cdef list _spare = []            # the one given last at the end


@cython.final
cdef class Buffer:

    def __dealloc__(self):
        bytes_drop(&self.bytes)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes.data, self.bytes.size, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1


@cython.final
cdef class Scratch:

    def __cinit__(self):
        self.page = Buffer()

    def __dealloc__(self):
        bytes_drop(&self.plain)
        bytes_drop(&self.index)
        bytes_drop(&self.bits)
        bytes_drop(&self.levels)
        bytes_drop(&self.codes)

    cdef int64_t size(self) except -1:
        """Return the bytes that it occupies."""
        return (
            <int64_t>context_size(self.compress) + self.page.bytes.capacity + self.plain.capacity
            + self.index.capacity + self.bits.capacity + self.levels.capacity + self.codes.capacity
        )

    cdef void shrink(self) noexcept:
        """Give back the large ones."""
        shrink(&self.page.bytes)
        shrink(&self.plain)
        shrink(&self.index)
        shrink(&self.bits)
        shrink(&self.levels)
        shrink(&self.codes)


cdef void shrink(Bytes* b) noexcept:
    if b.capacity > KEPT:
        bytes_drop(b)


cdef Scratch take_scratch(str codec, object level):
    """Return one that was given back with this codec and level, or a new one. Raises ValueError for no codec."""
    cdef Scratch scratch
    cdef Py_ssize_t at
    cdef tuple kind = (codec, level)
    for at in range(len(_spare) - 1, -1, -1):
        scratch = _spare[at]
        if scratch.kind == kind:
            return _spare.pop(at)
    scratch = Scratch()
    scratch.kind = kind
    scratch.compress = compressor(codec, level)
    return scratch


cdef int give_scratch(Scratch scratch) except -1:
    """Keep it for the next writer, in place of the one given first if there are many, unless it is large."""
    if scratch.size() <= SPARE:
        _spare.append(scratch)
        if len(_spare) > MOST_SPARE:
            del _spare[0]
    return 0
