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
    ChunkScanner,
)
from fastwire.columns.slots cimport SlotHead
from fastwire.kafka.reading.legacy cimport is_sound, put_message
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
    announced,
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

from fastwire.columns.chunk import DeadLetter
from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.reason import Reason
from fastwire.kafka.columns import ROW
from fastwire.kafka.reading.doubt import Doubt
from fastwire.kafka.reading.evidence import CorruptBatch, Evidence
from fastwire.position import Position

__all__ = ["Scanner"]

cdef enum:
    MOST_FRAME = 1 << 30         # a response has no limit in the protocol (spec: kafka 1)
    MOST_COLD = 100 << 20        # of a response that is returned as bytes: a broker's limit for requests
    RECORDS_HEAD = 17            # bytes up to the magic, which determines the rest of the layout
    MOST_TOKEN = 1 << 20
    DEAD_BYTES = 1 << 20         # kept of a batch with an impossible size
    DEAD_OBJECTS = 256           # what Python keeps of a damaged batch besides its bytes
    DOUBT_BYTES = 1 << 20        # of a response, behind a doubtful batch
    TAKEN = 100                  # of an intact batch: its rows are read now
    LEFT = 101                   # its rows are not read, or not now


@cython.final
cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection into chunks.

    ``plan`` announces each Fetch request that is sent. ``take_found`` returns a Fetched at the end of its response,
    any other response as bytes from its correlation id on, or a CorruptBatch, whose partition is detached. With
    ``on_corrupt="dead_letter"`` a damaged batch joins the chunk as a dead letter; with ``"stop"`` it is a CorruptBatch.
    ``scan`` raises ProtocolError if the framing itself is broken.
    """
    cdef SlotTable slots
    cdef dict plans              # by correlation id
    cdef ResponseWalk at         # the current response
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
            slot.compare = False
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
            slot.compare = False
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

    cdef int stop_looking(self, Slot* slot) noexcept:
        """Request the records from the position on: what is here does not end there, or claims another place."""
        slot.compare = False
        self.at.skip = True
        return GO_ON

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

    # --- what is believed of batches, and what becomes of damaged ones

    cdef int place(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t base, int64_t next_offset, int64_t next_base
    ) except -1:
        """Return TAKEN if an intact batch is at this place for certain: its checksum does not cover its first offset.

        STOP_NEED_BYTES if bytes behind it have to say so. LEFT if it is not taken: it joins the evidence, or comes
        again with the next response.
        """
        cdef bint known = base == slot.offset and slot.confirmed < 0 and self.at.evidence is None and slot.ask < 0
        cdef bint overlaps = 0 <= next_base < next_offset and not slot.aligned
        cdef int stop
        if known and self.slots.dead_letters and self.is_claim(p) and self.repeats(p, size):
            known = False                    # it has become a dead letter for a first offset that lies
        if not known or overlaps or next_offset <= base or next_offset > slot.high_watermark >= 0:
            stop = self.weigh(slot, p, size, base, next_offset, next_base)
            if stop != TAKEN:
                return stop
        self.at.sound_seen = True
        slot.confirmed = -1
        slot.room = 0
        if slot.doubted:
            missed = self.missed(slot, PyBytes_FromStringAndSize(<const char*>p, size))
            slot.doubted = False
            del self.slots.doubts[self.at.slot_index]
            if missed and base > slot.offset:
                if not self.keeps_corrupt:
                    return self.refuse(Reason.MESSAGE, missed[0][1])
                self.keep_dead_letter(slot, missed, base)
        return TAKEN

    cdef list missed(self, Slot* slot, bytes payload):
        """Return bytes and details of the batches that an answer has had at the position, before ``payload`` was there:
        a broker that looks for offsets by what damaged heads say does not send them again.
        """
        doubt = self.slots.doubts.get(self.at.slot_index)
        return [] if doubt is None or doubt.start != slot.offset else doubt.missed_before(payload)

    cdef int weigh(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t base, int64_t next_offset, int64_t next_base
    ) except -1:
        """Decide about an intact batch that does not simply begin where reading goes on."""
        cdef int stop
        cdef int64_t end = self.end_of(slot)
        cdef bint joined = next_base == next_offset
        cdef bint possible = next_offset > max(base, slot.offset) and not next_offset > slot.high_watermark >= 0
        cdef bint doubtful = False
        if slot.ask < 0:
            if self.repeats(p, size):
                return LEFT
            if base == slot.confirmed and possible:
                self.at.evidence = None      # what precedes it was read before
                return TAKEN
            if slot.confirmed == slot.offset:
                return LEFT                  # it precedes the confirmed one
            if not possible:
                pass
            elif self.at.evidence is not None:
                if joined and self.at.evidence.only_damage and (
                    base == slot.offset or base >= slot.offset + <int64_t>self.at.evidence.least
                ):
                    return self.resume(slot, base)
            elif base > slot.offset or not slot.aligned:
                if joined:
                    return TAKEN
                if base > slot.offset and next_base > next_offset:
                    stop = self.ascends(p, size, next_base, end)
                    if stop != LEFT:
                        return stop
                doubtful = not 0 <= next_base < next_offset
            if doubtful and self.at.sound_seen:
                self.at.skip = True          # the next response begins with it, and has more behind it
                return LEFT
        detail = f"offsets {base} to {next_offset - 1}, where {slot.offset} is expected"
        self.note(slot, p, size, detail, base, next_offset)
        return LEFT

    cdef bint repeats(self, const uint8_t* p, int64_t size) except -1:
        """Return whether a batch is a dead letter already: some brokers look for offsets by what damaged heads say."""
        hashes = self.slots.dead_letters.get(self.at.slot_index)
        return hashes is not None and hash(PyBytes_FromStringAndSize(<const char*>p, size)) in hashes

    cdef bint is_claim(self, const uint8_t* p) except -1:
        """Return whether one of the last dead letters has the offset in its head that this batch has."""
        found = self.slots.dead_letters.get(self.at.slot_index)
        return found is not None and fw_i64be(p) in found.values()

    cdef int ascends(self, const uint8_t* p, int64_t size, int64_t next_base, int64_t end) except -1:
        """Return TAKEN if the offsets of two batches behind this one ascend, as compaction leaves them; LEFT if this
        cannot be seen, or is not so.
        """
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t left = self.at.records_left - size
        cdef int64_t behind, next_size
        if left < 12 + SMALLEST_BATCH:
            return LEFT
        if b.end - b.start < size + 12 + SMALLEST_BATCH:
            return self.need(size + 12 + SMALLEST_BATCH)
        p += size
        next_size = 12 + <int64_t><int32_t>fw_u32be(p + 8)
        behind = next_base + (<int64_t><int32_t>fw_u32be(p + 23) if p[MAGIC_AT] == 2 else 0) + 1
        if behind == end:
            return TAKEN
        if behind <= next_base or not RECORDS_HEAD <= next_size <= min(left, self.most_frame - size) - 8:
            return LEFT
        if b.end - b.start < size + next_size + 8:
            return self.need(size + next_size + 8)
        return TAKEN if fw_i64be(p + next_size) >= behind else LEFT

    cdef int resume(self, Slot* slot, int64_t base) except -1:
        """Read on at an intact batch after damaged ones, which end before it."""
        found = [one for run in self.at.evidence.runs for one in run.found]
        found = self.missed(slot, found[0][0]) + found
        self.at.evidence = None
        if base > slot.offset:
            self.keep_dead_letter(slot, found, base)
        if self.at.committed and self.at.aborted._count:
            # A damaged batch may have been the marker of a listed transaction: another response lists what is open.
            slot.confirmed = base
            self.at.skip = True
            return LEFT
        return TAKEN

    cdef int damaged(self, Slot* slot, const uint8_t* p, int64_t size, str detail, bint whole=True) except -1:
        """Handle a batch as damaged in all fields, its size included: the next intact batch shows its end."""
        if slot.compare:
            return self.stop_looking(slot)
        if slot.ask < 0:
            if slot.confirmed == slot.offset or self.repeats(p, size):
                return GO_ON                 # it precedes what is read next
            if not self.keeps_corrupt:
                return self.refuse(Reason.MESSAGE, detail)
        return self.note(slot, p, size, detail, -1, -1, whole)

    cdef int note(
        self, Slot* slot, const uint8_t* p, int64_t size, str detail, int64_t base, int64_t end, bint whole=True
    ) except -1:
        """Add a batch to the evidence; one with a ``base`` is intact."""
        evidence = self.at.evidence
        if evidence is None:
            evidence = self.at.evidence = Evidence(torn=not whole)
        elif base >= 0 and not end > slot.high_watermark >= 0 and evidence.joins(base, slot.offset):
            evidence.lengthen(end)
            return GO_ON
        elif <int64_t>evidence.size + size > CHUNK_BYTES:
            # At most a chunk's worth is held. The rest of the response is skipped, and the end of the first batch is
            # searched for, as if no intact batch had followed.
            evidence.forget()
            self.at.skip = True
            return GO_ON
        payload = PyBytes_FromStringAndSize(<const char*>p, size)
        if base < 0:
            evidence.add_damaged(payload, detail, size + DEAD_OBJECTS)
        else:
            evidence.add(base, end, payload, detail, size + DEAD_OBJECTS)
        if evidence.full:
            self.at.skip = True
        return GO_ON

    cdef int through(self) except -1:
        """Handle the end of a partition's records in a response."""
        cdef Slot* slot
        cdef int64_t end
        evidence = self.at.evidence
        self.at.evidence = None
        if self.at.slot_index < 0 or self.slots.room == 0:
            return GO_ON
        slot = self.slots.get(self.at.slot_index)
        if slot.head.session != self.at.session or slot.error:
            return GO_ON
        if slot.ask >= 0:
            return self.answered(slot, evidence)
        if self.at.batch_seen:
            slot.confirmed = -1      # the response had other batches, or not enough of them
        if evidence is None:
            if self.at.batch_seen and not self.at.sound_seen:    # it had only what was read before
                if slot.room > slot.received:
                    self.slots.dead_letters.pop(self.at.slot_index, None)
                slot.room = slot.received + DOUBT_BYTES
            return GO_ON
        end = self.end_of(slot)
        if self.settle(slot, evidence, end):
            return STOP_FOUND if self.found is not None else GO_ON
        first = evidence.first
        payload, detail = first.found[0]
        doubt = self.slots.doubts.get(self.at.slot_index)
        if doubt is None or doubt.start != slot.offset or doubt.payload != payload:
            # It may have been damaged in transit: request it once more, if possible with the batches after it.
            missed = self.missed(slot, payload)
            if sum([len(one) + DEAD_OBJECTS for one, _ in missed]) > CHUNK_BYTES:
                return self.refuse(Reason.MESSAGE, f"{detail}; each answer for this offset has had other bytes")
            possible = first.base >= slot.offset or not slot.aligned
            self.slots.doubts[self.at.slot_index] = Doubt(
                slot.offset, payload, detail, whole=not evidence.torn, base=first.base if possible else -1,
                claim=first.end if first.count == 1 else -1, missed=missed,
            )
            slot.doubted = True
            slot.room = 2 * len(payload) + DOUBT_BYTES
            return GO_ON
        if end <= slot.offset:
            return self.refuse(Reason.MESSAGE, f"{detail}; where the log ends is not known")
        doubt.begin(end, evidence.runs)
        return self.conclude(slot, doubt)

    cdef bint settle(self, Slot* slot, evidence, int64_t end) except -1:
        """Read on at the first batch whose place is certain, if there is one: the batches before it end there."""
        run = evidence.confirmed(slot.offset, end, aligned=slot.aligned, asked=slot.ask)
        if run is None:
            return False
        self.slots.set_ask(slot, -1)     # a Doubt remains until the batch is read: the response needs its room
        found = self.missed(slot, evidence.first.found[0][0]) + evidence.before(run)
        if found and run.base > slot.offset:
            if not self.keeps_corrupt:
                self.refuse(Reason.MESSAGE, found[0][1])
                return True
            self.keep_dead_letter(slot, found, run.base)
            # A broker that knows its true offset does not send it again if the one in its head is behind that.
            payload, detail = run.found[0]
            self.slots.doubts[self.at.slot_index] = Doubt(
                run.base, payload, detail, base=run.base, claim=run.end if run.count == 1 else -1
            )
            slot.doubted = True
        slot.confirmed = run.base
        slot.room = max(slot.room, slot.received)    # the next response has what follows it, too
        return True

    cdef int answered(self, Slot* slot, evidence) except -1:
        """Handle the response to a Doubt's question."""
        cdef int64_t end = self.end_of(slot)
        doubt = self.slots.doubts[self.at.slot_index]
        if evidence is None:
            # Other partitions or a quota may have used up the response; otherwise the log has no more records.
            if self.at.batch_seen or self.at.received or self.at.throttle:
                return GO_ON
            doubt.nothing(slot.ask, end)
        elif not evidence.holds(doubt.payload):
            doubt.other(slot.ask, evidence.first.found[0][0])
        elif self.settle(slot, evidence, end):
            return STOP_FOUND if self.found is not None else GO_ON
        else:
            doubt.within(slot.ask, evidence.runs)
        return self.conclude(slot, doubt)

    cdef int64_t end_of(self, Slot* slot) noexcept:
        """Return the end of the log for this reader, according to the last response."""
        return slot.stable_offset if self.at.committed and slot.stable_offset >= 0 else slot.high_watermark

    cdef int conclude(self, Slot* slot, doubt) except -1:
        """Continue the search, or continue reading after the batch; at it, if it is where its head says."""
        end = doubt.end
        if end is None:
            self.slots.set_ask(slot, doubt.ask)
            return GO_ON
        if doubt.hopeless:
            return self.refuse(Reason.MESSAGE, doubt.detail)
        self.slots.set_ask(slot, -1)
        if doubt.confirmed:
            slot.confirmed = doubt.base
            return GO_ON
        slot.doubted = False
        del self.slots.doubts[self.at.slot_index]
        if not self.keeps_corrupt:
            return self.refuse(Reason.MESSAGE, doubt.detail)
        return self.keep_dead_letter(slot, doubt.found, end)

    cdef int keep_dead_letter(self, Slot* slot, found, int64_t end, reason=Reason.MESSAGE) except -1:
        """Make the damaged batches before ``end`` dead letters; ``found`` are bytes and details."""
        cdef int64_t start = slot.offset
        cdef int32_t epoch = slot.epoch
        self.advance(slot, end, epoch, 0)
        self.slots.dead_letters[self.at.slot_index] = {
            hash(payload): int.from_bytes(payload[:8], "big", signed=True) for payload, _ in found
        }
        log = self.slots.logs[slot.head.log]
        position, before = Position(slot.offset, epoch), Position(start, epoch)
        for payload, detail in found:
            text = f"{reason}: {detail}"
            self.open.add_dead_letter(
                DeadLetter(log, position, text, payload, announced(payload), damage=reason, start=before)
            )
        return GO_ON

    cdef bint aborts(self, const BatchHead* head, int64_t next_offset, const uint8_t* p, const uint8_t* end) except -1:
        """Return whether a batch belongs to an aborted transaction, by the response's list (spec: kafka 9.1)."""
        self.at.aborted.reach(next_offset)
        if head.attributes & CONTROL:
            if control_type(p, end) == 0:
                self.at.aborted.end(head.producer_id)
            return False
        return head.attributes & TRANSACTIONAL and self.at.aborted.is_open(head.producer_id)

    cdef int advance(self, Slot* slot, int64_t next_offset, int32_t epoch, int64_t rows) except -1:
        """Record that everything before ``next_offset`` was read: extend the span of the open chunk, or begin one."""
        cdef SpanRow* span = self.span_of(&slot.head, slot.offset, slot.epoch)
        span.end_a = slot.offset = min(next_offset, slot.head.until)
        span.end_b = slot.epoch = epoch
        slot.aligned = True
        span.witnessed = slot.witnessed = False
        span.rows += rows
        return GO_ON

    cdef int reject(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t next_offset, reason, str detail
    ) except -1:
        """Reject a batch with a correct checksum that cannot be decoded: a dead letter, or a stop for the caller."""
        if not self.keeps_corrupt:
            return self.refuse(reason, detail)
        found = [(PyBytes_FromStringAndSize(<const char*>p, size), detail)]
        return self.keep_dead_letter(slot, found, next_offset, reason)

    cdef int refuse(self, reason, str detail, bint replaced=False) except -1:
        """Stop reading this partition; the caller decides how to proceed."""
        cdef Slot* slot = self.slots.get(self.at.slot_index)
        self.found = CorruptBatch(self.at.slot_index, Position(slot.offset, slot.epoch), reason, detail, replaced)
        slot.head.session = 0
        self.at.skip = True
        return STOP_FOUND
