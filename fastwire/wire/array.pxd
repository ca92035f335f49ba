"""Growable arrays of C structs."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memset


cdef inline void* array_grown(void* items, int64_t* capacity, int64_t count, size_t each) noexcept nogil:
    """Return ``items`` with room for ``count``, new ones zero; NULL without memory, and ``items`` is unchanged then."""
    cdef int64_t room = capacity[0] if capacity[0] else 4
    cdef void* grown
    if count <= capacity[0]:
        return items
    while room < count:
        room *= 2
    grown = realloc(items, <size_t>room * each)
    if grown is NULL:
        return NULL
    memset(<uint8_t*>grown + <size_t>capacity[0] * each, 0, <size_t>(room - capacity[0]) * each)
    capacity[0] = room
    return grown
