"""The walker of Avro's binary encoding: from a column of bytes to columns of values, without an object a record.

A script has a step for each value of the writer's schema, with the column that it fills, if the reader has one. Steps
after the last field fill the columns that the writer lacks. (spec: Avro 1.12, "Binary Encoding", "Schema Resolution")
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from fastwire.decode.decoded cimport (
    BLOCK,
    BOOLEAN,
    BRANCH,
    DECIMAL,
    LENGTH,
    NO_MEMORY,
    RANGE,
    SOUND,
    SYMBOL,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    NULL_VALUE,
    UTF8,
    Reason,
    Records,
    is_text,
    run_records,
    varint_fault,
)
from fastwire.decode.nested cimport (
    Nested,
    nested_cell,
    nested_null,
    nested_row,
    put_bit,
    put_float,
    put_int,
)
from fastwire.decode.scripted cimport choose_script, script_at
from fastwire.wire.varint cimport fw_varint

cdef extern from *:
    """
    /* The number of a big-endian two's complement at p, as 16 bytes in the machine's order; -1 if it has more digits
       than `most`, which is at most 38. */
    static int fw_decimal(const unsigned char *p, int64_t size, int most, void *to)
    {
        unsigned char sign = size && p[0] & 0x80 ? 0xFF : 0;
        for (; size > 16; p++, size--)
            if (*p != sign)
                return -1;
        unsigned __int128 sum = sign ? ~(unsigned __int128)0 : 0, size_of = 1;
        if (size == 16 && ((p[0] & 0x80) != (sign & 0x80)))
            return -1;
        for (int64_t i = 0; i < size; i++)
            sum = sum << 8 | p[i];
        while (most--)
            size_of *= 10;
        if ((sign ? -sum : sum) >= size_of)
            return -1;
        __builtin_memcpy(to, &sum, 16);
        return 0;
    }
    """
    int fw_decimal(const uint8_t* p, int64_t size, int most, void* to) nogil


cdef inline Reason read_long(Walk* w, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef const uint8_t* behind = fw_varint(w.record.pos, w.record.end, &raw)
    if behind is NULL:
        return varint_fault(&w.record)
    w.record.pos = behind
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return SOUND


cdef inline Reason read_size(Walk* w, int64_t* size) noexcept nogil:
    """Read a length, and compare it with the bytes that are there."""
    cdef const uint8_t* start = w.record.pos
    cdef Reason fault = read_long(w, size)
    if fault:
        return fault
    if size[0] < 0 or size[0] > w.record.end - w.record.pos:
        w.record.pos = start
        return LENGTH if size[0] < 0 else TRUNCATED
    return SOUND


cdef inline Reason read_index(Walk* w, int64_t count, Reason unknown, int64_t* index) noexcept nogil:
    """Read a number from 0 to below ``count``; ``unknown`` is the reason if it is another one."""
    cdef const uint8_t* start = w.record.pos
    cdef Reason fault = read_long(w, index)
    if fault:
        return fault
    if index[0] < 0 or index[0] >= count:
        w.record.pos = start
        return unknown
    return SOUND


cdef inline Reason short(const Walk* w) noexcept nogil:
    return TOO_LARGE if w.out.over else NO_MEMORY


cdef inline Reason walk(Walk* w, int which) noexcept nogil:
    """Read the value of a step into its column. ``at`` keeps the deepest step that failed, ``pos`` its place."""
    cdef Reason fault
    cdef int64_t branch = 0
    cdef Step* step = &w.steps[which]
    if step.optional:
        fault = read_index(w, 1 if step.lone else 2, BRANCH, &branch)
        if not fault and not step.lone and branch == step.null_branch:
            fault = put_null(w, step.column)
            if not fault:
                return SOUND
        if fault:
            if w.record.at < 0:
                w.record.at = which
            return fault
    fault = read_value(w, which) if step.column >= 0 else skip_value(w, which)
    if fault and w.record.at < 0:
        w.record.at = which
    return fault


cdef Reason put_null(Walk* w, int column) noexcept nogil:
    """Append a null to a column, if there is one, and it takes nulls."""
    if column < 0:
        return SOUND
    if not w.out.columns[column].nullable or w.out.columns[column].required:
        return NULL_VALUE
    return short(w) if nested_null(&w.out, column) else SOUND


cdef Reason read_value(Walk* w, int which) noexcept nogil:
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    cdef const uint8_t* start = w.record.pos
    cdef int64_t number = 0
    cdef Reason fault
    if step.operation == OP_INT:
        fault = read_long(w, &number)
        if fault:
            return fault
        if number < step.low or number > step.high:
            w.record.pos = start
            return RANGE
        if nested_row(&w.out, c):
            return short(w)
        put_int(c, number)
    elif step.operation == OP_TEXT or step.operation == OP_BYTES:
        fault = read_size(w, &number)
        if fault:
            return fault
        if step.operation == OP_TEXT and not is_text(w.record.pos, number, w.record.edge):
            return UTF8
        if nested_cell(&w.out, c, w.record.pos, number, w.record.edge):
            return short(w)
        w.record.pos += number
        return SOUND
    elif step.operation in (OP_FLOAT, OP_DOUBLE, OP_FIXED):      # the machine is little-endian, as Avro's numbers are
        if w.record.end - w.record.pos < step.size:
            return TRUNCATED
        if nested_row(&w.out, c):
            return short(w)
        if step.operation == OP_FLOAT:
            put_float(c, w.record.pos)
        else:
            memcpy(c.rows + c.length * c.width, w.record.pos, <size_t>c.width)
        w.record.pos += step.size
    elif step.operation == OP_BOOL:
        if w.record.pos == w.record.end:
            return TRUNCATED
        if w.record.pos[0] > 1:
            return BOOLEAN
        if nested_row(&w.out, c):
            return short(w)
        put_bit(c.rows, c.length, w.record.pos[0])
        w.record.pos += 1
    elif step.operation == OP_RECORD:
        return read_record(w, which)
    elif step.operation == OP_ENUM:
        fault = read_index(w, step.count, SYMBOL, &number)
        if fault:
            return fault
        if step.symbols[number].text is NULL:
            w.record.pos = start
            return SYMBOL
        if nested_cell(
            &w.out, c, step.symbols[number].text, step.symbols[number].size,
            step.symbols[number].text + step.symbols[number].size,
        ):
            return short(w)
        return SOUND
    elif step.operation == OP_ARRAY:
        return read_array(w, which)
    elif step.operation == OP_UNION:
        return read_union(w, which)
    elif step.operation == OP_NULL or step.operation == OP_ABSENT:
        return put_null(w, step.column)
    elif step.operation == OP_DEFAULT:
        return read_default(w, which)
    elif step.operation == OP_EMPTY:
        return short(w) if nested_cell(&w.out, c, w.record.pos, 0, w.record.edge) else SOUND
    else:
        number = step.size
        if step.operation == OP_DECIMAL:
            fault = read_size(w, &number)
            if fault:
                return fault
        elif w.record.end - w.record.pos < number:
            return TRUNCATED
        if nested_row(&w.out, c):
            return short(w)
        if fw_decimal(w.record.pos, number, step.digits, c.rows + c.length * 16):
            return DECIMAL
        w.record.pos += number
    c.length += 1
    return SOUND


cdef Reason skip_value(Walk* w, int which) noexcept nogil:
    """Read a value that has no column. Its content is not checked beyond its size."""
    cdef Step* step = &w.steps[which]
    cdef int64_t number = 0
    cdef int i
    cdef Reason fault
    if step.operation == OP_INT or step.operation == OP_ENUM:
        return read_long(w, &number)
    if step.operation == OP_RECORD:
        for i in range(step.first, step.first + step.children):
            fault = walk(w, i)
            if fault:
                return fault
        return SOUND
    if step.operation == OP_ARRAY:
        return read_items(w, which)
    if step.operation == OP_UNION:
        fault = read_index(w, step.count, BRANCH, &number)
        if fault or step.branches[number] < 0:
            return fault
        return walk(w, step.first + step.branches[number])
    if step.operation == OP_NULL:
        return SOUND
    number = step.size
    if step.operation in (OP_TEXT, OP_BYTES, OP_DECIMAL):
        fault = read_size(w, &number)
        if fault:
            return fault
    if w.record.end - w.record.pos < number:
        return TRUNCATED
    w.record.pos += number
    return SOUND


cdef Reason read_default(Walk* w, int which) noexcept nogil:
    """Fill a column that the writer lacks: its step reads the encoded default instead of the record."""
    cdef Step* step = &w.steps[which]
    cdef const uint8_t* pos = w.record.pos
    cdef const uint8_t* end = w.record.end
    cdef const uint8_t* edge = w.record.edge
    cdef Reason fault
    w.record.pos = step.value.text
    w.record.end = w.record.edge = step.value.text + step.value.size
    fault = walk(w, step.first)
    w.record.pos, w.record.end, w.record.edge = pos, end, edge
    return fault


cdef Reason read_record(Walk* w, int which) noexcept nogil:
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    cdef int i
    cdef Reason fault
    for i in range(step.first, step.first + step.children):
        fault = walk(w, i)
        if fault:
            return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef Reason read_array(Walk* w, int which) noexcept nogil:
    cdef Nested* c = &w.out.columns[w.steps[which].column]
    cdef Reason fault
    if nested_row(&w.out, c):
        return short(w)
    fault = read_items(w, which)
    if fault:
        return fault
    c.length += 1
    (<int32_t*>c.rows)[c.length] = <int32_t>w.out.columns[c.first].length
    return SOUND


cdef Reason read_items(Walk* w, int which) noexcept nogil:
    """Read the blocks of an array or map. Each item has at least one byte, so the record's size bounds their number."""
    cdef int64_t count = 0
    cdef int64_t size = 0
    cdef int64_t left
    cdef const uint8_t* start
    cdef const uint8_t* behind
    cdef Reason fault
    while True:
        start = w.record.pos
        behind = NULL
        fault = read_long(w, &count)
        if fault:
            return fault
        if count == 0:
            return SOUND
        if count < 0:
            fault = read_size(w, &size)
            if fault:
                return fault
            behind = w.record.pos + size
        if count > w.record.end - w.record.pos or count < w.record.pos - w.record.end:
            w.record.pos = start
            return TRUNCATED
        left = count if count > 0 else -count
        while left:
            left -= 1
            fault = walk(w, w.steps[which].first)
            if fault:
                return fault
        if behind is not NULL and behind != w.record.pos:
            w.record.pos = start
            return BLOCK


cdef Reason read_union(Walk* w, int which) noexcept nogil:
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    cdef const uint8_t* start = w.record.pos
    cdef int64_t branch = 0
    cdef int i, chosen
    cdef Reason fault = read_index(w, step.count, BRANCH, &branch)
    if fault:
        return fault
    if step.branches[branch] < 0:
        return put_null(w, step.column)
    chosen = step.first + step.branches[branch]
    if w.steps[chosen].column < 0:
        w.record.pos = start
        return BRANCH
    for i in range(c.first, c.first + c.children):
        if i == w.steps[chosen].column:
            fault = walk(w, chosen)
        elif nested_null(&w.out, i):
            fault = short(w)
        if fault:
            return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef inline Reason read_one(void* context) noexcept nogil:
    """Read one record, for the ``Walk`` at ``context``."""
    cdef Walk* w = <Walk*>context
    cdef Reason fault
    if w.known.framed:
        fault = choose_script(&w.known, &w.record)
        if fault:
            return fault
        w.steps = (<Script*>script_at(&w.known, w.known.current)).steps
    fault = read_record(w, 0)
    if not fault and w.record.pos != w.record.end:
        fault = TRAILING
    return fault


cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil:
    cdef Walk* w = <Walk*>context
    return run_records(&w.out, &w.record, context, read_one, records, most)
