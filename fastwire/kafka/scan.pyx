"""The hot loop of a Kafka connection: Fetch responses to columns in place, batch by batch, as their bytes come.

A response need not be there as a whole: each complete batch is decoded, and its bytes are free for the next read. Every
other response is handed out as bytes.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES, OUTPUT_CAP_BYTES, OpenChunk
from fastwire.columns.scan cimport (
    GO_ON,
    STOP_CHUNK_FULL,
    STOP_NEED_BYTES,
    STOP_OUTPUT_CAP,
    STOP_OWN,
    ChunkScanner,
)
from fastwire.kafka.legacy cimport put_message
from fastwire.kafka.records cimport (
    BATCH_HEAD,
    CODEC_MASK,
    CONTROL,
    DAMAGED,
    MAGIC_AT,
    NO_MEMORY,
    SMALLEST_BATCH,
    TRANSACTIONAL,
    BatchHead,
    RowPlace,
    control_type,
    put_records,
    read_batch_head,
)
from fastwire.kafka.response cimport FRAME, PARTITION_END, RECORDS, REST, ResponseWalk
from fastwire.kafka.slot cimport Slot, SlotTable
from fastwire.wire.codecs cimport (
    CODEC_GZIP,
    CODEC_LZ4_FRAME,
    CODEC_SNAPPY_RAW,
    CODEC_SNAPPY_XERIAL,
    CODEC_ZSTD,
    Codec,
    is_xerial,
)
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, reader_error, reader_init
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_u32be

from dataclasses import dataclass
from enum import IntEnum

from fastwire.columns.chunk import DeadLetter
from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.position import Position

__all__ = ["CorruptBatch", "Scanner", "Stop"]

cdef enum:
    MOST_FRAME = 1 << 30         # a response has no limit in the protocol (kafka 1)
    RECORDS_HEAD = 17            # up to the magic, which says how the rest is to be read

cdef enum:
    STOP_COLD_RESPONSE = STOP_OWN
    STOP_FETCHED
    STOP_CORRUPT


class Stop(IntEnum):
    """Why ``Scanner.scan`` returned; the caller deals with it and calls again, so that wire order is kept."""

    NEED_BYTES = STOP_NEED_BYTES
    CHUNK_FULL = STOP_CHUNK_FULL
    OUTPUT_CAP = STOP_OUTPUT_CAP
    COLD_RESPONSE = STOP_COLD_RESPONSE
    FETCHED = STOP_FETCHED
    CORRUPT = STOP_CORRUPT


@dataclass(frozen=True, slots=True)
class CorruptBatch:
    """A batch that cannot be decoded, where the caller wants to decide. Its partition reads no further."""

    index: int
    position: Position
    reason: str
    detail: str


cdef Codec codec_of(int attributes, const uint8_t* data, int64_t size) except? CODEC_GZIP:
    cdef int number = attributes & CODEC_MASK
    if number == 1:
        return CODEC_GZIP
    if number == 2:
        return CODEC_SNAPPY_XERIAL if is_xerial(data, size) else CODEC_SNAPPY_RAW
    if number == 3:
        return CODEC_LZ4_FRAME
    if number == 4:
        return CODEC_ZSTD
    raise CorruptEntryError("CorruptMessage", f"codec {number}")


@cython.final
cdef class Scanner(ChunkScanner):
    """Bytes of one connection to chunks.

    ``plan`` tells of each Fetch request that is sent; ``take_response``, ``take_fetched`` and ``take_corrupt`` give
    what else ``scan`` stops for. With ``on_corrupt="divert"`` a damaged batch joins the chunk as a dead letter; with
    ``"stop"`` it is CORRUPT. ``scan`` raises ProtocolError where the framing itself is broken.
    """
    cdef SlotTable slots
    cdef dict plans              # by correlation id
    cdef ResponseWalk at         # the response that is being read
    cdef object response
    cdef object fetched
    cdef object corrupt
    cdef readonly int64_t batches
    cdef readonly int64_t cut_rows
    cdef readonly int64_t aborted_batches

    def __cinit__(
        self, SlotTable slots not None, Pool pool not None, *, columns=None, str on_corrupt="divert",
        int64_t buffer_bytes=1 << 20, clock=None,
    ):
        self.prepare(slots, pool, "kafka", columns, on_corrupt, buffer_bytes, clock)
        self.slots = slots
        self.plans = {}
        self.at = ResponseWalk(slots, self.buffer)

    def plan(self, int32_t correlation_id, planned not None):
        """A Fetch request was sent; its answer is decoded as ``planned`` says."""
        self.plans[correlation_id] = planned

    cdef int run(self) except -1:
        cdef int stop
        self.response = None
        while True:
            if self.at.phase == FRAME:
                stop = self.begin()
            elif self.at.phase == RECORDS:
                stop = self.records()
            elif self.at.phase == REST:
                self.fetched = self.at.rest()
                if self.fetched is None:
                    return STOP_NEED_BYTES
                self.frames += 1
                return STOP_FETCHED
            else:
                stop = GO_ON if self.at.piece() else STOP_NEED_BYTES
            if stop != GO_ON:
                return stop

    cdef int begin(self) except -1:
        """The head of a frame: a Fetch response is read in pieces, any other is handed out whole."""
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t size = b.end - b.start
        cdef int64_t total
        cdef int32_t correlation
        if size < 8:
            return self.need(8)
        total = <int32_t>fw_u32be(b.data + b.start)
        if total < 4 or total > MOST_FRAME:
            raise ProtocolError("size", 0, detail=f"{total} is not within 4 and {MOST_FRAME}")
        correlation = <int32_t>fw_u32be(b.data + b.start + 4)
        plan = self.plans.pop(correlation, None)
        if plan is None:
            if size < 4 + total:
                return self.need(4 + total)
            self.response = PyBytes_FromStringAndSize(<const char*>(b.data + b.start + 4), total)
            b.start += 4 + total
            self.frames += 1
            return STOP_COLD_RESPONSE
        self.at.begin(plan, correlation, total - 4)
        b.start += 8
        return GO_ON

    cdef int records(self) except -1:
        """The batches of one partition: each complete one, whether the rest has come or not."""
        cdef ReceiveBuffer b = self.buffer
        cdef const uint8_t* p
        cdef int64_t present, size, began
        cdef int stop
        while self.at.records_left:
            present = min(b.end - b.start, self.at.records_left)
            p = b.data + b.start
            size = 0
            if not self.at.skip:
                self.at.skip = self.slots.room == 0 or self.slots.get(self.at.slot_index).session != self.at.session
            if not self.at.skip:
                if self.at.records_left < RECORDS_HEAD:
                    self.at.skip = True         # cut off: the rest comes with the next answer
                elif present < RECORDS_HEAD:
                    return self.need(RECORDS_HEAD)
                else:
                    size = 12 + <int64_t><int32_t>fw_u32be(p + 8)
                    if size < (12 + SMALLEST_BATCH if p[MAGIC_AT] >= 2 else RECORDS_HEAD):
                        return self.refuse("CorruptMessage", f"a batch of {size} bytes")
                    if size > self.at.records_left:
                        self.at.skip = True
            if self.at.skip:
                if present == 0:
                    return self.need(1)
                self.at.pass_by(present)
                continue
            if present < size:
                return self.need(size)
            if self.produced >= OUTPUT_CAP_BYTES:
                return STOP_OUTPUT_CAP
            began = self.watch.begin_unit(self.batches)
            stop = self.batch(p, size)
            self.watch.end_unit(began)
            if stop == STOP_CHUNK_FULL:
                return stop
            self.at.batch_seen = True
            self.at.pass_by(size)
            if stop != GO_ON:
                return stop
        self.at.phase = PARTITION_END
        if self.at.records_size and self.at.slot_index >= 0 and not self.at.batch_seen and self.slots.room != 0:
            if self.slots.get(self.at.slot_index).session == self.at.session:
                # Asking again would bring the same again (kafka 9).
                return self.refuse("CorruptMessage", "an answer without one complete batch")
        return GO_ON

    cdef int batch(self, const uint8_t* p, int64_t size) except -1:
        """One complete batch. STOP_CHUNK_FULL leaves it for the next call."""
        cdef Slot* slot = self.slots.get(self.at.slot_index)
        cdef OpenChunk chunk = self.open
        cdef BatchHead head
        cdef RowPlace place
        cdef Reader r
        cdef const uint8_t* data
        cdef int64_t data_size, expected, first, next_offset, began
        cdef int status
        if chunk.diverted_bytes >= CHUNK_BYTES:
            return STOP_CHUNK_FULL
        place.offset = slot.offset
        place.topic = slot.topic
        place.partition = slot.partition
        if p[MAGIC_AT] < 2:
            return self.message(slot, &place, p, size)
        read_batch_head(p, &head)
        if head.magic != 2 or head.base_offset < 0 or head.offsets < 1:
            return self.refuse("CorruptMessage", f"magic {head.magic}, offset {head.base_offset}")
        if head.base_offset > 0x7FFFFFFFFFFFFFFF - head.offsets:
            return self.refuse("CorruptMessage", f"offset {head.base_offset}")
        next_offset = head.base_offset + head.offsets
        if next_offset <= slot.offset:
            return GO_ON
        if self.codecs.crc32c(p + 21, size - 21) != fw_u32be(p + 17):
            return self.reject(slot, p, size, next_offset, "CorruptMessage", f"CRC-32C is not {fw_u32be(p + 17):#010x}")
        if self.at.committed and head.producer_id >= 0 and self.aborts(&head, next_offset, p + BATCH_HEAD, p + size):
            self.aborted_batches += 1
            return self.advance(slot, next_offset, head.leader_epoch, 0)
        if head.attributes & CONTROL or head.count == 0:
            return self.advance(slot, next_offset, head.leader_epoch, 0)
        data = p + BATCH_HEAD
        data_size = size - BATCH_HEAD
        # What a compressed batch becomes is not said: as much as the largest one of late.
        expected = max(data_size, slot.largest) if head.attributes & CODEC_MASK else data_size
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
        status = put_records(&chunk.columns, &head, &place, &r)
        self.watch.decoded(began)
        self.codecs.shrink()
        if status == NO_MEMORY:
            raise MemoryError()
        if status:
            detail = str(reader_error(&r, "batch")) if status == DAMAGED else "a header's key is not UTF-8"
            return self.reject(slot, p, size, next_offset, "CorruptMessage", detail)
        self.batches += 1
        self.took(slot.log, data_size, first, &slot.largest)
        self.cut_rows += head.count - (chunk.columns.rows - first)
        return self.advance(slot, next_offset, head.leader_epoch, chunk.columns.rows - first)

    cdef int message(self, Slot* slot, RowPlace* place, const uint8_t* p, int64_t size) except -1:
        """One message of an older format, or a wrapper of several."""
        cdef OpenChunk chunk = self.open
        cdef int64_t first
        cdef int64_t next_offset = -1
        if chunk.full(1, size):
            return STOP_CHUNK_FULL
        chunk.begin()
        first = chunk.columns.rows
        try:
            put_message(&chunk.columns, place, self.codecs, p, size, &next_offset)
        except CorruptEntryError as exc:
            return self.reject(slot, p, size, next_offset, exc.reason, exc.detail)
        finally:
            self.codecs.shrink()
        if next_offset <= slot.offset:
            return GO_ON
        self.batches += 1
        self.took(slot.log, size, first, &slot.largest)
        return self.advance(slot, next_offset, -1, chunk.columns.rows - first)

    cdef bint aborts(self, const BatchHead* head, int64_t next_offset, const uint8_t* p, const uint8_t* end) except -1:
        """Whether a batch belongs to a transaction that was aborted; follows the list of the answer (kafka 9.1)."""
        while self.at.aborted and self.at.aborted[0][0] < next_offset:
            self.at.aborting.add(self.at.aborted.pop(0)[1])
        if head.attributes & CONTROL:
            if control_type(p, end) == 0:
                self.at.aborting.discard(head.producer_id)
            return False
        return head.attributes & TRANSACTIONAL and head.producer_id in self.at.aborting

    cdef int advance(self, Slot* slot, int64_t next_offset, int32_t epoch, int64_t rows) except -1:
        """Everything before ``next_offset`` was read: extend the span of the open chunk, or begin one."""
        cdef OpenChunk chunk = self.open
        cdef SpanRow* span
        if slot.chunk != chunk.number:
            slot.span = chunk.begin_span(slot.log, slot.offset, slot.epoch)
            slot.chunk = chunk.number
        span = &chunk.places.spans[slot.span]
        span.end_a = slot.offset = next_offset
        span.end_b = slot.epoch = epoch
        span.rows += rows
        return GO_ON

    cdef int reject(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t next_offset, str reason, str detail
    ) except -1:
        """A damaged batch whose end is known: a dead letter, where that is wanted and its offsets can be believed."""
        # The sum does not cover the first offset: what lies beyond the log's end would be a hole for ever.
        if not self.divert_corrupt or next_offset <= slot.offset or next_offset > slot.high_watermark >= 0:
            return self.refuse(reason, detail)
        self.advance(slot, next_offset, slot.epoch, 0)
        payload = PyBytes_FromStringAndSize(<const char*>p, size)
        log = self.slots.logs[slot.log]
        self.open.divert(DeadLetter(log, Position(next_offset, slot.epoch), f"{reason}: {detail}", payload, 0))
        return GO_ON

    cdef int refuse(self, str reason, str detail) except -1:
        """This partition cannot be read on; the caller decides what becomes of it."""
        cdef Slot* slot = self.slots.get(self.at.slot_index)
        self.corrupt = CorruptBatch(self.at.slot_index, Position(slot.offset, slot.epoch), reason, detail)
        slot.session = 0
        self.at.skip = True
        return STOP_CORRUPT

    def take_response(self):
        """The response that ``scan`` stopped for, from its correlation id on."""
        response = self.response
        self.response = None
        return response

    def take_fetched(self):
        """The Fetched that ``scan`` stopped for."""
        fetched = self.fetched
        self.fetched = None
        return fetched

    def take_corrupt(self):
        """The CorruptBatch that ``scan`` stopped for; its partition is detached."""
        corrupt = self.corrupt
        self.corrupt = None
        return corrupt
