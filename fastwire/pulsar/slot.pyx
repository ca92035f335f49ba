"""Consumer slots: per consumer, what has been received, what of it is durable, and what the broker has debited.

A C array by consumer id that all connections of a pipeline share; the scanner reads and writes it for every entry, and
Python looks at the slots that were touched after each read.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from fastwire.columns.logs cimport LogTable
from fastwire.wire.array cimport array_grown

from fastwire.position import Position

cdef enum:
    MOST_CONSUMERS = 1 << 24     # ids are ours and dense; this only catches a misuse

cdef uint64_t NOT_DUE = 0xFFFFFFFFFFFFFFFF


# --- runs of entries

cdef inline bint before(int64_t ledger, int64_t entry, int64_t other_ledger, int64_t other_entry) noexcept nogil:
    return ledger < other_ledger or (ledger == other_ledger and entry < other_entry)


cdef int64_t runs_find(Runs* r, int64_t ledger, int64_t entry) noexcept nogil:
    """The first run whose last entry is not before (ledger, entry); ``count`` if there is none."""
    cdef int64_t low = 0
    cdef int64_t high = r.count
    cdef int64_t middle
    while low < high:
        middle = (low + high) // 2
        if before(r.run[middle].ledger, r.run[middle].last, ledger, entry):
            low = middle + 1
        else:
            high = middle
    return low


cdef int runs_insert(Runs* r, int64_t at, int64_t ledger, int64_t first, int64_t last, bint landed) noexcept nogil:
    cdef Run* grown = <Run*>array_grown(r.run, &r.capacity, r.count + 1, sizeof(Run))
    if grown is NULL:
        return -1
    r.run = grown
    memmove(&r.run[at + 1], &r.run[at], <size_t>(r.count - at) * sizeof(Run))
    r.run[at].ledger = ledger
    r.run[at].first = first
    r.run[at].last = last
    r.run[at].landed = landed
    r.count += 1
    return 0


cdef void runs_remove(Runs* r, int64_t at) noexcept nogil:
    memmove(&r.run[at], &r.run[at + 1], <size_t>(r.count - at - 1) * sizeof(Run))
    r.count -= 1


cdef bint joins(Run* a, Run* b) noexcept nogil:
    return a.ledger == b.ledger and a.landed == b.landed and a.last + 1 == b.first


cdef int runs_cut(Runs* r, int64_t ledger, int64_t first, int64_t last) noexcept nogil:
    """Take entries first … last out, whatever is known of them. -1 = no memory."""
    cdef int64_t at = runs_find(r, ledger, first)
    cdef Run* run
    cdef int64_t tail
    while at < r.count:
        run = &r.run[at]
        if run.ledger != ledger or run.first > last:
            break
        # It overlaps: keep what sticks out on either side.
        tail = run.last
        if run.first < first:
            if tail > last and runs_insert(r, at + 1, ledger, last + 1, tail, run.landed):
                return -1
            r.run[at].last = first - 1
            at += 1
            if tail > last:
                break
        elif tail > last:
            run.first = last + 1
            break
        else:
            runs_remove(r, at)
    return 0


cdef int runs_add(Runs* r, int64_t ledger, int64_t first, int64_t last, bint landed) noexcept nogil:
    """Add entries first … last; where they are held already, ``landed`` replaces what was known. -1 = no memory."""
    cdef int64_t at
    cdef Run* run
    # Nearly always the next entry of the newest run.
    if r.count:
        run = &r.run[r.count - 1]
        if run.ledger == ledger and run.last + 1 == first and run.landed == landed:
            run.last = last
            return 0
    if runs_cut(r, ledger, first, last):
        return -1
    at = runs_find(r, ledger, first)
    if runs_insert(r, at, ledger, first, last, landed):
        return -1
    if at + 1 < r.count and joins(&r.run[at], &r.run[at + 1]):
        r.run[at].last = r.run[at + 1].last
        runs_remove(r, at + 1)
    if at and joins(&r.run[at - 1], &r.run[at]):
        r.run[at - 1].last = r.run[at].last
        runs_remove(r, at)
    return 0


cdef void runs_drop(Runs* r) noexcept nogil:
    free(r.run)
    memset(r, 0, sizeof(Runs))


cdef bint is_ahead(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Whether an entry beyond the landed floor has landed; there are as many stretches as messages in parts."""
    cdef int64_t i
    for i in range(s.ahead_count):
        if not before(s.ahead[i].begin_a, s.ahead[i].begin_b, ledger, entry):
            return False
        if not before(s.ahead[i].end_a, s.ahead[i].end_b, ledger, entry):
            return True
    return False


cdef void slot_pass(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Ordered: (ledger, entry) has come. What has landed before it was passed, and the next span begins behind that."""
    cdef int64_t i
    for i in range(s.ahead_count):
        if before(s.ahead[i].begin_a, s.ahead[i].begin_b, ledger, entry) and before(
            s.staged_ledger, s.staged_entry, s.ahead[i].end_a, s.ahead[i].end_b
        ):
            s.staged_ledger = s.ahead[i].end_a
            s.staged_entry = s.ahead[i].end_b
            s.holds = False      # the span behind this stretch says what was held before it
            s.chunk = 0


cdef int slot_hold(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """The entry has come and is in no span yet. -1 = no memory."""
    if s.ordered:
        if not s.holds:
            s.holds = True
            s.held_ledger = s.staged_ledger
            s.held_entry = s.staged_entry
        s.chunk = 0
    return slot_stage(s, ledger, entry)


cdef State slot_state(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    cdef int64_t at
    if s.ordered:
        if not before(s.landed_ledger, s.landed_entry, ledger, entry):
            return LANDED
        if s.ahead_count and is_ahead(s, ledger, entry):
            return LANDED
        return NEW if before(s.staged_ledger, s.staged_entry, ledger, entry) else STAGED
    # A landed floor holds for shared subscriptions too, and so does what was landed when it was read in order.
    if not before(s.landed_ledger, s.landed_entry, ledger, entry):
        return LANDED
    if s.ahead_count and is_ahead(s, ledger, entry):
        return LANDED
    at = runs_find(&s.entries, ledger, entry)
    if at == s.entries.count or s.entries.run[at].ledger != ledger or s.entries.run[at].first > entry:
        return NEW
    return LANDED if s.entries.run[at].landed else STAGED


cdef int slot_stage(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    if s.ordered:
        s.staged_ledger = ledger
        s.staged_entry = entry
        return 0
    return runs_add(&s.entries, ledger, entry, entry, False)


@cython.final
cdef class SlotTable(LogTable):
    """The slots of one pipeline. ``logs`` is what log indexes mean; it may grow by ``add_log``.

    Methods raise KeyError for a consumer id that was not added.
    """

    def __cinit__(self, logs=()):
        self.wanted = {}
        self.due = []
        self.dirty = []

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.capacity):
            runs_drop(&self.slots[i].entries)
            runs_drop(&self.slots[i].cut)
            free(self.slots[i].ahead)
        free(self.slots)

    cdef Slot* get(self, int64_t consumer_id) except NULL:
        if consumer_id < 0 or consumer_id >= self.capacity or not self.slots[consumer_id].known:
            raise KeyError(f"no consumer {consumer_id}")
        return &self.slots[consumer_id]

    cdef Slot* find(self, uint64_t consumer_id, uint32_t connection) noexcept:
        """The slot that a frame on ``connection`` belongs to, or NULL."""
        if consumer_id >= <uint64_t>self.capacity or self.slots[consumer_id].connection != connection:
            return NULL
        return &self.slots[consumer_id]

    cdef int touch(self, Slot* s, uint64_t consumer_id) except -1:
        s.dirty = True
        self.dirty.append(consumer_id)
        return 0

    cdef int fall_due(self, Slot* s, uint64_t consumer_id) except -1:
        s.due_at = NOT_DUE
        self.due.append(consumer_id)
        return 0

    def add(self, int64_t consumer_id, int32_t log_index, *, bint ordered):
        """A consumer of ``logs[log_index]``. Positions start at the beginning: nothing landed, nothing staged."""
        cdef Slot* grown
        cdef Slot* s
        if consumer_id < 0 or consumer_id >= MOST_CONSUMERS:
            raise ValueError(f"consumer id {consumer_id} is out of range")
        log = self.logs[log_index]
        grown = <Slot*>array_grown(self.slots, &self.capacity, consumer_id + 1, sizeof(Slot))
        if grown is NULL:
            raise MemoryError()
        self.slots = grown
        s = &self.slots[consumer_id]
        if s.known:
            raise ValueError(f"consumer {consumer_id} exists")
        s.known = True
        s.ordered = ordered
        s.log = log_index
        s.topic = self.topic_of(log)
        s.partition = int(log.partition)
        s.most_redeliveries = -1
        s.landed_ledger = s.staged_ledger = s.last_ledger = -1
        s.landed_entry = s.staged_entry = s.last_entry = -1

    def remove(self, int64_t consumer_id):
        """Forget the consumer; its id may be added again."""
        cdef Slot* s = self.get(consumer_id)
        runs_drop(&s.entries)
        runs_drop(&s.cut)
        free(s.ahead)
        memset(s, 0, sizeof(Slot))
        self.wanted = {key: words for key, words in self.wanted.items() if key[0] != consumer_id}

    def attach(self, int64_t consumer_id, uint32_t connection_id, *, uint64_t epoch=0):
        """Frames for this consumer are taken from this connection only (ids start at 1); debited restarts at 0."""
        cdef Slot* s = self.get(consumer_id)
        if connection_id == 0:
            raise ValueError("connection ids start at 1")
        s.connection = connection_id
        s.epoch = epoch
        s.debited = s.due_at = 0

    def detach(self, int64_t consumer_id):
        """Drop every frame of this consumer from now on."""
        self.get(consumer_id).connection = 0

    def set_landed(self, int64_t consumer_id, position):
        """Everything up to ``position`` is durable: cut when it comes again. Never goes back."""
        cdef Slot* s = self.get(consumer_id)
        cdef int64_t ledger = position.a
        cdef int64_t entry = position.b
        if before(s.landed_ledger, s.landed_entry, ledger, entry):
            s.landed_ledger = ledger
            s.landed_entry = entry
        if before(s.staged_ledger, s.staged_entry, s.landed_ledger, s.landed_entry):
            s.staged_ledger = s.landed_ledger
            s.staged_entry = s.landed_entry
            s.chunk = 0          # what comes next does not follow what the open span ends with
            s.holds = False
        # What the floor covers needs no run of its own.
        while s.entries.count and not before(
            s.landed_ledger, s.landed_entry, s.entries.run[0].ledger, s.entries.run[0].last
        ):
            runs_remove(&s.entries, 0)

    def set_ahead(self, int64_t consumer_id, intervals):
        """What ``intervals`` (after, up to) hold above the floor is durable; in order, instead of the last ones."""
        cdef Slot* s = self.get(consumer_id)
        cdef int64_t i
        cdef Stretch* grown
        intervals = list(intervals)
        if intervals:
            grown = <Stretch*>realloc(s.ahead, <size_t>len(intervals) * sizeof(Stretch))
            if grown is NULL:
                raise MemoryError()
            s.ahead = grown
        s.ahead_count = 0
        for i, (begin, end) in enumerate(intervals):
            s.ahead[i] = Stretch(begin.a, begin.b, end.a, end.b)
        s.ahead_count = len(intervals)

    def set_landed_runs(self, int64_t consumer_id, runs):
        """Shared: the entries of ``runs`` (ledger, first, last) are durable."""
        cdef Slot* s = self.get(consumer_id)
        for ledger, first, last in runs:
            if first > last:
                raise ValueError(f"entries {first} to {last} run backwards")
            if runs_add(&s.entries, ledger, first, last, True):
                raise MemoryError()

    def release_runs(self, int64_t consumer_id, runs):
        """Shared: forget the entries of ``runs`` (ledger, first, last). What comes of them is new."""
        cdef Slot* s = self.get(consumer_id)
        for ledger, first, last in runs:
            if runs_cut(&s.entries, ledger, first, last):
                raise MemoryError()

    def staged_of(self, int64_t consumer_id, runs):
        """Shared: those entries of ``runs`` (ledger, first, last) that were received and are not durable, as runs."""
        cdef Slot* s = self.get(consumer_id)
        cdef Run* run
        cdef int64_t at, ledger, first, last
        staged = []
        for ledger, first, last in runs:
            at = runs_find(&s.entries, ledger, first)
            while at < s.entries.count:
                run = &s.entries.run[at]
                if run.ledger != ledger or run.first > last:
                    break
                if not run.landed and not (ledger == s.landed_ledger and run.last <= s.landed_entry):
                    staged.append((ledger, max(run.first, first), min(run.last, last)))
                at += 1
        return staged

    def narrow(self, int64_t consumer_id, int64_t ledger, int64_t entry, bytes words):
        """Of this entry only the elements whose bits are set in ``words`` (8 bytes each, low first) are wanted.

        With no words all of them are wanted again. What the broker counts for it in permits stays as it is.
        """
        cdef Slot* s = self.get(consumer_id)
        key = consumer_id, ledger, entry
        if words:
            if len(words) % 8:
                raise ValueError("words have 8 bytes each")
            s.narrowed += key not in self.wanted
            self.wanted[key] = words
        elif self.wanted.pop(key, None) is not None:
            s.narrowed -= 1

    cdef bytes wanted_of(self, uint64_t consumer_id, int64_t ledger, int64_t entry):
        return self.wanted.get((consumer_id, ledger, entry))

    def set_epoch(self, int64_t consumer_id, uint64_t epoch):
        """Drop frames of an older consumer epoch from now on (specs: pulsar 16.4)."""
        self.get(consumer_id).epoch = epoch

    def limit_redeliveries(self, int64_t consumer_id, int64_t most):
        """An entry that was delivered again more than ``most`` times is a dead letter, ``RedeliveredTooOften``."""
        self.get(consumer_id).most_redeliveries = most

    def void_staged(self, int64_t consumer_id):
        """The open roll is gone: what was received and is not durable is new again."""
        cdef Slot* s = self.get(consumer_id)
        cdef int64_t at = 0
        s.staged_ledger = s.landed_ledger
        s.staged_entry = s.landed_entry
        s.chunk = 0
        s.holds = False
        while at < s.entries.count:
            if s.entries.run[at].landed:
                at += 1
            else:
                runs_remove(&s.entries, at)

    def debited(self, int64_t consumer_id):
        """Permits that the broker has debited since ``attach`` (specs: pulsar 13.1)."""
        return self.get(consumer_id).debited

    def set_due(self, int64_t consumer_id, int64_t debited):
        """``take_due`` names the consumer once the broker has debited so many permits; from ``attach`` on, at once."""
        self.get(consumer_id).due_at = <uint64_t>max(debited, 0)

    def take_due(self):
        """Consumers that have become due since the last call, each once until it is set again."""
        due = self.due
        if due:
            self.due = []
        return due

    def last_position(self, int64_t consumer_id):
        """The last entry that came, cut or not; (-1, -1) before the first."""
        cdef Slot* s = self.get(consumer_id)
        return Position(s.last_ledger, s.last_entry)

    def staged_position(self, int64_t consumer_id):
        """Ordered: everything up to here was received."""
        cdef Slot* s = self.get(consumer_id)
        return Position(s.staged_ledger, s.staged_entry)

    def landed_position(self, int64_t consumer_id):
        """Everything up to here is durable."""
        cdef Slot* s = self.get(consumer_id)
        return Position(s.landed_ledger, s.landed_entry)

    def entry_runs(self, int64_t consumer_id):
        """Shared: (ledger, first, last, landed) of all that is held above the floor."""
        cdef Slot* s = self.get(consumer_id)
        cdef Run* r = s.entries.run
        return [(r[i].ledger, r[i].first, r[i].last, bool(r[i].landed)) for i in range(s.entries.count)]

    def largest_entry(self, int64_t consumer_id):
        """Bytes of the largest recent entry, decompressed."""
        return self.get(consumer_id).largest

    def take_dirty(self):
        """Consumers that got a frame since the last call."""
        dirty = self.dirty
        self.dirty = []
        for consumer_id in dirty:
            self.slots[<int64_t>consumer_id].dirty = False
        return dirty

    def take_cut_landed(self, int64_t consumer_id):
        """Durable entries that came again, as (ledger, first, last): they want their ack once more."""
        cdef Slot* s = self.get(consumer_id)
        runs = [(s.cut.run[i].ledger, s.cut.run[i].first, s.cut.run[i].last) for i in range(s.cut.count)]
        s.cut.count = 0
        return runs
