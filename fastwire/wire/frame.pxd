from libc.stdint cimport uint8_t


cdef class Frame:
    cdef Py_buffer _buf
    cdef const uint8_t* data
    cdef readonly Py_ssize_t size
