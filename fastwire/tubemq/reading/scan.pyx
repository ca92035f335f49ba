"""The hot loop of a TubeMQ connection: closes the gaps between blocks of a frame and decodes GET responses in place.

Every other response is returned as the bytes of its content.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove

from fastwire.columns.builder cimport Columns, Mark, columns_bytes, columns_mark, columns_rewind
from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES, CHUNK_ROWS
from fastwire.columns.scan cimport (
    GO_ON,
    STOP_CHUNK_FULL,
    STOP_FOUND,
    STOP_OUTPUT_CAP,
    ChunkScanner,
)
from fastwire.tubemq.reading.message cimport (
    BAD_CHECKSUM,
    DECODED,
    FIELD_MESSAGE,
    FILTERED,
    NO_MEMORY,
    Get,
    Run,
    message_id,
    put_message,
    put_plain,
    read_get,
)
from fastwire.tubemq.reading.slot cimport Slot, SlotTable, slot_doubts, slot_reaches, slot_settles
from fastwire.wire.pool cimport Pool
from fastwire.wire.protobuf cimport read_bytes, skip_field
from fastwire.wire.reader cimport (
    FAULT_MISSING,
    FAULT_WIRE_TYPE,
    Reader,
    read_uvarint,
    reader_error,
    reader_fail,
    reader_init,
)
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_bytes, fw_u32be, fw_varint


from fastwire.columns.chunk import DeadLetter
from fastwire.errors import ProtocolError
from fastwire.reason import Reason
from fastwire.position import Position
from fastwire.tubemq.columns import ROW
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, ResponseTooLargeError

__all__ = ["ZONE_MINUTES", "Scanner"]

ZONE_MINUTES = 8 * 60
"""The zone of ``$msgTime$`` by default: GMT+8, the clock of the servers' rules. The time itself names none."""

cdef enum:
    TOKEN = 0xFF7FF4FE
    HEAD = 12
    BLOCK_HEAD = 4
    ENTRY = 28
    CONTENT = HEAD + BLOCK_HEAD  # where the content is when the gaps are closed
    MOST_BLOCKS = 3584
    MOST_CONTENT = MOST_BLOCKS * 8192
    METHOD_GET = 17
    PLAIN_TRIES = 8              # of a response whose messages are not plain
    SUCCESS = 200
    NOT_FOUND = 404


@cython.final
cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection into chunks.

    ``plan`` announces each GET that is sent. ``take_found`` returns a Fetched at the end of its response, any other
    response as serial number and content, or a CorruptMessage, whose partition is detached. With
    ``on_corrupt="dead_letter"`` a damaged message joins the chunk as a dead letter; with ``"stop"`` it is a
    CorruptMessage. ``scan`` raises ProtocolError if the framing itself is broken. ``zone_minutes`` is the zone of
    ``$msgTime$``, east of Greenwich.
    """
    cdef SlotTable slots
    cdef dict plans              # Planned by serial number
    cdef int64_t zone_us
    # The frame at the start of the buffer; places are relative to it, because the buffer moves.
    cdef int64_t hop             # bytes of complete blocks, with the head; 0 = the head is not read
    cdef int32_t blocks_left
    cdef int64_t content         # bytes of the content so far
    cdef int64_t message_at      # the next message of a GET response; 0 = the frame is not one that is being decoded
    cdef int64_t reply_end
    cdef int64_t index           # of the next message
    cdef int64_t skip            # messages that the slot has taken before
    cdef bint drop               # nothing more of this response counts
    cdef bint moved
    cdef bint replaced           # the messages that the position counts are others now
    cdef int64_t taken_at        # the message that was taken last, relative to the frame; 0 = none of this call
    cdef int64_t taken_size
    cdef uint32_t serial
    cdef Get reply
    cdef object planned
    cdef str text
    cdef readonly int64_t messages
    cdef readonly int64_t cut_rows
    cdef readonly int64_t filtered_rows
    cdef readonly int64_t damaged

    def __cinit__(
        self, SlotTable slots not None, Pool pool not None, *, columns=None, str on_corrupt="dead_letter",
        int zone_minutes=8 * 60, int64_t buffer_bytes=1 << 20, clock=None,
    ):
        self.prepare(slots, pool, ROW, columns, on_corrupt, buffer_bytes, clock)
        self.slots = slots
        self.plans = {}
        self.zone_us = <int64_t>zone_minutes * 60_000_000

    def plan(self, uint32_t serial, planned not None):
        """Register a sent GET; its response is decoded for the slot of ``planned``."""
        self.plans[serial] = planned

    cdef int run(self) except -1:
        cdef int stop
        while True:
            stop = self.take_messages() if self.message_at else self.begin()
            if stop != GO_ON:
                return stop

    cdef int begin(self) except -1:
        """Read a frame once it is complete: walk its blocks, close the gaps, and read the envelope."""
        cdef ReceiveBuffer b = self.buffer
        cdef const uint8_t* p = b.data + b.start
        cdef int64_t size = b.end - b.start
        cdef int64_t count, block
        cdef str detail
        if self.hop == 0:
            if size < HEAD:
                return self.need(HEAD)
            if fw_u32be(p) != TOKEN:
                raise ProtocolError("token", 0, detail=f"{fw_u32be(p):#010x}")
            count = fw_u32be(p + 8)
            if count < 1 or count > MOST_BLOCKS:
                raise ProtocolError("blocks", 8, detail=f"{count} is not within 1 and {MOST_BLOCKS}")
            self.serial = fw_u32be(p + 4)
            self.blocks_left = <int32_t>count
            self.hop = HEAD
            self.content = 0
        while self.blocks_left:
            if size < self.hop + BLOCK_HEAD:
                return self.need(self.hop + BLOCK_HEAD)
            block = fw_u32be(p + self.hop)
            if block < 1 or block > MOST_CONTENT - self.content:
                raise ProtocolError(
                    "block length", self.hop, detail=f"{block} after {self.content} bytes, limit {MOST_CONTENT}"
                )
            if self.content + block > self.most_frame:
                detail = f"of a response: {self.frame_too_large(self.content + block)}"
                planned = self.plans.get(self.serial)
                if planned is not None:
                    raise ResponseTooLargeError(planned.index, detail)
                raise ProtocolError("block length", self.hop, detail=detail)
            if size < self.hop + BLOCK_HEAD + block:
                return self.need(self.hop + BLOCK_HEAD + block)
            self.hop += BLOCK_HEAD + block
            self.content += block
            self.blocks_left -= 1
        self.close_gaps(b.data + b.start)
        self.frames += 1
        return self.open_content()

    cdef void close_gaps(self, uint8_t* p) noexcept nogil:
        """Move each block of a complete frame to the end of the one before it."""
        cdef int64_t block = fw_u32be(p + HEAD)
        cdef int64_t source = CONTENT + block
        cdef int64_t target = source
        while source < self.hop:
            block = fw_u32be(p + source)
            source += BLOCK_HEAD
            memmove(p + target, p + source, <size_t>block)
            source += block
            target += block

    cdef int finish(self, int stop):
        """Release the frame."""
        self.buffer.start += self.hop
        self.hop = self.message_at = 0
        return stop

    cdef int open_content(self) except -1:
        """Read the envelope of a complete frame: that of a GET response is decoded, any other is returned."""
        cdef const uint8_t* p = self.buffer.data + self.buffer.start
        cdef Reader r
        cdef uint64_t tag, status = 0
        cdef int64_t size = 0, at
        cdef bint found = False
        planned = self.plans.pop(self.serial, None)
        if planned is not None:
            reader_init(&r, p, <Py_ssize_t>(CONTENT + self.content))
            r.pos = p + CONTENT
            read_bytes(&r, &size)
            read_bytes(&r, &size)
            if not r.fault:
                r.pos -= size
                r.end = r.pos + size
                while r.pos < r.end:
                    tag = read_uvarint(&r)
                    if tag == 8:
                        status = read_uvarint(&r)
                        found = True
                    else:
                        skip_field(&r, tag)
                if not found:
                    reader_fail(&r, FAULT_MISSING, 1)
            if r.fault:
                raise reader_error(&r, "response header")
            if status == 0:
                at = r.pos - p
                return self.open_reply(planned, at)
        self.found = (self.serial, PyBytes_FromStringAndSize(<const char*>(p + CONTENT), self.content))
        return self.finish(STOP_FOUND)

    cdef int open_reply(self, planned, int64_t at) except -1:
        """Read what a GET response says besides its messages; ``at`` is the place of its RspResponseBody."""
        cdef const uint8_t* p = self.buffer.data + self.buffer.start
        cdef Reader r
        cdef uint64_t tag, method = 0
        cdef int64_t size = 0, body_size = 0
        cdef const uint8_t* body = NULL
        reader_init(&r, p, <Py_ssize_t>(CONTENT + self.content))
        r.pos = p + at
        read_bytes(&r, &size)
        if not r.fault:
            r.pos -= size
            r.end = r.pos + size
            while r.pos < r.end:
                tag = read_uvarint(&r)
                if tag == 8:
                    method = read_uvarint(&r)
                elif tag == 18:
                    body = read_bytes(&r, &body_size)
                elif tag >> 3 in (1, 2):
                    reader_fail(&r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))
                else:
                    skip_field(&r, tag)
            if body is NULL:
                reader_fail(&r, FAULT_MISSING, 2)
        if r.fault:
            raise reader_error(&r, "response body")
        if method != METHOD_GET:
            raise ProtocolError("method", at, detail=f"{method} answers a GET")
        r.pos = body
        r.end = body + body_size
        read_get(&r, &self.reply)
        if r.fault:
            raise reader_error(&r, "GET response")
        self.text = ""
        if self.reply.text_size:
            self.text = PyBytes_FromStringAndSize(<const char*>self.reply.text, self.reply.text_size).decode(
                "utf-8", "replace"
            )
        self.reply.text = NULL
        if self.reply.code == SUCCESS and self.reply.messages and self.reply.offset < 0:
            raise ProtocolError("currOffset", at, detail=f"{self.reply.offset} beside {self.reply.messages} messages")
        if self.reply.offset >= <int64_t>1 << 62:    # so that no sum of offsets overflows
            raise ProtocolError("currOffset", at, detail=f"{self.reply.offset} is not below 2^62")
        self.planned = planned
        self.message_at = self.reply.first if self.reply.messages else body + body_size - p
        self.reply_end = body + body_size - p
        self.index = 0
        self.place()
        return GO_ON

    cdef int place(self) except -1:
        """Compare the start of a read with the position of its slot: how many messages have been taken before?"""
        cdef Slot* slot = self.slots.get(self.planned.index)
        cdef int64_t offset = self.reply.offset
        self.moved = self.replaced = False
        self.skip = 0
        self.drop = slot.head.session != self.planned.session or self.reply.code != SUCCESS or offset < 0
        if self.drop:
            if self.reply.code == NOT_FOUND and slot.head.session == self.planned.session:
                if self.reply.min_limit_ms > 0:
                    # The broker may have skipped the entries of other partitions (spec: tubemq 11.2).
                    slot.fresh = slot.exact = False
                else:
                    slot_settles(slot)
            return 0
        if offset == slot.base:
            self.skip = slot.taken
        elif offset == slot.last:
            self.skip = slot.last_skip
        elif slot.fresh or not slot_reaches(slot, offset):
            self.moved = self.drop = True
            slot.head.session = 0
            return 0
        else:
            self.skip = slot.owed
        slot.fresh = slot.exact = False
        slot.last = offset
        slot.least = offset + ENTRY * self.reply.messages
        slot.last_skip = self.skip
        slot.owed = max(0, self.skip - self.reply.messages)
        return 0

    cdef int take_messages(self) except -1:
        """Decode the messages of a GET response, up to its end or to a reason to stop."""
        cdef Slot* slot = self.slots.get(self.planned.index)
        cdef Columns* c = &self.open.columns
        cdef int64_t first = c.rows
        cdef int64_t nbytes = 0
        cdef int64_t began
        cdef const uint8_t* message
        cdef SpanRow* span
        cdef int stop
        if self.drop or self.reply.messages == 0 or slot.head.session != self.planned.session:
            return self.end_reply()
        if self.produced >= self.output_cap:
            return STOP_OUTPUT_CAP
        began = self.watch.begin_unit(self.messages)
        self.open.begin()
        self.taken_at = 0
        try:
            stop = self.decode(slot, c, &nbytes)
        finally:
            self.watch.end_unit(began)
        if self.taken_at:
            message = self.buffer.data + self.buffer.start + self.taken_at
            slot.last_id = message_id(message, message + self.taken_size)
            span = self.span_of(&slot.head, slot.base, slot.taken)
            span.witness = slot.last_id
            span.witnessed = slot.last_id != 0
        if nbytes:
            self.took(slot.head.log, nbytes, first, &slot.head.largest)
        return self.end_reply() if stop == GO_ON else stop

    cdef int decode(self, Slot* slot, Columns* c, int64_t* nbytes) except -1:
        cdef uint8_t* p = self.buffer.data + self.buffer.start
        cdef const uint8_t* at = p + self.message_at
        cdef const uint8_t* end = p + self.reply_end
        cdef const uint8_t* edge = self.buffer.data + self.buffer.capacity
        cdef const uint8_t* next_at
        cdef const uint8_t* message = NULL
        cdef int64_t size = 0
        cdef int64_t left = self.slots.room
        cdef uint64_t tag = 0
        cdef int status
        cdef int tries = 0
        cdef Mark mark
        cdef Reader r
        cdef Run run
        while at < end and left != 0:
            if tries < PLAIN_TRIES and self.index >= self.skip:
                tries += 1
                run.at = at
                run.rows = CHUNK_ROWS - c.rows
                if 0 < left < run.rows:
                    run.rows = left
                run.nbytes = self.output_cap - self.produced - nbytes[0]
                run.room = CHUNK_BYTES - columns_bytes(c)
                put_plain(c, slot, self.reply.offset, self.index, end, edge, &run)
                if run.rows:
                    self.advance(slot, run.rows, run.rows)
                    left -= run.rows if left > 0 else 0
                    nbytes[0] += run.nbytes
                    self.taken_at = run.last - p
                    self.taken_size = run.last_size
                    self.messages += run.rows
                    self.index += run.rows
                    at = run.at
                    self.message_at = at - p
                    tries = 0
                    continue
            next_at = fw_varint(at, end, &tag)
            if tag != FIELD_MESSAGE:  # ``read_get`` has walked all fields before
                reader_init(&r, next_at, end - next_at)
                skip_field(&r, tag)
                at = r.pos
                self.message_at = at - p
                continue
            next_at = fw_bytes(next_at, end, &message, &size)
            if self.index < self.skip:
                if self.index == self.skip - 1 and slot.compare:
                    if message_id(message, message + size) != slot.last_id:
                        # Behind the first GET the broker's position may have been moved: that is read again once.
                        self.replaced = self.reply.offset == slot.base or not slot_doubts(slot)
                        self.moved = not self.replaced
                        slot.head.session = 0
                        return GO_ON
                    slot.compare = False
                self.cut_rows += 1
                self.index += 1
                at = next_at
                self.message_at = at - p
                continue
            if nbytes[0] + self.produced >= self.output_cap:
                return STOP_OUTPUT_CAP
            if self.open.full(1, size) or self.open.dead_letter_bytes >= CHUNK_BYTES:
                return STOP_CHUNK_FULL
            c.room = self.open.room
            columns_mark(c, &mark)
            status = put_message(
                c, slot, self.reply.offset, self.index, self.zone_us, message, message + size, edge
            )
            if status == NO_MEMORY:
                columns_rewind(c, &mark)
                if not c.over:
                    raise MemoryError()
                c.over = False
                if mark.rows:
                    return STOP_CHUNK_FULL
            if status == DECODED or status == FILTERED:
                self.advance(slot, 1, status == DECODED)
                if status == DECODED:
                    left -= left > 0
                else:
                    self.filtered_rows += 1
            else:
                self.damaged += 1
                if not self.keeps_corrupt:
                    self.refuse(slot, status)
                    return STOP_FOUND
                self.keep_dead_letter(slot, status, message, size)
            nbytes[0] += size
            self.taken_at = message - p
            self.taken_size = size
            self.messages += 1
            self.index += 1
            at = next_at
            self.message_at = at - p
        return GO_ON

    cdef int advance(self, Slot* slot, int64_t messages, int64_t rows) except -1:
        """Record that messages from the current one on were read: extend the span of the open chunk, or begin one."""
        cdef SpanRow* span = self.span_of(&slot.head, slot.base, slot.taken)
        span.end_a = slot.base = self.reply.offset
        span.end_b = slot.taken = self.index + messages
        span.witnessed = False   # until the last message of this call is known
        span.rows += rows
        return 0

    cdef tuple damage(self, int status):
        if status == BAD_CHECKSUM:
            return Reason.CHECKSUM, "the CRC-32 of the message is another one"
        if status == NO_MEMORY:
            return Reason.TOO_LARGE, self.open.too_large()
        return Reason.MESSAGE, "the message or its attributes are malformed"

    cdef int keep_dead_letter(self, Slot* slot, int status, const uint8_t* message, int64_t size) except -1:
        """Make the current message a dead letter."""
        start = Position(slot.base, slot.taken)
        self.advance(slot, 1, 0)
        reason, detail = self.damage(status)
        log = self.slots.logs[slot.head.log]
        payload = PyBytes_FromStringAndSize(<const char*>message, size)
        position = Position(slot.base, slot.taken)
        self.open.add_dead_letter(
            DeadLetter(log, position, f"{reason}: {detail}", payload, 1, damage=reason, start=start)
        )
        return 0

    cdef int refuse(self, Slot* slot, int status) except -1:
        """Stop reading this partition; the caller decides how to proceed."""
        reason, detail = self.damage(status)
        self.found = CorruptMessage(self.planned.index, Position(slot.base, slot.taken), reason, detail)
        slot.head.session = 0
        return 0

    cdef int end_reply(self) except -1:
        """Return the scalars of a response whose messages are through."""
        self.found = Fetched(
            self.serial, self.planned.index, self.planned.session, self.reply.code, self.text, self.reply.messages,
            self.reply.offset, self.reply.max_offset, self.reply.lag_bytes, self.reply.min_limit_ms, self.reply.escaped,
            self.reply.require_slow, self.content, self.moved, self.replaced,
        )
        self.planned = None
        return self.finish(STOP_FOUND)
