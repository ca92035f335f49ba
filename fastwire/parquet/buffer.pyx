"""The buffer that pages are laid out in."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo


@cython.final
cdef class Buffer:

    def __dealloc__(self):
        bytes_drop(&self.bytes)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes.data, self.bytes.size, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1
