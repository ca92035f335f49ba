from libc.stdint cimport int64_t

ctypedef int64_t (*Clock)() noexcept nogil

cdef enum:
    SAMPLED = 63                 # one of 64 units is measured: a measurement costs more than a part of a unit


cdef class Stopwatch:
    cdef Clock clock             # or NULL
    cdef bint sampling           # the current unit is measured
    cdef int64_t asked_at
    cdef int64_t receive_ns
    cdef int64_t scan_ns
    cdef int64_t sampled_ns
    cdef int64_t sampled_decompress_ns
    cdef int64_t sampled_decode_ns

    cdef inline void asked(self) noexcept:
        """Start of a receive: a buffer was handed out."""
        if self.clock is not NULL:
            self.asked_at = self.clock()

    cdef inline void received(self) noexcept:
        """End of a receive."""
        if self.clock is not NULL:
            self.receive_ns += self.clock() - self.asked_at

    cdef inline int64_t begin(self) noexcept:
        """Return the start time of a scan."""
        return 0 if self.clock is NULL else self.clock()

    cdef inline void end(self, int64_t began) noexcept:
        """End of a scan."""
        if self.clock is not NULL:
            self.scan_ns += self.clock() - began

    cdef inline int64_t begin_unit(self, int64_t number) noexcept:
        """Return the start time of unit ``number``, which is decompressed and decoded as a whole."""
        self.sampling = self.clock is not NULL and number & SAMPLED == 0
        return self.now()

    cdef inline void end_unit(self, int64_t began) noexcept:
        """End of a unit."""
        if self.sampling:
            self.sampled_ns += self.clock() - began
            self.sampling = False

    cdef inline int64_t now(self) noexcept:
        """Return the start time of a part of a unit."""
        return self.clock() if self.sampling else 0

    cdef inline void decompressed(self, int64_t began) noexcept:
        """End of decompression."""
        if self.sampling:
            self.sampled_decompress_ns += self.clock() - began

    cdef inline void decoded(self, int64_t began) noexcept:
        """End of decoding."""
        if self.sampling:
            self.sampled_decode_ns += self.clock() - began

    cdef tuple times(self)
