from libc.stdint cimport int64_t


cdef class ColdEntry:
    cdef readonly object consumer_id
    cdef readonly object log
    cdef readonly object ledger
    cdef readonly object entry
    cdef readonly object permits
    cdef readonly object redelivery_count
    cdef readonly bint ordered
    cdef readonly bint too_often   # more redeliveries than its slot allows
    cdef readonly bint held      # by ``Scanner.hold``; its predecessor is remembered for its later span
    cdef readonly object reason  # a Reason
    cdef readonly str detail
    cdef readonly bytes payload
    cdef int64_t after_ledger
    cdef int64_t after_entry
    cdef bint holds              # everything from here to its predecessor was held when it arrived
    cdef int64_t held_ledger
    cdef int64_t held_entry
    cdef bytes ack_set           # its words in our own byte order; None if there was none
    cdef object letter(self)
