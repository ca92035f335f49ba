from libc.stdint cimport int32_t, int64_t, uint64_t


cdef class LogTable:
    cdef list logs
    cdef list topics             # bytes, by topic number
    cdef dict topic_index
    cdef uint64_t chunks         # chunks opened so far, by all scanners of this table
    cdef int64_t room            # rows that may still be taken; -1 = any number
    cdef int32_t topic_of(self, log) except -1
