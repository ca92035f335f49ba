"""The walker of JSON: a text becomes values in columns (spec: RFC 8259). Keys of an object may come in any order."""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from fastwire.columns.builder cimport is_utf8
from fastwire.decode.decoded cimport (
    BASE64,
    DUPLICATE,
    INEXACT,
    MISSING,
    NO_MEMORY,
    NULL_VALUE,
    REFUSED,
    RANGE,
    SOUND,
    STRANGE,
    SYMBOL,
    TIME,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    TYPE,
    UTF8,
    Reason,
    Record,
    Records,
    run_records,
)
from fastwire.decode.json.token cimport (
    Number,
    enter,
    key_start,
    not_this,
    plain,
    proceed,
    raw_size,
    read_number,
    read_string,
    read_word,
    skip_value,
    want,
    white,
)
from fastwire.decode.json.value cimport (
    base64_bytes,
    number_decimal,
    number_double,
    number_float,
    number_int,
    time_value,
)
from fastwire.decode.nested cimport Nested, nested_cell, nested_data, nested_null, nested_row, put_bit


cdef inline Reason short(const Walk* w) noexcept nogil:
    return TOO_LARGE if w.out.over else NO_MEMORY


cdef int find_name(const Step* step, const uint8_t* text, int64_t size) noexcept nogil:
    """Return the index of a name, or -1."""
    cdef uint32_t slot = hash_of(text, size) & step.last_slot
    cdef int i = step.slots[slot]
    while i != EMPTY:
        if step.names[i].size == size and memcmp(step.names[i].text, text, <size_t>size) == 0:
            return i
        slot = (slot + 1) & step.last_slot
        i = step.slots[slot]
    return -1


cdef Reason read_name(Walk* w, const Step* step, int* index) noexcept nogil:
    """Read the string at ``pos`` as one of the names of ``step``; -1: it is another."""
    cdef Record* t = &w.record
    cdef const uint8_t* begin = t.pos + 1
    cdef int high = 0
    cdef const uint8_t* behind = plain(begin, t.end, t.edge, &high)
    cdef int64_t size = behind - begin
    cdef Reason fault
    if behind < t.end and behind[0] == c'"' and not high:
        t.pos = behind + 1
    else:
        fault = read_string(t, w.scratch, w.scratch_size, &size)
        if fault:
            return fault
        begin = w.scratch
    index[0] = -1 if size > w.scratch_size else find_name(step, begin, size)
    return SOUND


cdef inline bint is_next(const Record* t, const Name* name) noexcept nogil:
    """Return True if the string at ``pos`` is ``name``, without looking at escapes."""
    cdef uint64_t head
    if not name.mask:
        return False
    if t.edge - t.pos > 8:
        memcpy(&head, t.pos + 1, 8)
        if (head ^ name.head) & name.mask:
            return False
        if name.size < 8:
            return t.end - t.pos > name.size + 1
    return t.end - t.pos > name.size + 1 and memcmp(t.pos + 1, name.text, <size_t>(name.size + 1)) == 0


cdef inline Reason walk(Walk* w, int which) noexcept nogil:
    """Read the value at ``pos`` into the column of a step. ``at`` keeps the deepest step that failed."""
    cdef Reason fault = read_value(w, which)
    if fault and w.record.at < 0:
        w.record.at = which
    return fault


cdef Reason read_value(Walk* w, int which) noexcept nogil:
    cdef Record* t = &w.record
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[which]
    cdef const uint8_t* start = t.pos
    cdef Reason fault
    if t.pos == t.end:
        return TRUNCATED
    if t.pos[0] == c'n':
        fault = read_word(t, b"null", 4)
        if fault:
            return fault
        if not c.nullable or c.required:
            t.pos = start
            return NULL_VALUE
        return short(w) if nested_null(&w.out, which) else SOUND
    if step.operation == OP_TEXT:
        return read_raw(w, c) if step.raw and start[0] != c'"' else read_text(w, c)
    if step.operation == OP_RECORD:
        return read_record(w, which)
    if step.operation == OP_ARRAY:
        return read_list(w, which, c'[')
    if step.operation == OP_MAP:
        return read_list(w, which, c'{')
    if step.operation == OP_BYTES:
        return read_bytes(w, c)
    if step.operation == OP_ENUM:
        return read_enum(w, which)
    if nested_row(&w.out, c):
        return short(w)
    if step.operation == OP_BOOL:
        if t.pos[0] == c't':
            fault = read_word(t, b"true", 4)
        elif t.pos[0] == c'f':
            fault = read_word(t, b"false", 5)
        else:
            return not_this(t)
        put_bit(c.rows, c.length, start[0] == c't')
    else:
        fault = read_scalar(w, step, c)
    c.length += not fault
    return fault


cdef inline Reason read_scalar(Walk* w, const Step* step, Nested* c) noexcept nogil:
    """Read a number, also one in quotes, or a time into the next row."""
    cdef Record* t = &w.record
    cdef Number number
    cdef const uint8_t* start = t.pos
    cdef int64_t value = 0
    cdef bint quoted = t.pos[0] == c'"'
    cdef bint timed = quoted and step.clock
    cdef Reason fault
    if step.operation == OP_NULL:
        return not_this(t)
    if timed:
        fault = read_string(t, w.scratch, w.scratch_size, &value)
        if not fault and value > w.scratch_size:
            fault = TIME
        if not fault:
            fault = time_value(w.scratch, value, step.clock, step.places, &value)
        if fault == TIME and step.quotes and is_number(t, start):
            timed = False
        if fault and fault != TRUNCATED:
            t.pos = start
    if not timed:
        if quoted:
            if w.closed:
                return TYPE          # the column has numbers because values had no quotes
            t.pos += 1
            if t.pos < t.end and t.pos[0] in b'NI-' and step.operation in (OP_FLOAT, OP_DOUBLE):
                fault = read_special(t, step, c)
                if fault != TYPE:
                    return fault
                t.pos = start + 1
        elif t.pos[0] != c'-' and <uint8_t>(t.pos[0] - c'0') > 9:
            return not_this(t)
        fault = read_number(t, &number)
        if quoted and not fault:
            fault = SOUND if t.pos[0] == c'"' else TYPE
            t.pos += 1
        if fault:
            if quoted and fault != TRUNCATED:
                t.pos = start
                fault = TYPE
            return fault
        if step.operation == OP_INT:
            fault = number_int(&number, &value)
            if not fault and step.factor > 1:
                fault = scaled(&value, step.factor)
        elif step.operation == OP_DOUBLE:
            fault = number_double(&number, <double*>c.rows + c.length)
            if not fault and w.closed and is_rounded(&number, (<double*>c.rows)[c.length]):
                fault = INEXACT
        elif step.operation == OP_FLOAT:
            fault = number_float(&number, <float*>c.rows + c.length)
        else:
            fault = number_decimal(&number, step.digits, step.scale, c.rows + c.length * 16)
    if not fault and step.operation == OP_INT:
        if value < step.low or value > step.high:
            fault = RANGE
        elif c.width == 8:
            (<int64_t*>c.rows)[c.length] = value
        else:
            (<int32_t*>c.rows)[c.length] = <int32_t>value
    if fault and fault != TRUNCATED:
        t.pos = start
    return fault


cdef inline bint is_rounded(const Number* n, double value) noexcept nogil:
    """Return True if a number without a fraction is another one than its double ``value``."""
    cdef double size = value if value > 0 else -value
    return n.whole and (n.many or n.digits > <uint64_t>1 << 53 and <uint64_t>size != n.digits)


cdef bint is_number(const Record* t, const uint8_t* start) noexcept nogil:
    """Return True if the string at ``start``, which has been read, is a number."""
    cdef Record copy = t[0]
    cdef Number number
    copy.pos = start + 1
    return read_number(&copy, &number) == SOUND and copy.pos[0] == c'"'


cdef inline Reason scaled(int64_t* value, int64_t factor) noexcept nogil:
    """Multiply a number of seconds by its unit."""
    cdef int64_t most = <int64_t>0x7FFFFFFFFFFFFFFF // factor
    if not -most <= value[0] <= most:
        return RANGE
    value[0] *= factor
    return SOUND


cdef Reason read_special(Record* t, const Step* step, Nested* c) noexcept nogil:
    """Read "NaN", "Infinity" or "-Infinity" up to the closing quote; TYPE: it is none of them."""
    cdef bint negative = t.pos[0] == c'-'
    cdef double value = NAN
    t.pos += negative
    cdef Reason fault = TYPE
    if t.pos == t.end:
        return TRUNCATED
    if t.pos[0] == c'N' and not negative:
        fault = read_word(t, b'NaN"', 4)
    elif t.pos[0] == c'I':
        fault = read_word(t, b'Infinity"', 9)
        value = -INFINITY if negative else INFINITY
    if fault:
        return TRUNCATED if fault == TRUNCATED else TYPE
    if step.operation == OP_DOUBLE:
        (<double*>c.rows)[c.length] = value
    else:
        (<float*>c.rows)[c.length] = <float>value
    return SOUND


cdef Reason read_text(Walk* w, Nested* c) noexcept nogil:
    """Read a string into a column of text. Without escapes it is copied as it stands."""
    cdef Record* t = &w.record
    if t.pos[0] != c'"':
        return not_this(t)
    cdef const uint8_t* begin = t.pos + 1
    cdef int high = 0
    cdef const uint8_t* behind = plain(begin, t.end, t.edge, &high)
    if behind < t.end and behind[0] == c'"':
        if high and not is_utf8(begin, behind - begin):
            t.pos = begin
            return UTF8
        if nested_cell(&w.out, c, begin, behind - begin, t.edge):
            return short(w)
        t.pos = behind + 1
        return SOUND
    return read_escaped(w, c, False)


cdef Reason read_raw(Walk* w, Nested* c) noexcept nogil:
    """Read a value that is no string into a column of text, as it is written."""
    cdef Record* t = &w.record
    cdef const uint8_t* start = t.pos
    cdef Reason fault = skip_value(t, 0)
    if fault:
        return fault
    return short(w) if nested_cell(&w.out, c, start, t.pos - start, t.edge) else SOUND


cdef Reason read_escaped(Walk* w, Nested* c, bint base64) noexcept nogil:
    """Read a string into a column without its escapes; ``base64``: as the bytes that it stands for."""
    cdef Record* t = &w.record
    cdef const uint8_t* start = t.pos
    cdef int64_t room = raw_size(t)
    cdef int64_t size = 0
    cdef Reason fault
    if nested_row(&w.out, c):
        return short(w)
    if c.room - c.size < room and nested_data(&w.out, c, room):
        return short(w)
    fault = read_string(t, c.data + c.size, room, &size)
    if fault:
        return fault
    if base64:
        size = base64_bytes(c.data + c.size, size)
        if size < 0:
            t.pos = start
            return BASE64
    c.size += size
    c.length += 1
    (<int32_t*>c.rows)[c.length] = <int32_t>c.size
    return SOUND


cdef inline Reason read_bytes(Walk* w, Nested* c) noexcept nogil:
    return read_escaped(w, c, True) if w.record.pos[0] == c'"' else not_this(&w.record)


cdef Reason read_enum(Walk* w, int which) noexcept nogil:
    cdef Record* t = &w.record
    cdef Step* step = &w.steps[which]
    cdef const uint8_t* start = t.pos
    cdef int symbol = 0
    if t.pos[0] != c'"':
        return not_this(t)
    cdef Reason fault = read_name(w, step, &symbol)
    if fault:
        return fault
    if symbol < 0:
        t.pos = start
        return SYMBOL
    cdef const uint8_t* text = step.names[symbol].text
    cdef int64_t size = step.names[symbol].size
    return short(w) if nested_cell(&w.out, &w.out.columns[which], text, size, text + size) else SOUND


cdef bint tells(const uint8_t* pos, const uint8_t* end) noexcept nogil:
    """Return True if the sound JSON up to ``end`` has a value of some type: a null and what is empty have none."""
    while pos < end:
        if pos[0] == c'"':
            pos += 1
            while pos[0] != c'"':
                pos += 2 if pos[0] == c'\\' else 1
            pos += 1
            while pos < end and pos[0] in b' \t\r\n':
                pos += 1
            if pos == end or pos[0] != c':':
                return True      # it is no key
        elif pos[0] == c'n':
            pos += 4
        elif pos[0] in b'[]{},: \t\r\n':
            pos += 1
        else:
            return True
    return False


cdef Reason read_record(Walk* w, int which) noexcept nogil:
    """Read an object. A key is compared with the field after the last one first, because producers keep an order.

    The column of a field that was read has one row more than the record.
    """
    cdef Record* t = &w.record
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[which]
    cdef const uint8_t* start
    cdef const uint8_t* begin
    cdef int64_t row = c.length
    cdef int index = 0
    cdef int next = 0
    cdef int found = 0
    cdef bint more
    cdef Reason fault
    if t.pos[0] != c'{':
        return not_this(t)
    more = enter(t)
    while more:
        start = t.pos
        fault = key_start(t)
        if not fault:
            if next < c.children and is_next(t, &step.names[next]):
                index = next
                t.pos += step.names[next].size + 2
            else:
                fault = read_name(w, step, &index)
        if not fault:
            fault = want(t, c':')
        if fault:
            return fault
        if index < 0:
            begin = t.pos
            fault = skip_value(t, 0)
            if w.closed and not (w.partial and which == 0) and not fault and tells(begin, t.pos):
                t.pos = start
                fault = STRANGE
        elif w.out.columns[c.first + index].length != row:
            t.pos = start
            w.record.at = c.first + index
            fault = DUPLICATE
        else:
            fault = walk(w, c.first + index)
            next = index + 1
            found += 1
        if not fault:
            fault = proceed(t, c'}', &more)
        if fault:
            return fault
    if found < c.children:
        for index in range(c.first, c.first + c.children):
            if w.out.columns[index].length != row:
                continue
            if not w.out.columns[index].nullable or w.out.columns[index].required:
                w.record.at = index
                t.pos -= 1       # at the end of the object
                return MISSING
            if nested_null(&w.out, index):
                return short(w)
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef Reason read_list(Walk* w, int which, uint8_t first) noexcept nogil:
    """Read an array, or an object with any keys, which is a list of entries.

    Each item has at least one byte, so the record's size bounds their number.
    """
    cdef Record* t = &w.record
    cdef Nested* c = &w.out.columns[which]
    cdef bint more
    cdef Reason fault
    if t.pos[0] != first:
        return not_this(t)
    if nested_row(&w.out, c):
        return short(w)
    more = enter(t)
    while more:
        fault = walk(w, c.first) if first == c'[' else read_entry(w, c.first)
        if not fault:
            fault = proceed(t, first + 2, &more)
        if fault:
            return fault
    c.length += 1
    (<int32_t*>c.rows)[c.length] = <int32_t>w.out.columns[c.first].length
    return SOUND


cdef Reason read_entry(Walk* w, int which) noexcept nogil:
    """Read the key and the value of a map's entry."""
    cdef Nested* c = &w.out.columns[which]
    cdef Reason fault = key_start(&w.record)
    if not fault:
        fault = read_text(w, &w.out.columns[c.first])
    if not fault:
        fault = want(&w.record, c':')
    if not fault:
        fault = walk(w, c.first + 1)
    if fault:
        return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef inline Reason read_one(void* context) noexcept nogil:
    """Read the text of one record, for the ``Walk`` at ``context``."""
    cdef Walk* w = <Walk*>context
    cdef Record* t = &w.record
    cdef Reason fault
    cdef int i
    if t.numbered:
        for i in range(w.refused_count):
            if w.refused[i] == t.id:
                return REFUSED
    white(t)
    fault = walk(w, 0)
    if not fault:
        white(t)
        if t.pos != t.end:
            fault = TRAILING
    return fault


cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil:
    cdef Walk* w = <Walk*>context
    return run_records(&w.out, &w.record, context, read_one, records, most)
