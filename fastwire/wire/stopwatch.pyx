"""Where the time of a scanner goes. Compiled code of ``fastwire`` has no clock: it is given one, or none."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer


@cython.final
cdef class Stopwatch:
    """``clock`` is a capsule "fastwire.clock" of a C function of nanoseconds; without it nothing is measured."""

    def __cinit__(self, clock=None):
        if clock is not None:
            self.clock = <Clock>PyCapsule_GetPointer(clock, "fastwire.clock")

    cdef tuple times(self):
        """Nanoseconds of receiving, of frames and checksums, of decompression, of decoding; these two by sample."""
        cdef double share = <double>self.scan_ns / self.sampled_ns if self.sampled_ns > 0 else 0.0
        cdef int64_t decompress = <int64_t>(self.sampled_decompress_ns * share)
        cdef int64_t decode = <int64_t>(self.sampled_decode_ns * share)
        return self.receive_ns, max(0, self.scan_ns - decompress - decode), decompress, decode
