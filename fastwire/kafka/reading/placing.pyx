"""The decision where the batches of a Kafka response belong: a checksum does not cover a batch's first offset.

An intact batch that begins where reading goes on is believed at once. Any other one, and each damaged one, joins the
evidence of its response (``evidence``), or becomes a doubt that further requests settle (``doubt``).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.open cimport CHUNK_BYTES
from fastwire.columns.scan cimport GO_ON, STOP_FOUND
from fastwire.kafka.reading.records cimport MAGIC_AT, SMALLEST_BATCH, announced
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.varint cimport fw_i64be, fw_u32be

from fastwire.columns.chunk import DeadLetter
from fastwire.kafka.reading.doubt import Doubt
from fastwire.kafka.reading.evidence import CorruptBatch, Evidence
from fastwire.position import Position
from fastwire.reason import Reason

__all__: list[str] = []

cdef enum:
    DEAD_OBJECTS = 256           # what Python keeps of a damaged batch besides its bytes
    DOUBT_BYTES = 1 << 20        # of a response, behind a doubtful batch


cdef class PlacingScanner(ChunkScanner):
    """Base of the scanner: takes the batches of a response that are at their place, and handles the others."""

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
                    stop = self.ascends(p, size, next_offset, end)
                    if stop != LEFT:
                        return self.resume(slot, base) if stop == TAKEN else stop
            elif base > slot.offset or not slot.aligned:
                if joined and base <= slot.offset:
                    return TAKEN
                if next_base >= next_offset and base > slot.offset:
                    stop = self.ascends(p, size, next_offset, end)
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

    cdef int ascends(self, const uint8_t* p, int64_t size, int64_t next_offset, int64_t end) except -1:
        """Return TAKEN if two batches behind this one, which ends at ``next_offset``, ascend within the log, or one
        that ends it; LEFT if this cannot be seen, or is not so.
        """
        cdef ReceiveBuffer b = self.buffer
        cdef int64_t at = 0
        cdef int64_t base
        cdef int follower
        for follower in range(2):
            at += size
            if self.at.records_left - at < 12 + SMALLEST_BATCH:
                return LEFT
            if b.end - b.start < at + 12 + SMALLEST_BATCH:
                return self.need(at + 12 + SMALLEST_BATCH)
            base = fw_i64be(p + at)
            if base < next_offset or base >= end >= 0:
                return LEFT
            if follower:
                return TAKEN
            size = 12 + <int64_t><int32_t>fw_u32be(p + at + 8)
            next_offset = base + (<int64_t><int32_t>fw_u32be(p + at + 23) if p[at + MAGIC_AT] == 2 else 0) + 1
            if next_offset == end:
                return TAKEN if size >= self.at.records_left - at else LEFT
            if next_offset <= base or next_offset > end >= 0:
                return LEFT
            if not RECORDS_HEAD <= size <= self.most_frame - at - 12 - SMALLEST_BATCH:
                return LEFT
        return TAKEN

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
                claim=first.claim, missed=missed, followed=first.found[1:],
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
        doubt.grown(end)
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

    cdef int stop_looking(self, Slot* slot) noexcept:
        """Request the records from the position on: what is here does not end there, or claims another place."""
        slot.compare = False
        self.at.skip = True
        return GO_ON
