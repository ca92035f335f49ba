from fastwire.columns.builder cimport Layout


cdef class RowLayout:
    cdef Layout layout
    cdef readonly str system
    cdef readonly tuple columns
    cdef readonly tuple place
    cdef list _names             # the bytes that names in ``layout`` point into
    cdef int add(self, int number, object column) except -1
