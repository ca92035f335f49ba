"""The hot loop of a TANK connection: decodes consume answers into columns in place, bundle by bundle.

An answer need not be complete: each complete bundle is decoded at once, and its bytes are free for the next read. Every
other answer is returned as bytes.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES, OpenChunk
from fastwire.columns.scan cimport (
    GO_ON,
    STOP_CHUNK_FULL,
    STOP_FOUND,
    STOP_OUTPUT_CAP,
    ChunkScanner,
)
from fastwire.tank.reading.bundles cimport (
    CODEC_MASK,
    EXTRA_FLAGS,
    MOST_HEAD,
    NO_MEMORY,
    SNAPPY,
    BundleHead,
    RowPlace,
    Walk,
    find_message,
    put_messages,
    read_bundle_head,
)
from fastwire.tank.reading.response cimport Part, ResponseWalk
from fastwire.tank.reading.slot cimport Slot, SlotTable
from fastwire.wire.codecs cimport CODEC_SNAPPY_RAW
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, reader_init
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_u32le, fw_varint32

from dataclasses import dataclass

from fastwire.columns.chunk import DeadLetter
from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.reason import Reason
from fastwire.position import Position
from fastwire.tank.columns import ROW

__all__ = ["CorruptBundle", "Scanner"]

cdef enum:                       # message types of answers (spec: tank 3)
    PRODUCE = 0x01
    CONSUME = 0x02
    PING = 0x03
    DISCOVER_PARTITIONS = 0x06
    CREATE_TOPIC = 0x07
    DISCOVER_TOPICS = 0x0B
    DISCOVER_TOPOLOGY = 0x0C

cdef enum:
    FRAME_HEAD = 5
    ANSWER_HEAD = 13             # of a consume answer, up to its request id
    LEAST_HEADER = 5             # request id and count of topics
    MOST_HEADER = 5 + 255 * (257 + 255 * 31)     # all names and records that fit their counts
    MOST_VARINT = 5
    NEEDED_LEAST = 1024          # to request where even the length of a bundle is cut off (spec: tank 5.5)


@dataclass(frozen=True, slots=True)
class CorruptBundle:
    """A damaged bundle that is not passed over: its partition is not read any further.

    That is every one for a caller with ``on_corrupt="stop"``, and always one whose header does not tell the sequence
    after it, or that is too large. It is sound if it is ``replaced``: the message before the position is another one
    than the one that has landed.
    """

    index: int
    position: Position
    reason: Reason
    detail: str
    replaced: bool = False


@cython.final
cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection into chunks.

    ``plan`` announces each consume request that is sent. ``take_found`` returns a Fetched at the end of its answer,
    any other answer or a ping as message type and payload, or a CorruptBundle, whose partition is detached. With
    ``on_corrupt="dead_letter"`` a damaged bundle joins the chunk as a dead letter; with ``"stop"`` it is a
    CorruptBundle. ``scan`` raises ProtocolError if the framing itself is broken.
    """
    cdef SlotTable slots
    cdef dict plans              # by request id
    cdef ResponseWalk at         # the current consume answer
    cdef bint walking            # it is not read to its end yet
    cdef int64_t running         # the first sequence of the next bundle, unless it is sparse; -1 = unknown
    cdef bint entered            # ``running`` is that of the current partition
    cdef bint skip               # discard the rest of this chunk
    cdef int64_t surplus         # bytes that are discarded before anything else
    cdef readonly int64_t bundles

    def __cinit__(
        self, SlotTable slots not None, Pool pool not None, *, columns=None, str on_corrupt="dead_letter",
        int64_t buffer_bytes=1 << 20, clock=None,
    ):
        self.prepare(slots, pool, ROW, columns, on_corrupt, buffer_bytes, clock)
        self.slots = slots
        self.plans = {}
        self.at = ResponseWalk(slots)

    def plan(self, request_id, planned not None):
        """Register a sent consume request; its answer is decoded according to ``planned``."""
        self.plans[request_id] = planned

    cdef int run(self) except -1:
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t present
        cdef int stop
        while True:
            if self.surplus:
                present = min(b.end - b.start, self.surplus)
                b.start += present
                self.surplus -= present
                if self.surplus:
                    return self.need(1)
            if not self.walking:
                stop = self.begin()
            elif self.at.part() is not NULL:
                stop = self.chunk()
            else:
                self.walking = False
                self.frames += 1
                self.found = self.at.done()
                return STOP_FOUND
            if stop != GO_ON:
                return stop

    cdef int begin(self) except -1:
        """Read the head of a frame: a consume answer is read in pieces, any other is returned as bytes."""
        cdef ReceiveBuffer b = self.buffer
        cdef const uint8_t* p = b.data + b.start
        cdef int64_t size = b.end - b.start
        cdef int64_t total, header
        cdef int kind
        if size < FRAME_HEAD:
            return self.need(FRAME_HEAD)
        kind = p[0]
        total = fw_u32le(p + 1)
        if kind == PING and total:
            raise ProtocolError("payload length", 1, detail=f"{total} of a ping")
        if kind != CONSUME:
            return self.hand_out(kind, total)
        if total < 4 + LEAST_HEADER:
            raise ProtocolError("payload length", 1, 4 + LEAST_HEADER, total)
        if size < ANSWER_HEAD:
            return self.need(ANSWER_HEAD)
        header = fw_u32le(p + FRAME_HEAD)
        if header < LEAST_HEADER or header > MOST_HEADER:
            raise ProtocolError("header length", 5, detail=f"{header} is not within {LEAST_HEADER} and {MOST_HEADER}")
        if header > total - 4:
            raise ProtocolError("header length", 5, header, total - 4)
        planned = self.plans.get(fw_u32le(p + 9))
        if planned is None:
            self.surplus = FRAME_HEAD + total        # the answer to a request that was given up
            self.frames += 1
            return GO_ON
        if size < 9 + header:
            return self.need(9 + header)
        self.at.read(planned, p, header, total)
        del self.plans[self.at.request_id]
        b.start += 9 + header
        self.walking = True
        self.entered = False
        return GO_ON

    cdef int hand_out(self, int kind, int64_t total) except -1:
        """Return a frame that is not decoded here, once it is complete."""
        cdef ReceiveBuffer b = self.buffer
        if not (kind == PING or kind == PRODUCE or DISCOVER_PARTITIONS <= kind <= CREATE_TOPIC
                or DISCOVER_TOPICS <= kind <= DISCOVER_TOPOLOGY):
            raise ProtocolError("message type", 0, detail=f"{kind:#x} is not that of an answer")
        if total > self.most_frame:
            raise ProtocolError("payload length", 1, detail=f"of an answer: {self.frame_too_large(total)}")
        if b.end - b.start < FRAME_HEAD + total:
            return self.need(FRAME_HEAD + total)
        self.found = (kind, PyBytes_FromStringAndSize(<const char*>(b.data + b.start + FRAME_HEAD), total))
        b.start += FRAME_HEAD + total
        self.frames += 1
        return STOP_FOUND

    cdef void pass_by(self, Part* part, int64_t size) noexcept:
        """Count ``size`` bytes of the current chunk as read; they may not have come yet."""
        part.left -= size
        self.surplus = size

    cdef int chunk(self) except -1:
        """Read the next bundle of the current chunk, or go on to the next chunk."""
        cdef ReceiveBuffer b = self.buffer
        cdef Part* part = self.at.part()
        cdef Slot* slot
        cdef const uint8_t* p = b.data + b.start
        cdef const uint8_t* body
        cdef int64_t present = min(b.end - b.start, part.left)
        cdef int64_t size, whole, began
        cdef uint64_t raw = 0
        cdef BundleHead head
        cdef int stop
        if not self.entered:
            self.entered = True
            self.running = part.base
            self.skip = part.slot < 0
        if part.left == 0:
            self.at.at += 1
            self.entered = False
            return GO_ON
        if not self.skip:
            self.skip = self.slots.room == 0 or self.slots.get(part.slot).head.session != part.session
        if self.skip:
            self.pass_by(part, part.left)
            return GO_ON
        slot = self.slots.get(part.slot)
        body = fw_varint32(p, p + present, &raw)
        if body is NULL:
            if self.is_cut(p, present):
                if present < part.left:
                    return self.need(present + 1)
                return self.cut(slot, part, NEEDED_LEAST)
            return self.refuse(slot, Reason.MESSAGE, "the length of a bundle is no varint of 32 bits")
        size = <int64_t>raw
        whole = (body - p) + size
        if whole > part.left:
            return self.cut(slot, part, whole)
        if present < (body - p) + min(size, MOST_HEAD):
            return self.need((body - p) + min(size, MOST_HEAD))
        if not read_bundle_head(body, size, self.running, &head):
            return self.refuse(slot, Reason.METADATA, f"the header of a bundle of {size} bytes has no sequences")
        if slot.compare and head.last >= slot.sequence - 1:
            if whole > self.most_frame or head.first >= slot.sequence:
                slot.compare = False                 # a compaction has removed the message before the position
            elif present < whole:
                return self.need(whole)
            elif self.is_another(slot, body, size, &head):
                return self.refuse(slot, Reason.MESSAGE, "the message before the position is another one", True)
        if head.last < slot.sequence:
            self.running = head.last + 1
            self.pass_by(part, whole)
            return GO_ON
        if slot.sequence >= slot.head.until:
            self.skip = True
            return GO_ON
        if max(head.first, slot.sequence) > part.high_watermark:
            self.skip = True                         # not committed yet (spec: tank 5.3)
            return GO_ON
        if whole > self.most_frame:
            return self.refuse(slot, Reason.TOO_LARGE, f"a bundle of {self.frame_too_large(whole)}")
        if present < whole:
            return self.need(whole)
        if self.produced >= self.output_cap:
            return STOP_OUTPUT_CAP
        began = self.watch.begin_unit(self.bundles)
        stop = self.bundle(slot, part, body, size, &head)
        self.watch.end_unit(began)
        if stop == STOP_CHUNK_FULL:
            return stop
        self.running = head.last + 1
        self.pass_by(part, whole)
        return stop

    cdef bint is_cut(self, const uint8_t* p, int64_t present) noexcept:
        """Return whether the bytes at ``p`` may be the beginning of a varint of at most five bytes."""
        cdef int64_t i
        for i in range(min(present, MOST_VARINT)):
            if p[i] < 0x80:
                return False
        return present < MOST_VARINT

    cdef int cut(self, Slot* slot, Part* part, int64_t needed) noexcept:
        """Discard a bundle that the broker has cut off: the next request begins with it."""
        slot.needed = needed
        self.skip = True
        return GO_ON

    cdef bint is_another(self, Slot* slot, const uint8_t* p, int64_t size, const BundleHead* head) except -1:
        """Return whether a bundle has another message before the position than the one that has landed.

        What cannot be read is not compared: the message may have been removed by a compaction.
        """
        cdef const uint8_t* data = p + head.size
        cdef int64_t data_size = size - head.size
        cdef Walk walk
        cdef bint other
        slot.compare = False
        slot.began = -1                              # that nothing is taken of it is no lack of progress
        if head.flags & EXTRA_FLAGS or head.flags & CODEC_MASK > SNAPPY:
            return False
        if head.flags & CODEC_MASK:
            try:
                data = self.codecs.inflate(CODEC_SNAPPY_RAW, data, data_size, &data_size)
            except CorruptEntryError:
                return False
        other = (
            find_message(&self.open.columns, head, slot.sequence - 1, &walk, data, data + data_size)
            and self.witness(&walk) != slot.witness
        )
        self.codecs.shrink()
        return other

    cdef int64_t witness(self, const Walk* walk) except? -1:
        """Return what a message is known by: checksums of its time and key, and of its value."""
        cdef uint64_t high = self.codecs.crc32c(walk.key, walk.key_size) if walk.key_size else 0
        cdef uint64_t low = self.codecs.crc32c(walk.value, walk.value_size) if walk.value_size else 0
        return <int64_t>(((high << 32) | low) ^ (walk.known_time * <uint64_t>0x9E3779B97F4A7C15))

    cdef int bundle(self, Slot* slot, Part* part, const uint8_t* p, int64_t size, BundleHead* head) except -1:
        """Process one complete bundle. STOP_CHUNK_FULL leaves it for the next call."""
        cdef OpenChunk chunk = self.open
        cdef RowPlace place
        cdef Reader r
        cdef const uint8_t* data = p + head.size
        cdef int64_t data_size = size - head.size
        cdef int64_t highest = min(part.high_watermark, slot.head.until - 1)
        cdef int64_t next_sequence = min(head.last, highest) + 1
        cdef int64_t expected, first, began
        cdef int status
        cdef Walk walk
        cdef int64_t witness = 0
        cdef SpanRow* span
        if chunk.dead_letter_bytes >= CHUNK_BYTES:
            return STOP_CHUNK_FULL
        if head.flags & EXTRA_FLAGS or head.flags & CODEC_MASK > SNAPPY:
            detail = f"flags {head.flags:#04x} of a bundle: " + (
                "bit 7 is not supported" if head.flags & EXTRA_FLAGS else f"unknown codec {head.flags & CODEC_MASK}"
            )
            return self.reject(slot, p, size, head, next_sequence, Reason.MESSAGE, detail)
        # The decompressed size is not read here; the estimate is that of the largest recent bundle.
        expected = max(data_size, slot.head.largest) if head.flags & CODEC_MASK else data_size
        if chunk.full(min(head.count, expected), expected):
            return STOP_CHUNK_FULL
        if head.flags & CODEC_MASK:
            began = self.watch.now()
            try:
                data = self.codecs.inflate(CODEC_SNAPPY_RAW, data, data_size, &data_size)
            except CorruptEntryError as exc:
                self.codecs.shrink()
                return self.reject(slot, p, size, head, next_sequence, exc.reason, exc.detail)
            self.watch.decompressed(began)
        place.wanted = slot.sequence
        place.highest = highest
        place.topic = slot.head.topic
        place.partition = slot.head.partition
        chunk.begin()
        first = chunk.columns.rows
        reader_init(&r, data, <Py_ssize_t>data_size)
        began = self.watch.now()
        status = put_messages(&chunk.columns, head, &place, &walk, &r)
        self.watch.decoded(began)
        if status == 0 and walk.known >= 0:
            witness = self.witness(&walk)            # before the decompressed bytes are gone
        self.codecs.shrink()
        if status == NO_MEMORY:
            if not chunk.columns.over:
                raise MemoryError()
            if first:
                return STOP_CHUNK_FULL
            return self.reject(slot, p, size, head, next_sequence, Reason.TOO_LARGE, chunk.too_large())
        if status:
            detail = (
                f"message {r.wanted} of {head.count} at byte {r.fault_at} of {data_size} does not fit"
                if r.wanted < head.count else f"{data_size - r.fault_at} bytes after its {head.count} messages"
            )
            return self.reject(slot, p, size, head, next_sequence, Reason.MESSAGE, detail)
        self.bundles += 1
        self.took(slot.head.log, data_size, first, &slot.head.largest)
        self.advance(slot, next_sequence, chunk.columns.rows - first)
        if walk.known == next_sequence - 1:
            span = self.span_of(&slot.head, slot.sequence, 0)
            span.witness = slot.witness = witness
            slot.witnessed = True
            span.witnessed = True
        return GO_ON

    cdef int advance(self, Slot* slot, int64_t next_sequence, int64_t rows) except -1:
        """Record that everything before ``next_sequence`` was read: extend the span of the open chunk, or begin one."""
        cdef SpanRow* span = self.span_of(&slot.head, slot.sequence, 0)
        span.end_a = slot.sequence = next_sequence
        span.witnessed = slot.witnessed = False
        span.rows += rows
        return GO_ON

    cdef int reject(
        self, Slot* slot, const uint8_t* p, int64_t size, const BundleHead* head, int64_t next_sequence, reason,
        str detail
    ) except -1:
        """Pass over a bundle that cannot be decoded, as its header allows: a dead letter, or a stop for the caller."""
        cdef int64_t rows = min(head.count, next_sequence - max(head.first, slot.sequence))
        if not self.keeps_corrupt:
            return self.refuse(slot, reason, detail)
        before = Position(slot.sequence, 0)
        self.advance(slot, next_sequence, 0)
        self.open.add_dead_letter(DeadLetter(
            self.slots.logs[slot.head.log], Position(next_sequence, 0), f"{reason}: {detail}",
            PyBytes_FromStringAndSize(<const char*>p, size), rows, damage=reason, start=before,
        ))
        return GO_ON

    cdef int refuse(self, Slot* slot, reason, str detail, bint replaced=False) except -1:
        """Stop reading this partition; the caller decides how to proceed."""
        self.found = CorruptBundle(slot.head.log, Position(slot.sequence, 0), reason, detail, replaced)
        slot.head.session = 0
        self.skip = True
        return STOP_FOUND
