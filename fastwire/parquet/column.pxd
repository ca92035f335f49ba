from libc.stdint cimport int64_t

from fastwire.parquet.buffer cimport Scratch
from fastwire.parquet.ends cimport Ends
from fastwire.parquet.nested cimport Part
from fastwire.parquet.schema cimport Node
from fastwire.parquet.values cimport Picked


cdef class PageWriter:
    """Lays out the pages of column chunks, one chunk after the other."""

    cdef readonly int64_t position
    """Bytes of the file so far, those of other writers included."""

    cdef str codec
    cdef object level
    cdef int number              # of the codec
    cdef object write
    cdef list waiting            # small pieces that are not written yet
    cdef int64_t waiting_bytes
    cdef int64_t most_waiting
    cdef Scratch scratch
    # of the chunk at hand
    cdef int64_t began
    cdef int64_t dictionary_at
    cdef int64_t data_at
    cdef int64_t raw
    cdef int64_t packed
    cdef object pages            # their index
    cdef int64_t rows            # that begin in the page at hand
    cdef dict encodings

    cdef tuple chunk(self, Node node, list parts, str role, bint stats)
    cdef int put(self, bytes data) except -1
    cdef int flush(self) except -1
    cdef int end_page(self, int64_t entries, int64_t values, int encoding, Ends ends) except -1
    cdef int put_page(self, int kind, int64_t values, int encoding) except -1
    cdef int begin_page(self, Node node, list pieces) except -1
    cdef int plain_pages(self, Node node, list parts, bint deltas, Ends ends) except -1
    cdef bint words_page(self, Node node, list parts, bint expected, Ends ends) except -1
    cdef int put_levels(self, list pieces, int64_t count, bint repetitions, int width) except -1
    cdef int plain_page(self, Node node, list pieces, bint deltas, Ends ends) except -1
    cdef int look_up(self, Node node, Part part, Picked* picked) except -1
    cdef int rest(self) except -1
