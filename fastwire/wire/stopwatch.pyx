"""Time measurement of a scanner. Compiled code of ``fastwire`` has no clock; the caller may pass one."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer


@cython.final
cdef class Stopwatch:
    """Measures the phases of a scanner; ``clock`` is a capsule "fastwire.clock" of a C function that returns
    nanoseconds.

    Without a clock it measures nothing.
    """

    def __cinit__(self, clock=None):
        if clock is not None:
            self.clock = <Clock>PyCapsule_GetPointer(clock, "fastwire.clock")

    cdef tuple times(self):
        """Return nanoseconds of receive, framing and checksums, decompression, decoding; the last two are
        extrapolated.
        """
        cdef double share = <double>self.scan_ns / self.sampled_ns if self.sampled_ns > 0 else 0.0
        cdef int64_t decompress = <int64_t>(self.sampled_decompress_ns * share)
        cdef int64_t decode = <int64_t>(self.sampled_decode_ns * share)
        return self.receive_ns, max(0, self.scan_ns - decompress - decode), decompress, decode
