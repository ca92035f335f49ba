"""Parser of the header of a consume answer (spec: tank 5.2)::

    u8 type | u32 payload | u32 header | u32 request id | topics: name | partitions: id, flags, numbers || chunks
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from fastwire.tank.reading.slot cimport Slot, SlotTable
from fastwire.wire.array cimport array_grown
from fastwire.wire.reader cimport (
    Reader,
    read_span,
    read_u8,
    read_u16le,
    read_u32le,
    read_u64le,
    reader_error,
    reader_init,
)
from fastwire.wire.varint cimport fw_u32be

from dataclasses import dataclass

from fastwire.errors import ProtocolError

__all__ = ["Fetched", "Planned"]

cdef enum:                       # flags of a partition
    OK = 0x00
    BOUNDARY = 0x01
    SYSTEM_FAULT = 0xFB
    REDIRECT = 0xFC
    NO_LEADER = 0xFD
    OK_SPARSE = 0xFE
    UNKNOWN_PARTITION = 0xFF
    UNKNOWN_TOPIC = 0x1FF        # of PartitionStatus

cdef enum:
    HEAD = 13                    # bytes of a frame up to the request id
    NO_TOPIC = 0xFFFF            # in the place of the first partition


@dataclass(frozen=True, slots=True)
class Planned:
    """A sent consume request: ``topics`` has slot and session of each partition, by topic name."""

    topics: dict[bytes, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The end of a consume answer; the results of its partitions are in their slots.

    ``received`` counts the bytes of all bundles. ``answered`` has the slots of its partitions, and ``unknown`` counts
    those that were not requested.
    """

    request_id: int
    received: int
    unknown: int
    answered: tuple[int, ...]


@cython.final
@cython.no_gc
cdef class ResponseWalk:
    """The partitions of the answer that is being read, and the place in it."""

    def __cinit__(self, SlotTable slots not None):
        self.slots = slots
        self.answered = []

    def __dealloc__(self):
        free(self.parts)

    cdef Part* part(self) noexcept:
        """Return the partition whose chunk is being read; NULL after the last one."""
        return &self.parts[self.at] if self.at < self.count else NULL

    cdef object done(self):
        """Return the Fetched of an answer that was read."""
        return Fetched(self.request_id, self.received, self.unknown, tuple(self.answered))

    cdef int read(self, planned, const uint8_t* frame, int64_t header, int64_t payload) except -1:
        """Read a header of ``header`` bytes of the frame at ``frame``; its chunks follow."""
        cdef Reader r
        cdef int topics, count
        cdef int32_t partition, size
        cdef const uint8_t* name
        cdef int64_t chunks = 0
        self.answered = []
        self.received = self.unknown = self.count = self.at = 0
        reader_init(&r, frame, <Py_ssize_t>(9 + header))
        read_span(&r, 9)
        self.request_id = read_u32le(&r)
        topics = read_u8(&r)
        while topics and not r.fault:
            topics -= 1
            size = read_u8(&r)
            name = read_span(&r, size)
            count = read_u8(&r)
            if r.fault:
                break
            partitions = planned.topics.get(PyBytes_FromStringAndSize(<const char*>name, size))
            partition = read_u16le(&r) if count else -1
            if partition == NO_TOPIC and not r.fault:
                self.no_topic(partitions)
                continue
            while count and not r.fault:
                self.read_partition(&r, partition, partitions)
                count -= 1
                if count:
                    partition = read_u16le(&r)
        if r.fault:
            raise reader_error(&r, "consume answer")
        if r.pos != r.end:
            raise ProtocolError(
                "header length", 5, detail=f"is {header}, {r.end - r.pos} bytes more than its partitions take"
            )
        for i in range(self.count):
            chunks += self.parts[i].left
        if 4 + header + chunks != payload:
            raise ProtocolError("chunk length", 5 + header, chunks, payload - 4 - header, detail="of all partitions")
        self.received = chunks
        return 0

    def no_topic(self, dict partitions):
        """Note in all slots of a topic that the broker does not know it."""
        cdef Slot* slot
        for index, session in (partitions or {}).values():
            slot = self.slots.get(index)
            if slot.head.session == <int32_t>session:
                slot.status = UNKNOWN_TOPIC
                slot.began = slot.sequence
                slot.received = slot.needed = 0
                slot.port = -1
                self.answered.append(index)

    cdef int read_partition(self, Reader* r, int32_t partition, dict partitions) except -1:
        """Read what follows the number of a partition."""
        cdef int flags = read_u8(r)
        cdef uint64_t base = 0
        cdef uint64_t high = 0
        cdef uint64_t first = 0
        cdef int64_t size = 0
        cdef int32_t port = -1
        cdef const uint8_t* host = NULL
        cdef Slot* slot
        cdef Part* grown
        cdef Part* part
        if flags == OK or flags == BOUNDARY:
            base = read_u64le(r)
        if flags == OK or flags == OK_SPARSE or flags == BOUNDARY:
            high = read_u64le(r)
            size = read_u32le(r)
        if flags == BOUNDARY:
            first = read_u64le(r)
        elif flags == REDIRECT:
            host = read_span(r, 4)
            port = read_u16le(r)
        elif not (flags == OK or SYSTEM_FAULT <= flags <= UNKNOWN_PARTITION):
            raise ProtocolError("partition flags", r.pos - r.start - 1, detail=f"{flags:#x} of partition {partition}")
        if r.fault:
            return 0
        if flags == BOUNDARY and size:
            raise ProtocolError("chunk length", r.pos - r.start - 12, detail=f"{size} of a boundary failure")
        grown = <Part*>array_grown(self.parts, &self.capacity, self.count + 1, sizeof(Part))
        if grown is NULL:
            raise MemoryError()
        self.parts = grown
        part = &grown[self.count]
        self.count += 1
        part.slot = -1
        part.session = 0
        part.base = <int64_t>base if flags == OK and base <= INT64_MAX else -1
        part.high_watermark = <int64_t>high if high < INT64_MAX else INT64_MAX - 1
        part.left = size
        found = None if partitions is None else partitions.get(partition)
        if found is None:
            self.unknown += 1
            return 0
        slot = self.slots.get(found[0])
        if slot.head.session == 0 or slot.head.session != <int32_t>found[1]:
            return 0
        part.slot = found[0]
        part.session = slot.head.session
        slot.began = slot.sequence
        slot.status = flags
        slot.high_watermark = high
        slot.first_available = first
        slot.host = fw_u32be(host) if host is not NULL else 0
        slot.port = port
        if flags == BOUNDARY:
            slot.compare = False     # the message before the position may be gone
        slot.received = size
        slot.needed = 0
        self.answered.append(part.slot)
        return 0
