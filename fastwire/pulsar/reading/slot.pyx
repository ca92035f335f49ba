"""Consumer slots: per consumer, the received and the landed entries, and the permits that the broker has debited.

All connections of a pipeline share this C array, indexed by consumer id. The scanner uses it for every entry; Python
looks at the slots that were touched after each read.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from fastwire.columns.logs cimport LogTable
from fastwire.wire.array cimport array_grown

from fastwire.position import Position

cdef enum:
    MOST_CONSUMERS = 1 << 24     # ids are small and dense; this catches misuse only
    MOST_CAME = 1 << 12          # runs; a compacted topic may have a gap after every entry

cdef uint64_t NOT_DUE = 0xFFFFFFFFFFFFFFFF


# --- runs of entries

cdef inline bint before(int64_t ledger, int64_t entry, int64_t other_ledger, int64_t other_entry) noexcept nogil:
    return ledger < other_ledger or (ledger == other_ledger and entry < other_entry)


cdef int64_t runs_find(Runs* r, int64_t ledger, int64_t entry) noexcept nogil:
    """Return the index of the first run whose last entry is not before (ledger, entry); ``count`` if there is none."""
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


cdef int64_t runs_of(Runs* r, int64_t ledger, int64_t entry) noexcept nogil:
    """Return the index of the run that contains (ledger, entry), -1 if there is none."""
    cdef int64_t at = runs_find(r, ledger, entry)
    if at == r.count or r.run[at].ledger != ledger or r.run[at].first > entry:
        return -1
    return at


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
    """Remove the entries first … last in any state. -1 = no memory."""
    cdef int64_t at = runs_find(r, ledger, first)
    cdef Run* run
    cdef int64_t tail
    while at < r.count:
        run = &r.run[at]
        if run.ledger != ledger or run.first > last:
            break
        # The runs overlap: keep the ends on either side.
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
    """Add entries first … last; ``landed`` replaces the state of known ones. -1 = no memory."""
    cdef int64_t at
    cdef Run* run
    # The common case: the next entry of the newest run.
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


cdef void runs_forget(Runs* r, int64_t count) noexcept nogil:
    """Forget the first ``count`` runs."""
    r.count -= count
    memmove(r.run, &r.run[count], <size_t>r.count * sizeof(Run))


cdef void runs_drop_landed(Runs* r, Slot* s) noexcept nogil:
    """Forget the runs that the landed floor covers."""
    cdef int64_t covered = 0
    while covered < r.count and not before(
        s.landed_ledger, s.landed_entry, r.run[covered].ledger, r.run[covered].last
    ):
        covered += 1
    if covered:
        runs_forget(r, covered)


cdef bint is_ahead(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Return whether an entry beyond the landed floor has landed; there is a stretch for each chunked message."""
    cdef int64_t i
    for i in range(s.ahead_count):
        if not before(s.ahead[i].begin_a, s.ahead[i].begin_b, ledger, entry):
            return False
        if not before(s.ahead[i].end_a, s.ahead[i].end_b, ledger, entry):
            return True
    return False


cdef void slot_close_run(Slot* s) noexcept nogil:
    """Ordered: end the open run; the next entry does not follow the staged one."""
    if s.open_ledger < 0:
        return
    if s.came.count > MOST_CAME:
        s.forgot = True
        runs_forget(&s.came, MOST_CAME // 2)
    if runs_add(&s.came, s.open_ledger, s.open_first, s.staged_entry, False):
        s.forgot = True          # no memory: the received runs are unknown
        s.came.count = 0
    s.open_ledger = -1


cdef void slot_pass(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Ordered: advance to (ledger, entry) and past landed stretches before it, after which the next span begins."""
    cdef int64_t i
    for i in range(s.ahead_count):
        if before(s.ahead[i].begin_a, s.ahead[i].begin_b, ledger, entry) and before(
            s.staged_ledger, s.staged_entry, s.ahead[i].end_a, s.ahead[i].end_b
        ):
            slot_close_run(s)
            s.staged_ledger = s.ahead[i].end_a
            s.staged_entry = s.ahead[i].end_b
            s.holds = False      # the span after this stretch declares what was held before it
            s.chunk = 0


cdef int slot_hold(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Record an entry that was received and is in no span yet. -1 = no memory."""
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
    # The landed floor applies to shared subscriptions too, and so do positions that landed in an ordered one.
    if not before(s.landed_ledger, s.landed_entry, ledger, entry):
        return LANDED
    if s.ahead_count and is_ahead(s, ledger, entry):
        return LANDED
    at = runs_of(&s.entries, ledger, entry)
    if at < 0:
        return NEW
    return LANDED if s.entries.run[at].landed else STAGED


cdef int slot_again(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Handle a staged entry that was delivered again; in an ordered type it may have been filtered out before. -1 = no
    memory.
    """
    if not s.ordered or runs_of(&s.came, ledger, entry) >= 0:
        return 0
    if ledger == s.open_ledger and entry >= s.open_first:
        return 0                 # it is staged, so it is not after the open run
    if s.forgot and (s.came.count == 0 or before(ledger, entry, s.came.run[0].ledger, s.came.run[0].first)):
        return 0                 # its run was forgotten
    return runs_add(&s.late, ledger, entry, entry, False)


cdef int slot_stage_apart(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    if s.ordered:
        if entry != s.staged_entry + 1 or ledger != s.open_ledger:
            slot_close_run(s)
            s.open_ledger = ledger
            s.open_first = entry
        s.staged_ledger = ledger
        s.staged_entry = entry
        return 0
    return runs_add(&s.entries, ledger, entry, entry, False)


cdef list taken(Runs* r):
    """Return the runs of ``r`` as (ledger, first, last), and empty it."""
    runs = [(r.run[i].ledger, r.run[i].first, r.run[i].last) for i in range(r.count)]
    r.count = 0
    return runs


@cython.final
cdef class SlotTable(LogTable):
    """The slots of one pipeline. ``logs`` gives log indexes their meaning; it grows by ``add_log``.

    Methods raise KeyError for an unknown consumer id.
    """

    def __cinit__(self, logs=()):
        self.wanted = {}
        self.due = []
        self.dirty = []

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.capacity):
            runs_drop(&self.slots[i].entries)
            runs_drop(&self.slots[i].landed_again)
            runs_drop(&self.slots[i].came)
            runs_drop(&self.slots[i].late)
            free(self.slots[i].ahead)
        free(self.slots)

    cdef Slot* get(self, int64_t consumer_id) except NULL:
        if consumer_id < 0 or consumer_id >= self.capacity or not self.slots[consumer_id].known:
            raise KeyError(f"no consumer {consumer_id}")
        return &self.slots[consumer_id]

    cdef Slot* find(self, uint64_t consumer_id, uint32_t connection) noexcept:
        """Return the slot of a frame on ``connection``, or NULL."""
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
        """Add a consumer of ``logs[log_index]``. Nothing of the log counts as landed or staged."""
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
        s.until_ledger = s.until_entry = INT64_MAX
        s.landed_ledger = s.staged_ledger = s.last_ledger = s.open_ledger = -1
        s.landed_entry = s.staged_entry = s.last_entry = -1

    def remove(self, int64_t consumer_id):
        """Forget the consumer; its id may be added again."""
        cdef Slot* s = self.get(consumer_id)
        runs_drop(&s.entries)
        runs_drop(&s.landed_again)
        runs_drop(&s.came)
        runs_drop(&s.late)
        free(s.ahead)
        memset(s, 0, sizeof(Slot))
        self.wanted = {key: words for key, words in self.wanted.items() if key[0] != consumer_id}

    def attach(self, int64_t consumer_id, uint32_t connection_id, *, uint64_t epoch=0):
        """Accept frames for this consumer from this connection only (ids start at 1); debited restarts at 0."""
        cdef Slot* s = self.get(consumer_id)
        if connection_id == 0:
            raise ValueError("connection ids start at 1")
        s.connection = connection_id
        s.epoch = epoch
        s.debited = s.debits = s.due_at = 0
        s.uncounted = False

    def detach(self, int64_t consumer_id):
        """Drop every frame of this consumer from now on."""
        self.get(consumer_id).connection = 0

    def set_landed(self, int64_t consumer_id, position):
        """Raise the floor to ``position``: entries up to it have landed, and are dropped when they come again."""
        cdef Slot* s = self.get(consumer_id)
        cdef int64_t ledger = position.a
        cdef int64_t entry = position.b
        if before(s.landed_ledger, s.landed_entry, ledger, entry):
            s.landed_ledger = ledger
            s.landed_entry = entry
        if before(s.staged_ledger, s.staged_entry, s.landed_ledger, s.landed_entry):
            s.staged_ledger = s.landed_ledger
            s.staged_entry = s.landed_entry
            s.open_ledger = -1
            s.chunk = 0          # the next entry does not follow the end of the open span
            s.holds = False
        # Entries below the floor need no runs.
        runs_drop_landed(&s.entries, s)
        runs_drop_landed(&s.came, s)

    def end_at(self, int64_t consumer_id, position):
        """Ordered: take no entry behind ``position``: the first one that comes lets the span end there."""
        cdef Slot* s = self.get(consumer_id)
        s.until_ledger = position.a
        s.until_entry = position.b
        s.ended = False

    def has_ended(self, int64_t consumer_id):
        """Return whether an entry has come that lies behind the position of ``end_at``, since that call."""
        return bool(self.get(consumer_id).ended)

    def set_ahead(self, int64_t consumer_id, intervals):
        """Replace the landed intervals (after, up to) above the floor; they must be in order."""
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
        """Shared: record that the entries of ``runs`` (ledger, first, last) have landed."""
        cdef Slot* s = self.get(consumer_id)
        for ledger, first, last in runs:
            if first > last:
                raise ValueError(f"entries {first} to {last} run backwards")
            if runs_add(&s.entries, ledger, first, last, True):
                raise MemoryError()

    def release_runs(self, int64_t consumer_id, runs):
        """Shared: forget the entries of ``runs`` (ledger, first, last). They count as new if delivered again."""
        cdef Slot* s = self.get(consumer_id)
        for ledger, first, last in runs:
            if runs_cut(&s.entries, ledger, first, last):
                raise MemoryError()

    def staged_of(self, int64_t consumer_id, runs):
        """Shared: return the parts of ``runs`` (ledger, first, last) that were received and have not landed."""
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
        """Deliver only the elements of an entry whose bits are set in ``words`` (8 bytes each, low first).

        Empty words restore all elements. The permits that the broker debits for the entry do not change.
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
        """Drop frames of an older consumer epoch from now on (spec: pulsar 16.4)."""
        self.get(consumer_id).epoch = epoch

    def limit_redeliveries(self, int64_t consumer_id, int64_t most):
        """Make entries dead letters (``Reason.REDELIVERED``) that were redelivered more than ``most`` times."""
        self.get(consumer_id).most_redeliveries = most

    def void_staged(self, int64_t consumer_id):
        """Forget received entries that have not landed: the open files were discarded, so they are new again."""
        cdef Slot* s = self.get(consumer_id)
        cdef int64_t at = 0
        s.staged_ledger = s.landed_ledger
        s.staged_entry = s.landed_entry
        s.open_ledger = -1
        s.chunk = 0
        s.holds = False
        s.came.count = s.late.count = 0
        s.forgot = False
        while at < s.entries.count:
            if s.entries.run[at].landed:
                at += 1
            else:
                runs_remove(&s.entries, at)

    def debited(self, int64_t consumer_id):
        """Return the permits that the broker has debited since ``attach`` (spec: pulsar 13.1)."""
        return self.get(consumer_id).debited

    def debits(self, int64_t consumer_id):
        """Return the number of frames that ``debited`` was for."""
        return self.get(consumer_id).debits

    def uncounted(self, int64_t consumer_id):
        """Return whether the broker may have debited another number than ``debited`` (spec: pulsar 13.4)."""
        return bool(self.get(consumer_id).uncounted)

    def set_counted(self, int64_t consumer_id):
        """Record that the count of permits is that of the broker again."""
        self.get(consumer_id).uncounted = False

    def set_due(self, int64_t consumer_id, int64_t debited):
        """Make ``take_due`` report the consumer at ``debited`` permits; after ``attach`` it is due at once."""
        self.get(consumer_id).due_at = <uint64_t>max(debited, 0)

    def take_due(self):
        """Return consumers that became due since the last call, each once until ``set_due`` is called again."""
        due = self.due
        if due:
            self.due = []
        return due

    def last_position(self, int64_t consumer_id):
        """Return the last received entry, also a duplicate; (-1, -1) before the first."""
        cdef Slot* s = self.get(consumer_id)
        return Position(s.last_ledger, s.last_entry)

    def staged_position(self, int64_t consumer_id):
        """Ordered: return the position up to which entries were received."""
        cdef Slot* s = self.get(consumer_id)
        return Position(s.staged_ledger, s.staged_entry)

    def entry_runs(self, int64_t consumer_id):
        """Shared: return the runs above the floor as (ledger, first, last, landed)."""
        cdef Slot* s = self.get(consumer_id)
        cdef Run* r = s.entries.run
        return [(r[i].ledger, r[i].first, r[i].last, bool(r[i].landed)) for i in range(s.entries.count)]

    def largest_entry(self, int64_t consumer_id):
        """Return the decompressed size of the largest recent entry in bytes."""
        return self.get(consumer_id).largest

    def take_dirty(self):
        """Return consumers that received a frame since the last call."""
        dirty = self.dirty
        self.dirty = []
        for consumer_id in dirty:
            self.slots[<int64_t>consumer_id].dirty = False
        return dirty

    def take_landed_again(self, int64_t consumer_id):
        """Return landed entries that came again and need another ack, as (ledger, first, last)."""
        return taken(&self.get(consumer_id).landed_again)

    def take_late(self, int64_t consumer_id):
        """Ordered: return entries that first came after later ones, as (ledger, first, last). They are dropped."""
        return taken(&self.get(consumer_id).late)
