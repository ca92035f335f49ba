"""The header of Confluent's serializers before a message: a zero, the id of a schema, and the message's place in it."""

from libc.stdint cimport int32_t, uint8_t, uint64_t

from fastwire.decode.decoded cimport HEADER, OTHER, REFUSED, SOUND, UNKNOWN, Reason, Record, read_id
from fastwire.decode.protoscript cimport MOST_PATH, Script, Walk
from fastwire.decode.prototoken cimport read_varint


cdef Reason open_frame(Walk* w) noexcept nogil:
    """Read the id of a record's schema and its message indexes, unless it is known, and choose the script."""
    cdef Record* t = &w.record
    cdef int32_t id = 0
    cdef int i
    cdef Reason fault = read_id(t, &id)
    if fault:
        return fault
    if w.script < 0 or w.scripts[w.script].id != id:
        w.script = -1
        for i in range(w.scripts_count):
            if w.scripts[i].id == id:
                w.script = i
        if w.script < 0:
            w.id = id
            return UNKNOWN
        w.steps = w.scripts[w.script].steps
        w.chosen = w.scripts[w.script].chosen
    if w.steps is NULL:
        t.pos += not t.numbered
        return REFUSED
    if t.numbered:
        return SOUND
    t.pos += HEADER
    return read_path(t, &w.scripts[w.script])


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
