"""The header of Confluent's serializers before a message. See ``protoframe.pyx``."""

from fastwire.decode.decoded cimport Reason
from fastwire.decode.protobuf.script cimport Walk

cdef Reason open_frame(Walk* w) noexcept nogil
