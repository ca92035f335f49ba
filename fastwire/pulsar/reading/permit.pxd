"""Permits that a broker has debited for the frame of a MESSAGE (spec: pulsar 13)."""

from libc.stdint cimport int64_t

from fastwire.pulsar.reading.batch cimport EntryPlace
from fastwire.pulsar.format.metadata cimport MOST_MESSAGES, MessageHead, Metadata, bits_below
from fastwire.pulsar.reading.slot cimport Slot


cdef inline int64_t debited(Slot* slot, MessageHead* head, Metadata* m, EntryPlace* place) noexcept nogil:
    """Return the permits of a sound frame (spec: pulsar 13.1)."""
    cdef int64_t count = m.messages if m.batched else 1
    if place.ack_set is not NULL:
        count = bits_below(place.ack_set, place.ack_words, count)
    if head.has_permits and head.permits and head.permits != count:
        # The broker states what it has debited. If it counts otherwise than it states, only its own count tells.
        slot.uncounted = True
        return head.permits
    return count


cdef inline int64_t debited_untrusted(Slot* slot, MessageHead* head, EntryPlace* place) noexcept nogil:
    """Return the permits of a frame with damaged metadata: by the command, otherwise 1 (spec: pulsar 13.4)."""
    if place.ack_set is not NULL:
        return bits_below(place.ack_set, place.ack_words, MOST_MESSAGES)
    if head.has_permits and head.permits:
        return head.permits
    slot.uncounted = True
    return 1
