"""The hot loop of a Kafka connection: decodes Fetch responses into columns in place, batch by batch.

A response need not be complete: each complete batch is decoded at once, and its bytes are free for the next read. Every
other response is returned as bytes.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.builder cimport Mark, columns_mark, columns_rewind
from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES, OpenChunk
from fastwire.columns.scan cimport (
    GO_ON,
    STOP_CHUNK_FULL,
    STOP_FOUND,
    STOP_NEED_BYTES,
    STOP_OUTPUT_CAP,
)
from fastwire.columns.slots cimport SlotHead
from fastwire.kafka.reading.legacy cimport is_sound, put_message
from fastwire.kafka.reading.placing cimport LEFT, RECORDS_HEAD, TAKEN, PlacingScanner
from fastwire.kafka.reading.records cimport (
    BATCH_HEAD,
    CODEC_MASK,
    CONTROL,
    DECODED,
    MAGIC_AT,
    NO_MEMORY,
    SMALLEST_BATCH,
    TRANSACTIONAL,
    BatchHead,
    Known,
    RowPlace,
    codec_of,
    control_type,
    find_record,
    put_records,
    read_batch_head,
)
from fastwire.kafka.reading.response cimport FRAME, PARTITION_END, RECORDS, REST, ResponseWalk
from fastwire.kafka.reading.slot cimport Slot, SlotTable
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, reader_error, reader_init
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_i64be, fw_u32be

from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.reason import Reason
from fastwire.kafka.columns import ROW

__all__ = ["Scanner"]

cdef enum:
    MOST_FRAME = 1 << 30         # a response has no limit in the protocol (spec: kafka 1)
    MOST_COLD = 100 << 20        # of a response that is returned as bytes: a broker's limit for requests
    MOST_TOKEN = 1 << 20
    DEAD_BYTES = 1 << 20         # kept of a batch with an impossible size


@cython.final
cdef class Scanner(PlacingScanner):
    """Decodes the bytes of one connection into chunks.

    ``plan`` announces each Fetch request that is sent. ``take_found`` returns a Fetched at the end of its response,
    any other response as bytes from its correlation id on, or a CorruptBatch, whose partition is detached. With
    ``on_corrupt="dead_letter"`` a damaged batch joins the chunk as a dead letter; with ``"stop"`` it is a CorruptBatch.
    ``scan`` raises ProtocolError if the framing itself is broken.
    """
    cdef dict plans              # by correlation id
    cdef public bint raw         # frames are login tokens: no correlation id, may be empty (spec: kafka 15)
    cdef readonly int64_t batches

    def __cinit__(
        self, SlotTable slots not None, Pool pool not None, *, columns=None, str on_corrupt="dead_letter",
        int64_t buffer_bytes=1 << 20, clock=None,
    ):
        self.prepare(slots, pool, ROW, columns, on_corrupt, buffer_bytes, clock)
        self.slots = slots
        self.plans = {}
        self.at = ResponseWalk(slots, self.buffer)

    def plan(self, int32_t correlation_id, planned not None):
        """Register a sent Fetch request; its response is decoded according to ``planned``."""
        self.plans[correlation_id] = planned

    cdef int run(self) except -1:
        cdef int stop
        while True:
            if self.at.phase == FRAME:
                stop = self.begin()
            elif self.at.phase == RECORDS:
                stop = self.records()
            elif self.at.phase == REST:
                self.found = self.at.rest()
                if self.found is None:
                    return STOP_NEED_BYTES
                self.frames += 1
                return STOP_FOUND
            else:
                stop = GO_ON if self.at.piece() else STOP_NEED_BYTES
            if stop != GO_ON:
                return stop

    cdef int begin(self) except -1:
        """Read the head of a frame: a Fetch response is read in pieces, any other is returned as bytes."""
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t size = b.end - b.start
        cdef int64_t total
        cdef int32_t correlation
        if size < 8 and not (self.raw and size >= 4):
            return self.need(4 if self.raw else 8)
        total = <int32_t>fw_u32be(b.data + b.start)
        if self.raw:
            if total < 0 or total > MOST_TOKEN:
                raise ProtocolError("size", 0, detail=f"of a token is {total}, not within 0 and {MOST_TOKEN}")
            return self.hand_out(total)
        if total < 4 or total > MOST_FRAME:
            raise ProtocolError("size", 0, detail=f"{total} is not within 4 and {MOST_FRAME}")
        correlation = <int32_t>fw_u32be(b.data + b.start + 4)
        plan = self.plans.pop(correlation, None)
        if plan is None:
            if total > MOST_COLD:
                raise ProtocolError("size", 0, detail=f"{total} of a response without records, limit {MOST_COLD}")
            if total > self.most_frame:
                raise ProtocolError("size", 0, detail=f"of a response: {self.frame_too_large(total)}")
            return self.hand_out(total)
        self.at.begin(plan, correlation, total - 4)
        b.start += 8
        return GO_ON

    cdef int hand_out(self, int64_t total) except -1:
        """Return a frame that is not decoded here, once it is complete."""
        cdef ReceiveBuffer b = self.buffer
        if b.end - b.start < 4 + total:
            return self.need(4 + total)
        self.found = PyBytes_FromStringAndSize(<const char*>(b.data + b.start + 4), total)
        b.start += 4 + total
        self.frames += 1
        return STOP_FOUND

    cdef int records(self) except -1:
        """Decode the batches of one partition: each complete one, even if later bytes are missing."""
        cdef ReceiveBuffer b = self.buffer
        cdef const uint8_t* p
        cdef int64_t present, size, wanted, next_base, began
        cdef bint whole
        cdef int stop
        cdef SlotHead* slot
        while self.at.records_left:
            present = min(b.end - b.start, self.at.records_left)
            p = b.data + b.start
            size = 0
            if not self.at.skip:
                slot = self.slots.head(self.at.slot_index)
                self.at.skip = (
                    self.slots.room == 0 or slot.session != self.at.session or (<Slot*>slot).offset >= slot.until
                )
            if not self.at.skip:
                wanted = min(self.at.records_left, RECORDS_HEAD)
                if present < wanted:
                    return self.need(wanted)
                whole = self.at.records_left >= RECORDS_HEAD
                if whole:
                    size = 12 + <int64_t><int32_t>fw_u32be(p + 8)
                    whole = (12 + SMALLEST_BATCH if p[MAGIC_AT] >= 2 else RECORDS_HEAD) <= size <= self.at.records_left
                if whole and size > self.most_frame and (<Slot*>slot).compare:
                    self.stop_looking(<Slot*>slot)
                elif whole and size > self.most_frame:
                    return self.refuse(Reason.FRAME, f"a batch of {self.frame_too_large(size)}")
                if not self.at.skip and not whole and self.at.batch_seen:
                    self.at.skip = True         # truncated or damaged: the next response begins with it
            if self.at.skip:
                if present == 0:
                    return self.need(1)
                self.at.pass_by(present)
                continue
            next_base = -1
            if not whole:
                wanted = size = min(self.at.records_left, DEAD_BYTES)
            else:
                wanted = size
                if self.at.records_left >= size + RECORDS_HEAD:
                    wanted = size + 8
            if present < wanted:
                return self.need(wanted)
            if wanted > size:
                next_base = fw_i64be(p + size)
            if self.produced >= self.output_cap:
                return STOP_OUTPUT_CAP
            began = self.watch.begin_unit(self.batches)
            stop = self.batch(p, size, next_base, whole)
            self.watch.end_unit(began)
            if stop == STOP_CHUNK_FULL or stop == STOP_NEED_BYTES:
                return stop
            self.at.batch_seen = True
            if not whole:
                self.at.skip = True
            self.at.pass_by(size)
            if stop != GO_ON:
                return stop
        self.at.phase = PARTITION_END
        return self.through()

    cdef int batch(self, const uint8_t* p, int64_t size, int64_t next_base, bint whole) except -1:
        """Process one complete batch, or bytes in the place of one. STOP_CHUNK_FULL and STOP_NEED_BYTES leave it
        for the next call.

        ``next_base`` is the first offset of the batch after it, -1 if its head is not in this response.
        """
        cdef Slot* slot = self.slots.get(self.at.slot_index)
        cdef OpenChunk chunk = self.open
        cdef BatchHead head
        cdef RowPlace place
        cdef Reader r
        cdef const uint8_t* data
        cdef const uint8_t* last
        cdef int64_t data_size, expected, first, next_offset, began
        cdef int64_t witness = 0
        cdef Known known
        cdef bint witnessed = False
        cdef int status
        if chunk.dead_letter_bytes >= CHUNK_BYTES:
            return STOP_CHUNK_FULL
        if not whole:
            return self.damaged(slot, p, size, "an answer without one complete batch", False)
        place.offset = slot.offset
        place.until = slot.head.until
        place.topic = slot.head.topic
        place.partition = slot.head.partition
        if p[MAGIC_AT] < 2:
            return self.message(slot, &place, p, size, next_base)
        read_batch_head(p, &head)
        if head.magic != 2 or head.base_offset < 0 or head.offsets < 1:
            return self.damaged(slot, p, size, f"magic {head.magic}, offset {head.base_offset}")
        if head.base_offset > 0x7FFFFFFFFFFFFFFF - head.offsets:
            return self.damaged(slot, p, size, f"offset {head.base_offset}")
        # The checksum precedes all other checks, including that of the batch's place.
        if self.codecs.crc32c(p + 21, size - 21) != fw_u32be(p + 17):
            return self.damaged(slot, p, size, f"CRC-32C is not {fw_u32be(p + 17):#010x}")
        next_offset = head.base_offset + head.offsets
        if slot.compare:
            # A batch that overlaps the next one has a damaged first offset.
            if not 0 <= next_base < next_offset and self.is_another(slot, &head, p, size):
                return self.refuse(Reason.MESSAGE, "the record before the position is another one", True)
            if next_offset != slot.offset:
                return self.stop_looking(slot)
            slot.compare, slot.aligned = False, True
            if self.at.committed and head.producer_id >= 0:
                self.aborts(&head, next_offset, p + BATCH_HEAD, p + size)
            return GO_ON
        status = self.place(slot, p, size, head.base_offset, next_offset, next_base)
        if status != TAKEN:
            return GO_ON if status == LEFT else status
        if self.at.committed and head.producer_id >= 0 and self.aborts(&head, next_offset, p + BATCH_HEAD, p + size):
            return self.advance(slot, next_offset, head.leader_epoch, 0)
        if head.attributes & CONTROL or head.count == 0:
            return self.advance(slot, next_offset, head.leader_epoch, 0)
        data = p + BATCH_HEAD
        data_size = size - BATCH_HEAD
        # The decompressed size is unknown; the estimate is that of the largest recent batch.
        expected = max(data_size, slot.head.largest) if head.attributes & CODEC_MASK else data_size
        if chunk.full(min(<int64_t>head.count, expected), expected):
            return STOP_CHUNK_FULL
        if head.attributes & CODEC_MASK:
            began = self.watch.now()
            try:
                data = self.codecs.inflate(codec_of(head.attributes, data, data_size), data, data_size, &data_size)
            except CorruptEntryError as exc:
                self.codecs.shrink()
                return self.reject(slot, p, size, next_offset, exc.reason, exc.detail)
            self.watch.decompressed(began)
        chunk.begin()
        first = chunk.columns.rows
        reader_init(&r, data, <Py_ssize_t>data_size)
        began = self.watch.now()
        status = put_records(&chunk.columns, &head, &place, &r, &last)
        self.watch.decoded(began)
        if status == DECODED and last is not NULL and next_offset <= slot.head.until:
            witnessed = find_record(&head, head.offsets - 1, last, data + data_size, &known)
            if witnessed:
                witness = self.witness(&known)       # before the decompressed bytes are gone
        self.codecs.shrink()
        if status == NO_MEMORY:
            if not chunk.columns.over:
                raise MemoryError()
            if first:
                return STOP_CHUNK_FULL
            return self.reject(slot, p, size, next_offset, Reason.TOO_LARGE, chunk.too_large())
        if status:
            return self.reject(slot, p, size, next_offset, Reason.MESSAGE, str(reader_error(&r, "batch")))
        self.batches += 1
        self.took(slot.head.log, data_size, first, &slot.head.largest)
        self.advance(slot, next_offset, head.leader_epoch, chunk.columns.rows - first)
        return self.attest(slot, witness) if witnessed else GO_ON

    cdef int message(self, Slot* slot, RowPlace* place, const uint8_t* p, int64_t size, int64_t next_base) except -1:
        """Process one message of an older format, or a wrapper of several."""
        cdef OpenChunk chunk = self.open
        cdef Mark mark
        cdef int64_t first
        cdef int64_t witness
        cdef int64_t[2] offsets
        cdef Known known
        cdef int stop
        if not is_sound(self.codecs, p, size):
            return self.damaged(slot, p, size, f"CRC-32 is not {fw_u32be(p + 12):#010x}")
        if chunk.full(1, size):
            return STOP_CHUNK_FULL
        chunk.begin()
        first = chunk.columns.rows
        columns_mark(&chunk.columns, &mark)
        try:
            put_message(&chunk.columns, place, self.codecs, p, size, offsets, &known)
            witness = self.witness(&known)
        except CorruptEntryError as exc:
            columns_rewind(&chunk.columns, &mark)
            if chunk.columns.over and first:
                return STOP_CHUNK_FULL
            # The first offset of a wrapper is that of its contents.
            return self.damaged(slot, p, size, chunk.too_large() if chunk.columns.over else exc.detail)
        finally:
            self.codecs.shrink()
        if slot.compare:
            columns_rewind(&chunk.columns, &mark)
            if offsets[1] != slot.offset:
                return self.stop_looking(slot)
            slot.compare, slot.aligned = False, True
            if witness != slot.witness:
                return self.refuse(Reason.MESSAGE, "the record before the position is another one", True)
            return GO_ON
        stop = self.place(slot, p, size, offsets[0], offsets[1], next_base)
        if stop != TAKEN:
            columns_rewind(&chunk.columns, &mark)
            return GO_ON if stop == LEFT else stop
        self.batches += 1
        self.took(slot.head.log, size, first, &slot.head.largest)
        self.advance(slot, offsets[1], -1, chunk.columns.rows - first)
        return self.attest(slot, witness) if offsets[1] <= slot.head.until else GO_ON

    # --- the record before the position

    cdef bint is_another(self, Slot* slot, const BatchHead* head, const uint8_t* p, int64_t size) except -1:
        """Return whether a batch has another record before the position than the one that has landed.

        What cannot be read is not compared, nor a record that a compaction has removed.
        """
        cdef const uint8_t* data = p + BATCH_HEAD
        cdef int64_t data_size = size - BATCH_HEAD
        cdef int64_t delta = slot.offset - 1 - head.base_offset
        cdef Known known
        cdef bint other
        if not 0 <= delta < head.offsets or head.count < 1:
            return False
        if head.attributes & CONTROL:
            return True
        if head.attributes & CODEC_MASK:
            try:
                data = self.codecs.inflate(codec_of(head.attributes, data, data_size), data, data_size, &data_size)
            except CorruptEntryError:
                return False
        other = find_record(head, delta, data, data + data_size, &known) and self.witness(&known) != slot.witness
        self.codecs.shrink()
        return other

    cdef int64_t witness(self, const Known* known) except? -1:
        """Return what a record is known by: checksums of its time and key, and of its value."""
        cdef uint64_t high = self.codecs.crc32c(known.key, known.key_size) if known.key_size > 0 else 0
        cdef uint64_t low = self.codecs.crc32c(known.value, known.value_size) if known.value_size > 0 else 0
        high += known.key is NULL
        low += known.value is NULL
        return <int64_t>(((high << 32) | low) ^ (<uint64_t>known.milli * <uint64_t>0x9E3779B97F4A7C15))

    cdef int attest(self, Slot* slot, int64_t witness) except -1:
        """Note by what the record before the position is known."""
        cdef SpanRow* span = self.span_of(&slot.head, slot.offset, slot.epoch)
        span.witness = slot.witness = witness
        span.witnessed = slot.witnessed = True
        return GO_ON

    cdef bint aborts(self, const BatchHead* head, int64_t next_offset, const uint8_t* p, const uint8_t* end) except -1:
        """Return whether a batch belongs to an aborted transaction, by the response's list (spec: kafka 9.1)."""
        self.at.aborted.reach(next_offset)
        if head.attributes & CONTROL:
            if control_type(p, end) == 0:
                self.at.aborted.end(head.producer_id)
            return False
        return head.attributes & TRANSACTIONAL and self.at.aborted.is_open(head.producer_id)
