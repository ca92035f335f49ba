"""Incremental parser of a Fetch response around its records (spec: kafka 5, Fetch)::

    i32 size | i32 correlation id | throttle, error, session | topics: name or id | partitions: numbers, records, tags
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from fastwire.kafka.reading.aborted cimport AbortedTransactions
from fastwire.kafka.reading.slot cimport Slot, SlotTable
from fastwire.wire.pool cimport fw_most_payload
from fastwire.wire.reader cimport (
    FAULT_LENGTH,
    FAULT_TRUNCATED,
    Reader,
    read_span,
    read_u16be,
    read_u32be,
    read_u64be,
    read_uvarint,
    reader_error,
    reader_fail,
    reader_init,
)
from fastwire.wire.receive cimport ReceiveBuffer

from dataclasses import dataclass

from fastwire.errors import ProtocolError

__all__ = ["Fetched", "Planned"]

cdef enum:
    MOST_NODES = 10_000          # more than any cluster has


@dataclass(frozen=True, slots=True)
class Planned:
    """A sent Fetch request: ``topics`` has slot and session of each partition, by topic name or id."""

    version: int
    read_committed: bool
    topics: dict[bytes, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The end of a Fetch response; the results of its partitions are in their slots.

    ``nodes`` are the node addresses in it: (node id, host, port). ``received`` counts the bytes of all records.
    ``answered`` has the slots of its partitions, and ``unknown`` counts those that were not requested.
    """

    correlation_id: int
    throttle_ms: int
    error: int
    session_id: int
    received: int
    unknown: int
    answered: tuple[int, ...]
    nodes: tuple[tuple[int, str, int], ...]


@cython.final
@cython.no_gc                    # the buffer's __dealloc__ needs its pool; the members of this object form no cycle
cdef class ResponseWalk:
    """The state of the response that is being read.

    ``phase`` names the next part. In phase RECORDS the owner reads ``records_left`` bytes and reports them by
    ``pass_by``; it discards them if ``skip`` is set.
    """

    def __cinit__(self, SlotTable slots not None, ReceiveBuffer buffer not None):
        self.slots = slots
        self.buffer = buffer
        self.aborted = AbortedTransactions(buffer._pool)
        self.phase = FRAME
        self.nodes = []
        self.answered = []

    cdef void begin(self, planned, int32_t correlation, int64_t size) noexcept:
        """Start a frame with ``size`` bytes after its correlation id."""
        self.planned = planned
        self.version = planned.version
        self.flexible = planned.version >= 12
        self.committed = planned.read_committed
        self.correlation = correlation
        self.frame_left = size
        self.throttle = self.error = self.session_id = 0
        self.received = self.unknown = 0
        self.nodes = []
        self.answered = []
        self.topics_left = -1
        self.phase = TOPIC

    cdef void pass_by(self, int64_t size) noexcept:
        """Count ``size`` bytes of records as read."""
        self.buffer.start += size
        self.records_left -= size
        self.frame_left -= size

    cdef object rest(self):
        """Skip bytes after the body, which real peers send (spec: kafka 18); return the Fetched, None if bytes are
        missing.
        """
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t present = min(b.end - b.start, self.frame_left)
        b.start += present
        self.frame_left -= present
        if self.frame_left:
            b.wanted = 1
            return None
        self.phase = FRAME
        return Fetched(
            self.correlation, self.throttle, self.error, self.session_id, self.received, self.unknown,
            tuple(self.answered), tuple(self.nodes),
        )

    cdef bint piece(self) except -1:
        """Read one small part of the response; return False if it is incomplete, and is read again later."""
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t size = b.end - b.start
        cdef int64_t most = fw_most_payload(b._pool.pool)
        cdef bint whole = size >= self.frame_left
        cdef Reader r
        reader_init(&r, b.data + b.start, self.frame_left if whole else size)
        if self.phase == TOPIC and self.topics_left < 0:
            self.read_head(&r)
        elif self.phase == TOPIC and self.topics_left > 0:
            self.read_topic(&r)
        elif self.phase == TOPIC:
            self.phase = BODY_END
        elif self.phase == PARTITION and self.partitions_left > 0:
            self.read_partition(&r)
        elif self.phase == PARTITION:
            self.phase = TOPIC_END
        elif self.phase == PARTITION_END:
            self.read_partition_end(&r)
        elif self.phase == TOPIC_END:
            if self.flexible:
                self.skip_tags(&r)
            if not r.fault:
                self.topics_left -= 1
                self.phase = TOPIC
        else:
            self.read_body_end(&r)
        if r.fault:
            if r.fault == FAULT_TRUNCATED and not whole:
                if size >= most:
                    raise ProtocolError("Fetch response", 0, detail=f"one part of it has more than {most} bytes")
                b.wanted = min(self.frame_left, max(size * 2, 512))
                return False
            raise reader_error(&r, "Fetch response")
        b.start += r.pos - r.start
        self.frame_left -= r.pos - r.start
        return True

    cdef int64_t read_count(self, Reader* r, int64_t least) noexcept:
        """Return the number of elements of an array, 0 if it is null. The frame has at least ``least`` bytes
        for each.
        """
        cdef int64_t count = <int64_t>read_uvarint(r) - 1 if self.flexible else <int64_t><int32_t>read_u32be(r)
        if count > (self.frame_left - (r.pos - r.start)) // least or count < -1:
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>count)
        return count if count > 0 and not r.fault else 0

    cdef int skip_tags(self, Reader* r) noexcept:
        cdef uint64_t left = read_uvarint(r)
        cdef uint64_t tag
        cdef Reader field
        while self.next_tag(r, &left, &tag, &field):
            pass
        return 0

    cdef bint next_tag(self, Reader* r, uint64_t* left, uint64_t* tag, Reader* field) noexcept:
        """Read the next of ``left`` tagged fields; return False if there is none, or if it is incomplete."""
        cdef uint64_t size
        cdef const uint8_t* at
        if left[0] == 0 or r.fault:
            return False
        left[0] -= 1
        tag[0] = read_uvarint(r)
        size = read_uvarint(r)
        if size > <uint64_t>self.frame_left:
            reader_fail(r, FAULT_LENGTH, 0)
        at = read_span(r, <Py_ssize_t>size)
        if r.fault:
            return False
        reader_init(field, at, <Py_ssize_t>size)
        return True

    cdef int read_head(self, Reader* r) except -1:
        cdef int32_t throttle
        cdef int16_t error = 0
        cdef int32_t session = 0
        cdef int64_t count
        if self.flexible:
            self.skip_tags(r)
        throttle = <int32_t>read_u32be(r)
        if self.version >= 7:
            error = <int16_t>read_u16be(r)
            session = <int32_t>read_u32be(r)
        count = self.read_count(r, 3)
        if not r.fault:
            self.throttle = throttle
            self.error = error
            self.session_id = session
            self.topics_left = count
        return 0

    cdef int read_topic(self, Reader* r) except -1:
        cdef const uint8_t* name
        cdef int64_t size = 16
        cdef int64_t count
        if self.version < 13:
            size = <int64_t>read_uvarint(r) - 1 if self.flexible else <int64_t><int16_t>read_u16be(r)
            if size < 0 or size > 0x7FFF:
                reader_fail(r, FAULT_LENGTH, <Py_ssize_t>size)
        name = read_span(r, <Py_ssize_t>size)
        count = self.read_count(r, 30)
        if r.fault:
            return 0
        self.partitions = self.planned.topics.get(PyBytes_FromStringAndSize(<const char*>name, size))
        self.partitions_left = count
        self.phase = PARTITION
        return 0

    cdef int read_partition(self, Reader* r) except -1:
        cdef int32_t partition = <int32_t>read_u32be(r)
        cdef int16_t error = <int16_t>read_u16be(r)
        cdef int64_t high = <int64_t>read_u64be(r)
        cdef int64_t stable = <int64_t>read_u64be(r)
        cdef int64_t start = <int64_t>read_u64be(r) if self.version >= 5 else -1
        cdef int64_t count = self.read_count(r, 16)
        cdef int64_t size
        cdef int32_t preferred = -1
        cdef Slot* slot
        cdef Reader aborted
        if count > self.aborted.most() and not r.fault:
            detail = f"{count} aborted transactions of a partition, the limit is {self.aborted.most()}"
            raise ProtocolError("Fetch response", r.pos - r.start, detail=detail)
        aborted = r[0]
        self.read_aborted(r, count, False)
        if self.version >= 11:
            preferred = <int32_t>read_u32be(r)
        size = <int64_t>read_uvarint(r) - 1 if self.flexible else <int64_t><int32_t>read_u32be(r)
        if size > self.frame_left - (r.pos - r.start) or size < -1:
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>size)
        if r.fault:
            return 0
        self.slot_index = -1
        found = None if self.partitions is None else self.partitions.get(partition)
        if found is not None:
            slot = self.slots.get(found[0])
            if slot.head.session and slot.head.session == <int32_t>found[1]:
                self.slot_index = found[0]
                self.session = slot.head.session
                slot.error = error
                slot.high_watermark = high
                slot.stable_offset = stable
                slot.log_start = start
                slot.preferred_replica = preferred
                slot.leader = slot.leader_epoch = -1
                slot.diverging_offset = -1
                slot.received = size if size > 0 else 0
                self.answered.append(self.slot_index)
        else:
            self.unknown += 1
        if self.committed and self.slot_index >= 0:
            self.aborted.begin(count)
            self.read_aborted(&aborted, count, True)
            self.aborted.sort()
        self.skip = self.slot_index < 0
        self.batch_seen = self.sound_seen = False
        self.evidence = None
        self.records_left = size if size > 0 else 0
        self.received += self.records_left
        self.phase = RECORDS
        return 0

    cdef int read_aborted(self, Reader* r, int64_t count, bint keep) except -1:
        """Read the list of aborted transactions, and keep it if ``keep`` is set."""
        cdef int64_t producer, first
        for _ in range(count):
            producer = <int64_t>read_u64be(r)
            first = <int64_t>read_u64be(r)
            if self.flexible:
                self.skip_tags(r)
            if r.fault:
                return 0
            if keep:
                self.aborted.add(producer, first)
        return 0

    cdef int read_partition_end(self, Reader* r) except -1:
        """Read the tagged fields after the records: 0 = the diverging epoch, 1 = the current leader (spec:
        kafka 9.3).
        """
        cdef uint64_t left = read_uvarint(r) if self.flexible else 0
        cdef uint64_t tag
        cdef Reader field
        cdef int64_t diverging = -1
        cdef int32_t leader = -1
        cdef int32_t epoch = -1
        cdef Slot* slot
        while self.next_tag(r, &left, &tag, &field):
            if tag == 0:
                read_u32be(&field)
                diverging = <int64_t>read_u64be(&field)
            elif tag == 1:
                leader = <int32_t>read_u32be(&field)
                epoch = <int32_t>read_u32be(&field)
            if field.fault:
                reader_fail(r, FAULT_LENGTH, field.end - field.start)
        if r.fault:
            return 0
        if self.slot_index >= 0:
            slot = self.slots.get(self.slot_index)
            slot.diverging_offset = diverging
            slot.leader = leader
            slot.leader_epoch = epoch
        self.aborted.clear()
        self.partitions_left -= 1
        self.phase = PARTITION
        return 0

    cdef int read_body_end(self, Reader* r) except -1:
        """Read the tagged fields of the body: 0 = node addresses (from version 16)."""
        cdef uint64_t left = read_uvarint(r) if self.flexible else 0
        cdef uint64_t tag
        cdef int64_t nodes, host_size
        cdef int32_t node, port
        cdef Reader field
        cdef const uint8_t* at
        cdef list found = []
        while self.next_tag(r, &left, &tag, &field):
            nodes = <int64_t>read_uvarint(&field) - 1 if tag == 0 else 0
            if nodes > MOST_NODES - len(found):
                raise ProtocolError("Fetch response", 0, detail=f"more than {MOST_NODES} addresses of nodes")
            while nodes > 0 and not field.fault:
                nodes -= 1
                node = <int32_t>read_u32be(&field)
                host_size = <int64_t>read_uvarint(&field) - 1
                at = read_span(&field, <Py_ssize_t>host_size)
                port = <int32_t>read_u32be(&field)
                read_span(&field, <Py_ssize_t>max(<int64_t>read_uvarint(&field) - 1, 0))
                self.skip_tags(&field)
                if not field.fault:
                    host = PyBytes_FromStringAndSize(<const char*>at, host_size).decode("utf-8", "replace")
                    found.append((node, host, port))
            if field.fault:
                reader_fail(r, FAULT_LENGTH, field.end - field.start)
        if not r.fault:
            self.nodes = found
            self.phase = REST
        return 0
