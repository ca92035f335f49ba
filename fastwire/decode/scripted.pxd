"""The scripts of a decoder of several schemas. See ``scripted.pyx``."""

from libc.stdint cimport int32_t

from fastwire.decode.decoded cimport HEADER, REFUSED, SOUND, UNKNOWN, Reason, Record, RecordDecoder, read_id

cdef struct Head:                # begins each script of a format
    int32_t id
    bint refused

cdef struct Scripts:
    char* scripts
    size_t size                  # of a script
    int count
    int current                  # that of the record; -1: none
    bint framed                  # each record begins with the id of its schema
    int32_t unknown              # id of the record that stopped a run


cdef class ScriptDecoder(RecordDecoder):
    cdef Scripts* known          # of the format's walker
    cdef list programs           # of the scripts; None: refused, for the reason in ``reasons``
    cdef list reasons

    cdef int open_scripts(self, Scripts* known, size_t size, bint framed) except -1
    cdef Head* new_script(self, int32_t id, tuple program, str reason) except NULL


cdef inline Head* script_at(const Scripts* known, int place) noexcept nogil:
    return <Head*>(known.scripts + place * known.size)


cdef inline Reason choose_script(Scripts* known, Record* record) noexcept nogil:
    """Choose the script of a record by the id of its schema, and pass the header, if there is one."""
    cdef int i
    cdef int32_t id = 0
    cdef Reason fault = read_id(record, &id)
    if fault:
        return fault
    if known.current < 0 or script_at(known, known.current).id != id:
        known.current = -1
        for i in range(known.count):
            if script_at(known, i).id == id:
                known.current = i
        if known.current < 0:
            known.unknown = id
            return UNKNOWN
    if script_at(known, known.current).refused:
        record.pos += not record.numbered
        return REFUSED
    if not record.numbered:
        record.pos += HEADER
    return SOUND
