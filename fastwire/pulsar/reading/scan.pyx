"""The hot loop of a Pulsar connection: framing, CRC, decompression and decoding in place, without an object per record.

Frame layout (spec: pulsar 1)::

    u32  totalSize, of what follows
    u32  commandSize
    ...  BaseCommand
    [0e02 u32 size BrokerEntryMetadata]  [0e01 u32 crc]  u32 size MessageMetadata  payload        MESSAGE only
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.columns.builder cimport Columns
from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES
from fastwire.columns.scan cimport (
    GO_ON,
    STOP_CHUNK_FULL,
    STOP_FOUND,
    STOP_OUTPUT_CAP,
    ChunkScanner,
)
from fastwire.pulsar.reading.batch cimport DAMAGED, NO_MEMORY, NOT_UTF8, EntryPlace, decode_entry
from fastwire.pulsar.reading.cold cimport ColdEntry
from fastwire.pulsar.format.metadata cimport (
    ACK_SET_WORDS,
    MOST_MESSAGES,
    TYPE_MESSAGE,
    MessageHead,
    Metadata,
    read_ack_set,
    read_base_command,
    read_command_message,
    read_message_plain,
    read_metadata,
    read_metadata_plain,
)
from fastwire.pulsar.reading.permit cimport debited, debited_untrusted
from fastwire.pulsar.reading.slot cimport (
    LANDED,
    Slot,
    SlotTable,
    State,
    runs_add,
    slot_again,
    slot_hold,
    slot_pass,
    slot_stage,
    slot_state,
)
from fastwire.wire.codecs cimport CODEC_SNAPPY_RAW, Codec
from fastwire.wire.frame cimport Frame
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, read_u32be, reader_error, reader_init
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_u32be

from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.reason import Reason
from fastwire.pulsar.reading.cold import UNDECODED
from fastwire.pulsar.columns import ROW

__all__ = ["Scanner"]

cdef enum:
    FRAME_PADDING = 10_240       # largest frame = max_message_size + this (spec: pulsar 1.3)
    DEFAULT_MAX_MESSAGE = 5 << 20
    LAST_TYPE = 81               # the highest number in the field tables


@cython.final
cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection into chunks.

    ``take_found`` returns a BaseCommand as bytes, or an entry that is not decoded here as a ColdEntry, whose position
    is not covered until ``keep_dead_letter``. Frames for consumers that ``slots`` does not attach to ``connection_id``
    are dropped. With ``on_corrupt="dead_letter"`` a damaged entry joins the chunk as a dead letter; with ``"stop"``
    it is a ColdEntry. ``scan`` raises ProtocolError if the framing itself is broken. An entry larger than a quarter
    of the budget is a ColdEntry without its bytes, which are not received in one piece.
    """
    cdef SlotTable slots
    cdef uint32_t connection
    cdef int64_t announced       # the broker's limit of a message
    cdef int64_t max_frame
    cdef int64_t beyond          # size of the current frame if only its command is received; 0: it is received whole
    cdef int64_t passing         # bytes of it that are still to come
    cdef ColdEntry finishing     # the argument of the current ``finish``
    cdef uint64_t[ACK_SET_WORDS] ack_set
    cdef bint summed             # the current frame has a checksum
    cdef int64_t sum             # what its entry is known by: the checksum, and the bytes that it is of
    cdef readonly int64_t entries
    cdef readonly int64_t landed_again
    cdef readonly int64_t staged_again
    cdef readonly int64_t dropped_frames
    cdef readonly int64_t redelivered
    cdef readonly int64_t unknown_commands

    def __cinit__(
        self, SlotTable slots not None, Pool pool not None, uint32_t connection_id, *,
        columns=None, int64_t max_message_size=DEFAULT_MAX_MESSAGE, str on_corrupt="dead_letter",
        int64_t buffer_bytes=1 << 20, clock=None,
    ):
        if connection_id == 0:
            raise ValueError("connection ids start at 1")
        self.prepare(slots, pool, ROW, columns, on_corrupt, buffer_bytes, clock)
        self.slots = slots
        self.connection = connection_id
        self.max_message_size = max_message_size

    @property
    def max_message_size(self):
        """Largest message in bytes. A larger frame raises ProtocolError."""
        return self.announced

    @max_message_size.setter
    def max_message_size(self, int64_t size):
        if not 0 < size <= 0x7FFFFFFF - FRAME_PADDING:
            raise ValueError(f"max_message_size {size} is out of range")
        self.announced = size
        self.max_frame = min(size + FRAME_PADDING, self.most_frame)

    cdef int run(self) except -1:
        cdef ReceiveBuffer b = self.buffer
        cdef const uint8_t* p
        cdef int64_t size, total, command, began
        cdef int stop
        if self.passing and not self.pass_by():
            return self.need(1)
        while True:
            size = b.end - b.start
            p = b.data + b.start
            if size < 8:
                return self.need(8)
            total = fw_u32be(p)
            command = fw_u32be(p + 4)
            if (total < 4 or total > self.max_frame) and not self.most_frame < total <= self.announced + FRAME_PADDING:
                raise ProtocolError("totalSize", 0, detail=f"{total} is not within 4 and {self.max_frame}")
            if command > total - 4:
                raise ProtocolError("commandSize", 4, command, total - 4)
            if total > self.max_frame:
                stop = self.large(p, size, total, command)
                if stop != GO_ON:
                    return stop
                if not self.pass_by():
                    return self.need(1)
                continue
            if size - 4 < total:
                return self.need(total + 4)
            if self.produced >= self.output_cap:
                return STOP_OUTPUT_CAP
            began = self.watch.begin_unit(self.frames)
            stop = self.frame(p, total + 4, command)
            self.watch.end_unit(began)
            if stop == STOP_CHUNK_FULL:
                return stop
            b.start += total + 4
            self.frames += 1
            if stop != GO_ON:
                return stop

    cdef int large(self, const uint8_t* p, int64_t size, int64_t total, int64_t command) except -1:
        """Process the command of a frame that is too large to be received in one piece; the rest is passed over."""
        cdef int stop
        if command > self.most_frame - 8:
            raise ProtocolError("totalSize", 0, detail=self.frame_too_large(total))
        if size < 8 + command:
            return self.need(8 + command)
        self.beyond = total
        try:
            stop = self.frame(p, 8 + command, command)
        finally:
            self.beyond = 0
        if stop != STOP_CHUNK_FULL:
            self.buffer.start += 8 + command
            self.passing = total - 4 - command
            self.frames += 1
        return stop

    cdef bint pass_by(self) noexcept:
        """Skip the rest of a frame that is too large, as far as it has come; return True if the frame ends here."""
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t size = min(b.end - b.start, self.passing)
        b.start += size
        self.passing -= size
        return self.passing == 0

    cdef int frame(self, const uint8_t* p, int64_t size, int64_t command_size) except -1:
        """Process one whole frame. STOP_CHUNK_FULL leaves it for the next call."""
        cdef Reader r
        cdef Reader inner
        cdef MessageHead head
        cdef uint64_t kind
        cdef const uint8_t* body
        cdef int64_t body_size
        if read_message_plain(p + 8, p + 8 + command_size, &head):
            return self.message(p, size, 8 + command_size, NULL, 0, &head)
        reader_init(&r, p, 8 + command_size)
        r.pos = p + 8
        kind = read_base_command(&r, &body, &body_size)
        if r.fault:
            raise reader_error(&r, "BaseCommand")
        if kind != TYPE_MESSAGE:
            if kind > LAST_TYPE:
                self.unknown_commands += 1
                return GO_ON
            self.found = PyBytes_FromStringAndSize(<const char*>(p + 8), command_size)
            return STOP_FOUND
        if body is NULL:
            raise ProtocolError("BaseCommand.message", 8, detail="is missing in a MESSAGE")
        reader_init(&inner, p, (body - p) + body_size)
        inner.pos = body
        read_command_message(&inner, &head)
        if inner.fault:
            raise reader_error(&inner, "CommandMessage")
        return self.message(p, size, 8 + command_size, body, body_size, &head)

    cdef int message(
        self, const uint8_t* p, int64_t size, int64_t at, const uint8_t* body, int64_t body_size, MessageHead* head
    ) except -1:
        """Process one MESSAGE; the part after the command is at ``p + at``. ``body`` is needed for an ack_set only."""
        cdef Slot* slot = self.slots.find(head.consumer_id, self.connection)
        cdef Reader r
        cdef Reader inner
        cdef Metadata m
        cdef EntryPlace place
        cdef uint32_t checksum
        cdef int64_t permits
        cdef int64_t length
        cdef State state
        cdef object bad = None
        cdef str detail = ""
        if slot is NULL or self.slots.room == 0:
            self.dropped_frames += 1
            return GO_ON
        if self.open.dead_letter_bytes >= CHUNK_BYTES:
            return STOP_CHUNK_FULL
        place.ack_set = NULL
        place.ack_words = 0
        if head.ack_set is not NULL:
            place.ack_words = read_ack_set(body, body_size, self.ack_set)
            place.ack_set = self.ack_set
        self.summed = False
        reader_init(&r, p, size)
        r.pos = p + at
        if size - at >= 2 and p[at] == 0x0E and p[at + 1] == 0x02:
            r.pos += 2
            length = read_u32be(&r)
            if length > r.end - r.pos:
                bad, detail = Reason.METADATA, f"broker entry metadata of {length} bytes is beyond the frame"
            else:
                r.pos += length
        if bad is None and r.end - r.pos >= 6 and r.pos[0] == 0x0E and r.pos[1] == 0x01:
            r.pos += 2
            checksum = read_u32be(&r)
            if self.codecs.crc32c(r.pos, r.end - r.pos) != checksum:
                bad, detail = Reason.CHECKSUM, f"CRC-32C is not {checksum:#010x}"
            else:
                self.summed = True
                self.sum = ((r.end - r.pos) << 32) | checksum
        if bad is None:
            length = read_u32be(&r)
            if r.fault or length > r.end - r.pos:
                bad, detail = Reason.METADATA, f"metadata of {length} bytes is beyond the frame"
            elif read_metadata_plain(r.pos, r.pos + length, &m):
                r.pos += length
            else:
                reader_init(&inner, r.pos, length)
                read_metadata(&inner, &m)
                r.pos += length
                if inner.fault:
                    bad, detail = Reason.METADATA, str(reader_error(&inner, "MessageMetadata"))
                elif m.batched and m.messages < 0:
                    bad, detail = Reason.METADATA, f"num_messages_in_batch is {m.messages}"
        permits = debited(slot, head, &m, &place) if bad is None else debited_untrusted(slot, head, &place)
        if head.has_epoch and head.epoch < slot.epoch:
            self.dropped_frames += 1
            return self.debit(slot, head, permits)
        if head.redelivery_count:
            self.redelivered += 1
        state = slot_state(slot, head.ledger, head.entry)
        if state != 0:
            if state == LANDED:
                self.landed_again += 1
                if runs_add(&slot.landed_again, head.ledger, head.entry, head.entry, True):
                    raise MemoryError()
            else:
                self.staged_again += 1
                if slot_again(slot, head.ledger, head.entry):
                    raise MemoryError()
            return self.debit(slot, head, permits)
        if head.ledger >= slot.until_ledger and (head.ledger > slot.until_ledger or head.entry > slot.until_entry):
            self.debit(slot, head, permits)
            return self.end(slot, head)
        if bad is not None:
            if self.beyond:
                bad, detail = Reason.FRAME, self.frame_too_large(self.beyond)
            return self.reject(slot, head, &place, permits, bad, detail, p + at, size - at)
        if m.batched and m.messages > MOST_MESSAGES:
            detail = f"num_messages_in_batch is {m.messages}, the limit is {MOST_MESSAGES}"
            return self.reject(slot, head, &place, permits, Reason.METADATA, detail, p + at, size - at)
        if m.marker:
            self.debit(slot, head, permits)
            return self.place_span(slot, head, 0)
        if slot.narrowed:
            self.narrow(head, &place)
        if m.encrypted:
            detail = "the payload is encrypted"
            return self.reject(slot, head, &place, permits, Reason.ENCRYPTED, detail, p + at, size - at)
        if m.chunks > 1:
            detail = f"one of {m.chunks} parts"
            return self.reject(slot, head, &place, permits, Reason.CHUNKED, detail, p + at, size - at)
        if 0 <= slot.most_redeliveries < head.redelivery_count:
            detail = f"delivered again {head.redelivery_count} times"
            return self.reject(slot, head, &place, permits, Reason.REDELIVERED, detail, p + at, size - at)
        if m.compacted_indexes:
            return self.reject(slot, head, &place, permits, Reason.COMPACTED, "compacted batch", p + at, size - at)
        return self.payload(slot, head, permits, &m, &place, &r, p + at, size - at)

    cdef int end(self, Slot* slot, MessageHead* head) except -1:
        """Pass over an entry behind the end of a bounded run: everything up to that end has come."""
        cdef MessageHead last = head[0]
        last.ledger = slot.until_ledger
        last.entry = slot.until_entry
        if slot.ordered and slot_state(slot, last.ledger, last.entry) == 0:
            self.place_span(slot, &last, 0)
        slot.ended = True
        return GO_ON

    cdef int narrow(self, MessageHead* head, EntryPlace* place) except -1:
        """Leave out unwanted elements of a batch; the broker may not know of them, and has debited them."""
        cdef bytes words = self.slots.wanted_of(head.consumer_id, head.ledger, head.entry)
        cdef const uint8_t* bits
        cdef uint64_t word
        cdef int32_t i, count
        if words is None:
            return 0
        bits = words
        count = <int32_t>min(len(words) // 8, ACK_SET_WORDS if place.ack_set is NULL else place.ack_words)
        for i in range(count):
            memcpy(&word, bits + i * 8, 8)
            self.ack_set[i] = word if place.ack_set is NULL else word & self.ack_set[i]
        place.ack_set = self.ack_set
        place.ack_words = count
        return 0

    cdef int debit(self, Slot* slot, MessageHead* head, int64_t permits) except -1:
        slot.debited += <uint64_t>permits
        if permits:              # what is finished later was counted as it came
            slot.debits += 1
        if slot.debited >= slot.due_at:
            self.slots.fall_due(slot, head.consumer_id)
        slot.last_ledger = head.ledger
        slot.last_entry = head.entry
        if not slot.dirty:
            self.slots.touch(slot, head.consumer_id)
        return GO_ON

    cdef int place_span(self, Slot* slot, MessageHead* head, int64_t rows) except -1:
        """Add the entry to the open chunk: extend its log's span, or begin one."""
        cdef SpanRow* span
        cdef int64_t start_ledger, start_entry
        if slot.ahead_count and slot.ordered:
            slot_pass(slot, head.ledger, head.entry)
        if slot.chunk == self.open.number and not slot.ordered:
            span = &self.open.places.spans[slot.span]
            if span.end_a != head.ledger or span.end_b + 1 != head.entry:
                slot.chunk = 0
        if slot.chunk != self.open.number:
            if slot.ordered:
                start_ledger = slot.staged_ledger
                start_entry = slot.staged_entry
            else:
                start_ledger = head.ledger
                start_entry = head.entry - 1
            slot.span = self.open.begin_span(slot.log, start_ledger, start_entry)
            slot.chunk = self.open.number
            if slot.holds:
                span = &self.open.places.spans[slot.span]
                span.holds = True
                span.held_a = slot.held_ledger
                span.held_b = slot.held_entry
                slot.holds = False
        span = &self.open.places.spans[slot.span]
        span.end_a = head.ledger
        span.end_b = head.entry
        span.rows += rows
        span.witnessed = False   # unless the caller knows the bytes of this entry
        if slot_stage(slot, head.ledger, head.entry):
            raise MemoryError()
        return GO_ON

    cdef int reject(
        self, Slot* slot, MessageHead* head, EntryPlace* place, int64_t permits, reason, str detail,
        const uint8_t* raw, int64_t size,
    ) except -1:
        """Reject an entry that is not decoded here: make it a dead letter, or stop for the caller."""
        cdef ColdEntry cold
        if self.finishing is not None:
            raise CorruptEntryError(reason, detail)
        cold = ColdEntry.__new__(ColdEntry)
        self.debit(slot, head, permits)
        cold.consumer_id = head.consumer_id
        cold.log = self.slots.logs[slot.log]
        cold.ledger = head.ledger
        cold.entry = head.entry
        cold.permits = permits
        cold.redelivery_count = head.redelivery_count
        cold.ordered = slot.ordered
        cold.too_often = 0 <= slot.most_redeliveries < head.redelivery_count
        cold.reason = reason
        cold.detail = detail
        if place.ack_set is not NULL:
            cold.ack_set = PyBytes_FromStringAndSize(<const char*>place.ack_set, place.ack_words * 8)
        cold.payload = PyBytes_FromStringAndSize(<const char*>raw, size)
        if self.keeps_corrupt and reason not in UNDECODED and not self.beyond:
            self.keep_dead_letter(cold)
            return GO_ON
        self.found = cold
        return STOP_FOUND

    cdef Slot* slot_of(self, ColdEntry cold, MessageHead* head) noexcept:
        """Return the slot of ``cold``; NULL if its consumer is no longer on this connection."""
        head.consumer_id = cold.consumer_id
        head.ledger = cold.ledger
        head.entry = cold.entry
        head.redelivery_count = cold.redelivery_count
        return self.slots.find(head.consumer_id, self.connection)

    cdef int place_cold(self, Slot* slot, MessageHead* head, ColdEntry cold, int64_t rows) except -1:
        """Add a cold entry to a span; an entry that was held gets a span of its own."""
        cdef SpanRow* span
        cdef int64_t at
        if not cold.held:
            return self.place_span(slot, head, rows)
        at = self.open.begin_span(slot.log, cold.after_ledger, cold.after_entry)
        span = &self.open.places.spans[at]
        span.end_a = head.ledger
        span.end_b = head.entry
        span.rows = rows
        # Earlier entries may stay held for longer: the span after a hole declares it.
        span.holds = cold.holds
        span.held_a = cold.held_ledger
        span.held_b = cold.held_entry
        return GO_ON

    def hold(self, ColdEntry cold not None):
        """Count ``cold`` as received without landing it.

        Until ``finish``, ``cover`` or ``keep_dead_letter`` no span holds it.
        """
        cdef MessageHead head
        cdef Slot* slot = self.slot_of(cold, &head)
        if slot is NULL:
            return
        if slot.ordered:
            slot_pass(slot, head.ledger, head.entry)
            cold.after_ledger = slot.staged_ledger
            cold.after_entry = slot.staged_entry
            cold.holds = slot.holds
            cold.held_ledger = slot.held_ledger
            cold.held_entry = slot.held_entry
        else:
            cold.after_ledger = head.ledger
            cold.after_entry = head.entry - 1
        if slot_hold(slot, head.ledger, head.entry):
            raise MemoryError()
        cold.held = True
        slot.largest = max(slot.largest, <int64_t>len(cold.payload))

    def cover(self, ColdEntry cold not None):
        """Land the position of ``cold`` without a row: its content is in another entry, or not wanted."""
        cdef MessageHead head
        cdef Slot* slot = self.slot_of(cold, &head)
        if slot is not NULL:
            self.place_cold(slot, &head, cold, 0)

    def finish(self, ColdEntry cold not None, metadata, payload, *, bint whole=False):
        """Decode ``cold`` with other ``metadata`` and ``payload``; return False if the chunk must be taken first.

        ``whole`` ignores its ack_set. Raises CorruptEntryError, and leaves the chunk unchanged then.
        """
        cdef Frame head_bytes = Frame(metadata)
        cdef Frame body_bytes = Frame(payload)
        cdef MessageHead head
        cdef Slot* slot = self.slot_of(cold, &head)
        cdef Metadata m
        cdef EntryPlace place
        cdef Reader r
        cdef int64_t largest
        if slot is NULL:
            return True
        reader_init(&r, head_bytes.data, head_bytes.size)
        read_metadata(&r, &m)
        if r.fault:
            raise CorruptEntryError(Reason.METADATA, str(reader_error(&r, "MessageMetadata")))
        if m.batched and not 0 <= m.messages <= MOST_MESSAGES:
            raise CorruptEntryError(Reason.METADATA, f"num_messages_in_batch is {m.messages}")
        place.ack_set = NULL
        place.ack_words = 0
        if cold.ack_set is not None and not whole:
            place.ack_words = <int32_t>(len(cold.ack_set) // 8)
            memcpy(self.ack_set, <const char*>cold.ack_set, <size_t>place.ack_words * 8)
            place.ack_set = self.ack_set
        reader_init(&r, body_bytes.data, body_bytes.size)
        largest = slot.largest   # the window of permits is sized by entries as received
        self.finishing = cold
        try:
            return self.payload(slot, &head, 0, &m, &place, &r, r.pos, 0) != STOP_CHUNK_FULL
        finally:
            self.finishing = None
            slot.largest = max(largest, <int64_t>len(cold.payload))

    def inflate(self, uint32_t compression, payload, uint32_t size):
        """Return the ``size`` bytes that ``payload`` decompresses to. Raises CorruptEntryError."""
        cdef Frame packed = Frame(payload)
        cdef const uint8_t* data
        if size == 0 or compression == 0:
            return PyBytes_FromStringAndSize(<const char*>packed.data, 0 if compression else packed.size)
        data = self.codecs.decompress(<Codec>compression, packed.data, packed.size, size)
        block = PyBytes_FromStringAndSize(<const char*>data, size)
        self.codecs.shrink()
        return block

    def keep_dead_letter(self, ColdEntry cold not None):
        """Put ``cold`` into the open chunk as a dead letter: its position is covered like that of a decoded entry."""
        cdef MessageHead head
        cdef Slot* slot = self.slot_of(cold, &head)
        if slot is NULL:
            return
        self.place_cold(slot, &head, cold, 0)
        self.open.add_dead_letter(cold.letter())

    cdef int payload(
        self, Slot* slot, MessageHead* head, int64_t permits, Metadata* m, EntryPlace* place, Reader* r,
        const uint8_t* raw, int64_t raw_size,
    ) except -1:
        """Decompress and decode one intact entry into the open chunk."""
        cdef Reader block
        cdef const uint8_t* data = r.pos
        cdef int64_t size = r.end - r.pos
        cdef int64_t rows, first, began
        cdef int status
        cdef SpanRow* span
        cdef Columns* c = &self.open.columns
        rows = m.messages if m.batched else 1
        if self.open.full(rows, m.size + (size if m.compression == 0 else m.uncompressed_size)):
            return STOP_CHUNK_FULL
        if m.compression:
            # The official clients check the size as received (spec: pulsar 9); the frame limit has done it here.
            began = self.watch.now()
            try:
                if m.uncompressed_size == 0 and m.compression <= CODEC_SNAPPY_RAW:
                    size = 0
                else:
                    # Codec has Pulsar's numbers (spec: pulsar 9); the decompressor rejects unknown ones.
                    data = self.codecs.decompress(<Codec>m.compression, data, size, m.uncompressed_size)
                    size = m.uncompressed_size
            except CorruptEntryError as exc:
                self.codecs.shrink()
                return self.reject(slot, head, place, permits, exc.reason, exc.detail, raw, raw_size)
            self.watch.decompressed(began)
        self.open.begin()
        first = c.rows
        place.ledger = head.ledger
        place.entry = head.entry
        place.topic = slot.topic
        place.partition = slot.partition
        place.redelivery_count = <int32_t>(head.redelivery_count & 0x7FFFFFFF)
        reader_init(&block, data, size)
        began = self.watch.now()
        status = decode_entry(c, m, place, &block)
        self.watch.decoded(began)
        if m.compression:
            self.codecs.shrink()
        if status == NO_MEMORY:
            if not c.over:
                raise MemoryError()
            if first:
                return STOP_CHUNK_FULL
            return self.reject(
                slot, head, place, permits, Reason.TOO_LARGE, self.open.too_large(), raw, raw_size
            )
        if status:
            detail = str(reader_error(&block, "batch")) if status == DAMAGED and block.fault else (
                "the producer's name is not UTF-8" if status == NOT_UTF8 else "a property has no key or no value"
            )
            return self.reject(slot, head, place, permits, Reason.BATCH, detail, raw, raw_size)
        self.debit(slot, head, permits)
        self.entries += 1
        self.took(slot.log, size, first, &slot.largest)
        if self.finishing is not None:
            return self.place_cold(slot, head, self.finishing, c.rows - first)
        self.place_span(slot, head, c.rows - first)
        span = &self.open.places.spans[slot.span]
        span.witnessed = self.summed
        span.witness = self.sum
        return GO_ON
