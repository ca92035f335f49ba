"""Partition slots: per partition, the position and the messages that the next GET returns again.

The scanner uses this C array, indexed by log.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from struct import pack

from fastwire.position import Position

__all__ = ["SlotTable"]


cdef enum:
    WINDOW = 10_000 * 28         # bytes of the index that one GET passes over: brokers look at some thousand entries


cdef bint slot_reaches(Slot* s, int64_t offset) noexcept nogil:
    """Return whether what was read leads to ``offset``, where the broker's position is now.

    A GET passes over entries of other partitions and does not say how many (spec: tubemq 11.2), so the distance from
    ``least`` decides:

    ======================  ====================================================================================
    below 0                 False
    messages are owed       True: that none of them is left out is seen by the id of the last one
    0                       True
    unexpected              False once, in doubt; True if it is there again after a new registration
    any other               True
    ======================  ====================================================================================

    Unexpected is any distance where ``exact``, and one wider than all that were seen, once there are some.
    """
    cdef int64_t passed = offset - s.least
    if passed < 0 or s.owed:
        return passed >= 0
    if passed and (s.exact or 0 <= s.widest < passed) and slot_doubts(s):
        s.doubted = passed
        return False
    s.widest = max(s.widest, passed, WINDOW if passed else 0)
    return True


cdef void slot_settles(Slot* s) noexcept nogil:
    """Note that nothing follows the position: the next jump that a GET makes is another one.

    If the jump before was in doubt, it held entries of other partitions, and the next COMMIT answers the offset behind
    them. Others may go on writing, so twice the distance is no reason for another look.
    """
    if s.doubt_base == s.base and s.doubt_taken == s.taken:
        s.settled = 2 * s.doubted
    s.doubt_base = -1
    s.doubted = 0


cdef bint slot_doubts(Slot* s) noexcept nogil:
    """Return True if what follows the position has not been in doubt yet; from now on it has."""
    if s.doubt_base == s.base and s.doubt_taken == s.taken:
        return False
    s.doubt_base = s.base
    s.doubt_taken = s.taken
    s.doubted = 0
    return True


@cython.final
cdef class SlotTable(PartitionSlots):
    """The slots of one pipeline by log index, shared by all connections."""

    def __cinit__(self, logs=()):
        self.width = sizeof(Slot)
        self.filters = {}

    def add(self, log, types=()):
        """Add a partition, named ``brokerId:partitionId``, and return its index; it is not read before ``attach``.

        Of messages only those whose ``$msgType$`` is among ``types`` become rows, unless there are none: a broker
        compares hashes (spec: tubemq 13).
        """
        cdef Slot* s
        cdef bytes kept
        broker, _, number = log.partition.partition(":")
        place = int(broker), int(number)    # a log that is malformed is not added
        kept = b"".join(pack("=q", len(each)) + each for each in (text.encode() for text in types))
        s = <Slot*>self.add_slot(log, place[1])
        s.broker = place[0]
        s.widest = s.doubt_base = -1
        if kept:
            self.filters[s.head.log] = kept
            s.filters = <const uint8_t*><const char*>kept
            s.filter_bytes = len(kept)
        return s.head.log

    def attach(self, int64_t index, position, int32_t session, witness=None):
        """Read from ``position`` on, whose offset the registration names; only responses of ``session`` count.

        The messages that the position counts are left out of the first GETs. The last of them must have the id
        ``witness``, or the one that this process has taken it with. Sessions start at 1.
        """
        cdef Slot* s = <Slot*>self.begin_session(index, session)
        if witness is not None:
            s.last_id = witness
            s.compare = <int64_t>position.b > 0
        else:
            s.compare = s.taken > 0 and s.last_id and s.base == <int64_t>position.a and s.taken == <int64_t>position.b
        s.base = s.last = s.least = position.a
        s.taken = s.last_skip = s.owed = position.b
        s.settled = 0
        s.fresh = s.exact = True

    def confirmed(self, int64_t index, int64_t offset):
        """Note the broker's position by its answer to a COMMIT; return False if it is not behind what was read.

        Then the slot is detached, and reading has to begin again where messages have landed.
        """
        cdef Slot* s = self.get(index)
        if offset < 0:
            return True          # the answer does not say
        if not 0 < offset - s.least <= s.settled and not slot_reaches(s, offset):
            s.head.session = 0
            return False
        s.doubt_base = -1
        s.doubted = s.settled = 0
        s.last = s.least = offset
        s.last_skip = s.owed
        s.exact = True
        return True

    def least(self, int64_t index):
        """Return the offset before which the next GET does not begin: all entries before it were read or skipped."""
        return self.get(index).least

    def owes(self, int64_t index):
        """Return how many messages that have landed the broker has not returned again since ``attach``."""
        return self.get(index).owed

    def position(self, int64_t index):
        """Return the position after the last message taken."""
        cdef Slot* s = self.get(index)
        return Position(s.base, s.taken)
