"""The header of Confluent's serializers before a message: a zero, the id of a schema, and the message's place in it."""

from libc.stdint cimport int32_t, uint8_t, uint64_t

from fastwire.decode.decoded cimport OTHER, SOUND, Reason, Record
from fastwire.decode.protobuf.script cimport MOST_PATH, Script, Walk
from fastwire.decode.protobuf.token cimport read_varint
from fastwire.decode.scripted cimport choose_script, script_at


cdef Reason open_frame(Walk* w) noexcept nogil:
    """Choose the script of a record, whose message indexes it must have."""
    cdef Script* script
    cdef Reason fault = choose_script(&w.known, &w.record)
    if fault:
        return fault
    script = <Script*>script_at(&w.known, w.known.current)
    w.steps = script.steps
    w.chosen = script.chosen
    return SOUND if w.record.numbered else read_path(&w.record, script)


cdef Reason read_path(Record* t, const Script* script) noexcept nogil:
    """Read message indexes: a count and as many indexes in zigzag; 0 is short for the path 0."""
    cdef int32_t[MOST_PATH] path
    cdef const uint8_t* start = t.pos
    cdef uint64_t count = 0
    cdef uint64_t index = 0
    cdef int i, k
    cdef Reason fault = read_varint(t, &count)
    if fault:
        return fault
    path[0] = 0
    if count & 1 or count > 2 * MOST_PATH:
        t.pos = start
        return OTHER
    count >>= 1
    for i in range(<int>count):
        fault = read_varint(t, &index)
        if fault:
            return fault
        path[i] = -1 if index & 1 or index >> 31 else <int32_t>(index >> 1)
    count = max(count, <uint64_t>1)
    for k in range(script.paths_count):
        if <uint64_t>script.paths_size[k] == count:
            i = 0
            while i < script.paths_size[k] and script.paths[k][i] == path[i]:
                i += 1
            if i == script.paths_size[k]:
                return SOUND
    t.pos = start
    return OTHER
