"""The header of Confluent's serializers before a message. See ``protoframe.pyx``."""

from fastwire.decode.decoded cimport Reason
from fastwire.decode.protoscript cimport Walk

cdef Reason open_frame(Walk* w) noexcept nogil
