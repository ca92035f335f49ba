"""Pinned memory of one frame."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t


@cython.final
@cython.freelist(64)
cdef class Frame:
    """Pins the buffer ``data`` for as long as this object lives; ``size`` is its length in bytes."""

    def __cinit__(self, data):
        # The export keeps the pointer valid: until its release, a bytearray refuses to be resized.
        PyObject_GetBuffer(data, &self._buf, PyBUF_SIMPLE)
        self.data = <const uint8_t*>self._buf.buf
        self.size = self._buf.len

    def __dealloc__(self):
        PyBuffer_Release(&self._buf)
