from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct Run:                 # consecutive entries of one ledger
    int64_t ledger
    int64_t first
    int64_t last
    bint landed


cdef struct Runs:                # sorted, disjoint
    Run* run
    int64_t count
    int64_t capacity


cdef struct Stretch:             # landed positions behind ``begin`` up to ``end``
    int64_t begin_a
    int64_t begin_b
    int64_t end_a
    int64_t end_b

cdef enum State:
    NEW = 0
    STAGED = 1
    LANDED = 2

cdef struct Slot:
    bint known
    bint ordered
    uint32_t connection          # 0 = not attached: its frames are dropped
    int32_t log
    int32_t topic
    int32_t partition
    uint64_t epoch               # frames of an older consumer_epoch are dropped
    uint64_t debited             # permits since attach
    uint64_t debits              # frames that they were for
    bint uncounted               # the broker may have debited another number since attach
    uint64_t due_at              # debited count at which the consumer is due; NOT_DUE once it was reported
    int64_t until_ledger         # end of a bounded run: no later entry is taken; the largest numbers = none
    int64_t until_entry
    bint ended                   # a later entry has come
    int64_t landed_ledger        # ordered: everything up to here has landed
    int64_t landed_entry
    int64_t staged_ledger        # ordered: everything up to here was received
    int64_t staged_entry
    int64_t last_ledger          # the last entry seen, also a duplicate
    int64_t last_entry
    int64_t largest              # bytes of the largest recent entry
    int64_t most_redeliveries    # entries with more redeliveries are not decoded; -1 = no limit
    int64_t narrowed             # entries with a reduced set of wanted elements
    bint dirty
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span
    bint holds                   # ordered: entries between held and staged are held back, and in no span
    int64_t held_ledger
    int64_t held_entry
    Stretch* ahead               # landed positions beyond held chunks, in order
    int64_t ahead_count
    Runs entries                 # shared: received and landed ones
    Runs landed_again            # landed entries that came again
    int64_t open_ledger          # ordered: received up to the staged position without a gap; -1 = nothing
    int64_t open_first
    Runs came                    # ordered: received above the floor before that, the newest runs of it
    bint forgot                  # older runs of ``came`` are gone
    Runs late                    # ordered: entries that came for the first time behind later ones

cdef State slot_state(Slot* s, int64_t ledger, int64_t entry) noexcept nogil
cdef int slot_stage_apart(Slot* s, int64_t ledger, int64_t entry) noexcept nogil
cdef void slot_pass(Slot* s, int64_t ledger, int64_t entry) noexcept nogil
cdef int slot_hold(Slot* s, int64_t ledger, int64_t entry) noexcept nogil
cdef int slot_again(Slot* s, int64_t ledger, int64_t entry) noexcept nogil
cdef int runs_add(Runs* r, int64_t ledger, int64_t first, int64_t last, bint landed) noexcept nogil


cdef inline int slot_stage(Slot* s, int64_t ledger, int64_t entry) noexcept nogil:
    """Record a received entry. -1 = no memory."""
    # What follows the staged entry in its ledger, as nearly all do, only moves the end of the open run.
    if s.ordered and entry == s.staged_entry + 1 and ledger == s.open_ledger:
        s.staged_entry = entry
        return 0
    return slot_stage_apart(s, ledger, entry)


cdef class SlotTable(LogTable):
    cdef Slot* slots
    cdef list due                # consumers whose ``due_at`` was reached
    cdef list dirty              # those that have got something since they were asked for
    cdef int64_t capacity
    cdef dict wanted             # (consumer id, ledger, entry) -> bytes of words, as in an ack_set
    cdef Slot* get(self, int64_t consumer_id) except NULL
    cdef Slot* find(self, uint64_t consumer_id, uint32_t connection) noexcept
    cdef bytes wanted_of(self, uint64_t consumer_id, int64_t ledger, int64_t entry)
    cdef int fall_due(self, Slot* s, uint64_t consumer_id) except -1
    cdef int touch(self, Slot* s, uint64_t consumer_id) except -1
