"""The daemon's clocks. State machines of ``fastwire`` have none: compiled code takes ``CLOCK`` as an argument."""

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    const int CLOCK_MONOTONIC
    const int CLOCK_REALTIME


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


def now_ms():
    """Return the milliseconds since 1970."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


CLOCK = PyCapsule_New(<void*>monotonic_ns, "fastwire.clock", NULL)
