from libc.stdint cimport int64_t

ctypedef int64_t (*Clock)() noexcept nogil

cdef enum:
    SAMPLED = 63                 # of 64 units one is timed part by part: cheaper than any of its parts


cdef class Stopwatch:
    cdef Clock clock             # or NULL
    cdef bint sampling           # the unit that is being read is timed
    cdef int64_t asked_at
    cdef int64_t receive_ns
    cdef int64_t scan_ns
    cdef int64_t sampled_ns
    cdef int64_t sampled_decompress_ns
    cdef int64_t sampled_decode_ns

    cdef inline void asked(self) noexcept:
        """A buffer was given out to be filled."""
        if self.clock is not NULL:
            self.asked_at = self.clock()

    cdef inline void received(self) noexcept:
        """It was filled."""
        if self.clock is not NULL:
            self.receive_ns += self.clock() - self.asked_at

    cdef inline int64_t begin(self) noexcept:
        """Before a scan."""
        return 0 if self.clock is NULL else self.clock()

    cdef inline void end(self, int64_t began) noexcept:
        """Behind it."""
        if self.clock is not NULL:
            self.scan_ns += self.clock() - began

    cdef inline int64_t begin_unit(self, int64_t number) noexcept:
        """Before unit ``number`` of those that are decompressed and decoded as a whole."""
        self.sampling = self.clock is not NULL and number & SAMPLED == 0
        return self.now()

    cdef inline void end_unit(self, int64_t began) noexcept:
        """Behind it."""
        if self.sampling:
            self.sampled_ns += self.clock() - began
            self.sampling = False

    cdef inline int64_t now(self) noexcept:
        """Before a part of a unit."""
        return self.clock() if self.sampling else 0

    cdef inline void decompressed(self, int64_t began) noexcept:
        """It is decompressed."""
        if self.sampling:
            self.sampled_decompress_ns += self.clock() - began

    cdef inline void decoded(self, int64_t began) noexcept:
        """It is decoded."""
        if self.sampling:
            self.sampled_decode_ns += self.clock() - began

    cdef tuple times(self)
