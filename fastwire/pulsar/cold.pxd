from libc.stdint cimport int64_t


cdef class ColdEntry:
    cdef readonly object consumer_id
    cdef readonly object log
    cdef readonly object ledger
    cdef readonly object entry
    cdef readonly object permits
    cdef readonly object redelivery_count
    cdef readonly bint ordered
    cdef readonly bint held      # by ``Scanner.hold``; what it follows is remembered for the span that it gets
    cdef readonly str reason
    cdef readonly str detail
    cdef readonly bytes payload
    cdef int64_t after_ledger
    cdef int64_t after_entry
    cdef bytes ack_set           # its words in our own byte order; None if there was none
