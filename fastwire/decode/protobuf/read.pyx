"""The walker of Protobuf's encoding: from a column of bytes to columns of values, without an object a record.

Fields of a message come in any order, more than once, or not at all, and two pieces of a message may lie apart. So a
value is written into its column at once, and its row stays open until the message is complete:

* While a message is read, its columns have as many rows as there were messages before it, or one more if the field was
  there. A second value of a field removes the row and writes it anew; so does a second member of a oneof with the
  first one.
* A struct has its row from its first piece on, and its fields stay open: a second piece goes on in the same rows.
* Items of lists are appended as they come. The fields between them belong to other columns, and the list's own row,
  the end of the items, is written when the message is complete.
* At the end of the record, of a list's item and of a map's entry, ``finish`` gives the columns without a row defaults
  or nulls, closes the lists, and does the same for the structs inside.

A bad record is cut off like a complete one: each column keeps the rows of the records before it.

Each message has a table from field numbers to steps. A field that the table lacks, or whose tag has another wire type,
is unknown and skipped. (spec: protobuf.dev, "Encoding"; the conformance tests of protobuf)
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.decode.decoded cimport (
    MISSING,
    NO_MEMORY,
    RANGE,
    REPLACED,
    SOUND,
    TAG,
    TOO_LARGE,
    TRUNCATED,
    UTF8,
    Reason,
    Record,
    Records,
    is_text,
    run_records,
)
from fastwire.decode.nested cimport (
    SHAPE_BYTES,
    SHAPE_LIST,
    SHAPE_TEXT,
    Nested,
    nested_cell,
    nested_cut,
    nested_null,
    nested_row,
    put_bit,
    put_float,
    put_int,
)
from fastwire.decode.protobuf.enums cimport MOST_DIGITS, find_symbol, in_digits
from fastwire.decode.protobuf.frame cimport open_frame
from fastwire.decode.protobuf.script cimport (
    LEFT_BY_ALL,
    LEFT_BY_BYTE,
    WIRE_BOOL,
    WIRE_DOUBLE,
    WIRE_ENCODED,
    WIRE_ENTRY,
    WIRE_ENUM,
    WIRE_FIXED32,
    WIRE_FLOAT,
    WIRE_INT32,
    WIRE_INT64,
    WIRE_LIST,
    WIRE_MESSAGE,
    WIRE_NONE,
    WIRE_SFIXED32,
    WIRE_SFIXED64,
    WIRE_SINT32,
    WIRE_SINT64,
    WIRE_TIMESTAMP,
    WIRE_UINT32,
    Step,
    Text,
    Walk,
    find_step,
)
from fastwire.decode.protobuf.token cimport (
    KIND_64,
    KIND_END,
    KIND_GROUP,
    KIND_SIZED,
    KIND_VARINT,
    read_size,
    read_tag,
    read_varint,
    skip_group,
    skip_value,
)
from fastwire.wire.varint cimport fw_u32le, fw_u64le

cdef enum:
    MICROS = 1_000_000
    NANOS = 1_000_000_000

cdef int64_t MOST_SECONDS = <int64_t>0x7FFFFFFFFFFFFFFF // MICROS


cdef inline Reason short(const Walk* w) noexcept nogil:
    return TOO_LARGE if w.out.over else NO_MEMORY


cdef Reason read_fields(Walk* w, int which, uint32_t group) noexcept nogil:
    """Read fields of a message, whose row is open, up to the end of the record; or of the ``group`` of this number, if
    it is not 0.
    """
    cdef Record* t = &w.record
    cdef Step* message = &w.steps[which]
    cdef int64_t row = w.out.columns[message.column].length - 1
    cdef const uint8_t* start
    cdef uint32_t tag = 0
    cdef int found
    cdef Reason fault
    while t.pos < t.end:
        start = t.pos
        fault = read_tag(t, &tag)
        if fault:
            return fault
        if tag & 7 == KIND_END:
            if tag >> 3 == group:
                return SOUND
            t.pos = start
            return TAG
        found = find_step(message, tag >> 3)
        if found >= 0:
            fault = read_field(w, found, tag, row)
            if fault and t.at < 0:
                t.at = found
        else:
            fault = skip_value(t, tag)
        if fault:
            return fault
    return TRUNCATED if group else SOUND


cdef inline Reason read_field(Walk* w, int which, uint32_t tag, int64_t row) noexcept nogil:
    """Read a field of the message whose row is ``row``."""
    cdef Step* step = &w.steps[which]
    cdef Nested* c
    cdef bint is_value = True
    cdef Reason fault
    if tag & 7 == step.plain:
        c = &w.out.columns[step.column]
        if c.length > row:
            drop_cell(c, row)
        return read_value(w, step, c)
    if step.wire == WIRE_LIST:
        return read_items(w, which, tag)
    if tag & 7 != step.tagged:
        return skip_value(&w.record, tag)
    if step.wire == WIRE_ENUM:
        fault = read_enum(w, step, row, &is_value)
    elif step.column < 0:
        fault = skip_value(&w.record, tag)
    else:
        c = &w.out.columns[step.column]
        if step.wire == WIRE_MESSAGE:
            fault = read_message(w, which, tag, row)
        elif step.wrapped or step.wire >= WIRE_TIMESTAMP:
            fault = read_scalar_message(w, step, c, tag, row)
        else:
            if c.length > row:
                drop_cell(c, row)
            fault = read_value(w, step, c)
    if step.oneof >= 0 and is_value and not fault:
        fault = choose(w, step, row)
    return fault


cdef inline void drop_cell(Nested* c, int64_t row) noexcept nogil:
    """Remove the value of a scalar, because another one follows."""
    c.length = row
    if c.shape == SHAPE_TEXT or c.shape == SHAPE_BYTES:
        c.size = (<int32_t*>c.rows)[row]


cdef inline Reason choose(Walk* w, const Step* step, int64_t row) noexcept nogil:
    """Remove the member of a oneof that was set before this one. A remembered column of another row has no value."""
    cdef int before = w.chosen[step.oneof]
    if before != step.column:
        if before >= 0 and w.out.columns[before].length > row:
            w.left -= w.weights[before]
            if w.left < 0:
                return REPLACED
            nested_cut(&w.out, before, row)
        w.chosen[step.oneof] = step.column
    return SOUND


cdef Reason read_message(Walk* w, int which, uint32_t tag, int64_t row) noexcept nogil:
    """Read a message, or a further piece of it."""
    cdef Nested* c = &w.out.columns[w.steps[which].column]
    if c.length == row:
        if nested_row(&w.out, c):
            return short(w)
        c.length += 1
    return read_piece(w, which, tag)


cdef Reason read_piece(Walk* w, int which, uint32_t tag) noexcept nogil:
    """Read the fields of a message whose row is open, by its length or as a group."""
    cdef Record* t = &w.record
    cdef const uint8_t* end = t.end
    cdef int64_t size = 0
    cdef Reason fault
    if tag & 7 == KIND_GROUP:
        return read_fields(w, which, tag >> 3)
    fault = read_size(t, &size)
    if fault:
        return fault
    t.end = t.pos + size
    fault = read_fields(w, which, 0)
    t.end = end
    return fault


cdef Reason read_items(Walk* w, int which, uint32_t tag) noexcept nogil:
    """Read one item of a list, or several that are packed; a declaration does not bind to either."""
    cdef Record* t = &w.record
    cdef Step* item = &w.steps[w.steps[which].first]
    cdef const uint8_t* end = t.end
    cdef int64_t size = 0
    cdef Reason fault
    if w.steps[which].column < 0:
        return skip_value(t, tag)
    if tag & 7 == item.tagged:
        fault = read_item(w, w.steps[which].first, tag)
    elif tag & 7 == KIND_SIZED and item.packed:
        fault = read_size(t, &size)
        if fault:
            return fault
        t.end = t.pos + size
        while t.pos < t.end and not fault:
            fault = read_item(w, w.steps[which].first, tag)
        t.end = end
    else:
        return skip_value(t, tag)
    if fault and t.at < 0:
        t.at = w.steps[which].first
    return fault


cdef inline Reason read_item(Walk* w, int which, uint32_t tag) noexcept nogil:
    """Append an item to the column of a list."""
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    cdef int64_t row = c.length
    cdef bint is_value = False
    cdef Reason fault
    if step.wire == WIRE_MESSAGE or step.wire == WIRE_ENTRY:
        w.unnamed = False
        fault = read_message(w, which, tag, row)
        if fault:
            return fault
        if w.unnamed and step.wire == WIRE_ENTRY and w.steps[step.first + 1].closed:
            nested_cut(&w.out, step.column, row)
            return SOUND
        return finish(w, which)
    if step.wrapped or step.wire >= WIRE_TIMESTAMP:
        return read_scalar_message(w, step, c, tag, row)
    if step.wire == WIRE_ENUM:
        return read_enum(w, step, row, &is_value)
    return read_value(w, step, c)


cdef inline void put_unsigned(Nested* c, uint64_t number) noexcept nogil:
    """Set the 16 bytes of a decimal."""
    (<uint64_t*>c.rows)[2 * c.length] = number
    (<uint64_t*>c.rows)[2 * c.length + 1] = 0


cdef inline Reason read_value(Walk* w, const Step* step, Nested* c) noexcept nogil:
    """Append a scalar to its column. Numbers of 32 bits are the lower half of what a varint has."""
    cdef Record* t = &w.record
    cdef uint64_t raw = 0
    cdef int64_t size = 0
    cdef Reason fault
    if step.kind == KIND_VARINT:
        fault = read_varint(t, &raw)
        if fault:
            return fault
        if nested_row(&w.out, c):
            return short(w)
        if step.wire == WIRE_INT64:
            put_int(c, <int64_t>raw)
        elif step.wire == WIRE_INT32:
            put_int(c, <int32_t>raw)
        elif step.wire == WIRE_BOOL:
            put_bit(c.rows, c.length, raw != 0)
        elif step.wire == WIRE_UINT32:
            put_int(c, <uint32_t>raw)
        elif step.wire == WIRE_SINT32:
            raw = <uint32_t>raw
            put_int(c, <int32_t>((raw >> 1) ^ (0 - (raw & 1))))
        elif step.wire == WIRE_SINT64:
            put_int(c, <int64_t>((raw >> 1) ^ (0 - (raw & 1))))
        else:
            put_unsigned(c, raw)
    elif step.kind == KIND_SIZED:
        fault = read_size(t, &size)
        if fault:
            return fault
        if c.shape == SHAPE_TEXT and not is_text(t.pos, size, t.edge):
            return UTF8
        if nested_cell(&w.out, c, t.pos, size, t.edge):
            return short(w)
        t.pos += size
        return SOUND
    else:
        size = 8 if step.kind == KIND_64 else 4
        if t.end - t.pos < size:
            return TRUNCATED
        if nested_row(&w.out, c):
            return short(w)
        if step.wire == WIRE_DOUBLE:             # the machine is little-endian, as these numbers are
            memcpy(c.rows + 8 * c.length, t.pos, 8)
        elif step.wire == WIRE_FLOAT:
            put_float(c, t.pos)
        elif step.wire == WIRE_SFIXED64:
            put_int(c, <int64_t>fw_u64le(t.pos))
        elif step.wire == WIRE_SFIXED32:
            put_int(c, <int32_t>fw_u32le(t.pos))
        elif step.wire == WIRE_FIXED32:
            put_int(c, fw_u32le(t.pos))
        else:
            put_unsigned(c, fw_u64le(t.pos))
        t.pos += size
    c.length += 1
    return SOUND


cdef Reason read_enum(Walk* w, const Step* step, int64_t row, bint* is_value) noexcept nogil:
    """Set the cell of a row, if there is a column, to the name of an enum's value, or its digits.

    A number that a closed enum lacks is an unknown field, not a value, and changes nothing.
    """
    cdef Nested* c
    cdef uint64_t raw = 0
    cdef int place
    cdef uint8_t[MOST_DIGITS] digits
    cdef Text text
    cdef Reason fault = read_varint(&w.record, &raw)
    if fault:
        return fault
    place = find_symbol(step, <int32_t>raw)
    is_value[0] = place >= 0 or not step.closed
    if not is_value[0]:
        w.unnamed = True
    if step.column < 0 or not is_value[0]:
        return SOUND
    text = step.symbols[place] if place >= 0 else in_digits(<int32_t>raw, digits)
    c = &w.out.columns[step.column]
    if c.length > row:
        drop_cell(c, row)
    return short(w) if nested_cell(&w.out, c, text.data, text.size, text.data + text.size) else SOUND


cdef Reason read_scalar_message(Walk* w, const Step* step, Nested* c, uint32_t tag, int64_t row) noexcept nogil:
    """Read a message that is one cell of its column, or a further piece of it."""
    cdef Record* t = &w.record
    cdef const uint8_t* start = t.pos
    cdef const uint8_t* end = t.end
    cdef const uint8_t* behind
    cdef const uint8_t* last
    cdef int64_t size = 0
    cdef Reason fault
    if tag & 7 == KIND_GROUP:
        fault = skip_group(t, tag >> 3, &last)
        if fault:
            return fault
        behind, t.pos, t.end = t.pos, start, last
    else:
        fault = read_size(t, &size)
        if fault:
            return fault
        t.end = behind = t.pos + size
    if step.wire == WIRE_ENCODED:
        fault = put_piece(w, c, row)
    elif step.wire == WIRE_TIMESTAMP:
        fault = read_timestamp(w, c, row)
    else:
        fault = read_wrapped(w, step, c, row)
    t.end = end
    if not fault:
        t.pos = behind
    return fault


cdef Reason put_piece(Walk* w, Nested* c, int64_t row) noexcept nogil:
    """Append the bytes up to the end to a cell: pieces of a message that follow each other are the whole message."""
    cdef Record* t = &w.record
    if c.shape == SHAPE_TEXT and not is_text(t.pos, t.end - t.pos, t.edge):
        return UTF8              # the column was one of texts before the field became a message
    if c.length > row:
        c.length = row           # its bytes stay, and the new ones follow
    return short(w) if nested_cell(&w.out, c, t.pos, t.end - t.pos, t.edge) else SOUND


cdef Reason read_wrapped(Walk* w, const Step* step, Nested* c, int64_t row) noexcept nogil:
    """Read the message around a value; without the value it is zero, unless an earlier piece has it."""
    cdef Record* t = &w.record
    cdef uint32_t tag = 0
    cdef Reason fault
    while t.pos < t.end:
        fault = read_tag(t, &tag)
        if fault:
            return fault
        if tag == (8 | step.kind):
            if c.length > row:
                drop_cell(c, row)
            fault = read_value(w, step, c)
        else:
            fault = skip_value(t, tag)
        if fault:
            return fault
    return put_zero(w, step.column) if c.length == row else SOUND


cdef Reason read_timestamp(Walk* w, Nested* c, int64_t row) noexcept nogil:
    """Read seconds and nanoseconds as microseconds."""
    cdef Record* t = &w.record
    cdef const uint8_t* start = t.pos
    cdef uint64_t raw = 0
    cdef int64_t seconds = 0
    cdef int64_t nanos = 0
    cdef uint32_t tag = 0
    cdef Reason fault
    if c.length > row:
        seconds = (<int64_t*>c.rows)[row] // MICROS
        nanos = ((<int64_t*>c.rows)[row] - seconds * MICROS) * 1000
        c.length = row
    while t.pos < t.end:
        fault = read_tag(t, &tag)
        if fault:
            return fault
        if tag == 8 or tag == 16:
            fault = read_varint(t, &raw)
            if tag == 8:
                seconds = <int64_t>raw
            else:
                nanos = <int32_t>raw
        else:
            fault = skip_value(t, tag)
        if fault:
            return fault
    if not (0 <= nanos < NANOS and -MOST_SECONDS <= seconds < MOST_SECONDS):
        t.pos = start
        return RANGE
    if nested_row(&w.out, c):
        return short(w)
    (<int64_t*>c.rows)[c.length] = seconds * MICROS + nanos // 1000
    c.length += 1
    return SOUND


cdef Reason put_zero(Walk* w, int column) noexcept nogil:
    """Append zero, false, or an empty text."""
    cdef Nested* c = &w.out.columns[column]
    if nested_null(&w.out, column):
        return short(w)
    if c.validity is not NULL:
        put_bit(c.validity, c.length - 1, True)
    return SOUND


cdef Reason finish(Walk* w, int which) noexcept nogil:
    """Complete the columns of a message, whose row is the last one of its column."""
    cdef Nested* columns = w.out.columns
    cdef Step* message = &w.steps[which]
    cdef Step* step
    cdef int64_t row = columns[message.column].length - 1
    cdef int i
    cdef Reason fault
    for i in range(message.first, message.first + message.children):
        step = &w.steps[i]
        if step.column < 0:
            continue
        if columns[step.column].length > row:
            if step.wire != WIRE_MESSAGE:
                continue
            fault = finish(w, i)
        else:
            fault = fill(w, i)
        if fault:
            if w.record.at < 0:
                w.record.at = i
            return fault
    return SOUND


cdef inline Reason fill(Walk* w, int which) noexcept nogil:
    """Append the row of a list whose items are there, or of a field that the message did not have."""
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    if c.shape == SHAPE_LIST and step.has_default:
        if nested_row(&w.out, c):
            return short(w)
        c.length += 1
        (<int32_t*>c.rows)[c.length] = <int32_t>w.out.columns[c.first].length
        return SOUND
    if step.zero:
        return put_zero(w, step.column)
    if step.has_default:
        return put_default(w, which)
    if not c.nullable:
        return MISSING
    return short(w) if nested_null(&w.out, step.column) else SOUND


cdef Reason put_default(Walk* w, int which) noexcept nogil:
    """Append the default of a field: its encoded value is read as if the record had it."""
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[step.column]
    cdef Record kept = w.record
    cdef bint is_value = False
    cdef Reason fault
    w.record.pos = step.default.data
    w.record.end = w.record.edge = step.default.data + step.default.size
    if step.wire == WIRE_NONE:   # the default of the column, by the step of the column
        which = step.first
        step = &w.steps[which]
    if step.zero:
        fault = put_zero(w, step.column)
    elif step.wire == WIRE_MESSAGE:
        fault = short(w) if nested_row(&w.out, c) else SOUND
        if not fault:
            c.length += 1
            fault = finish(w, which)
    elif step.wire == WIRE_ENUM:
        fault = read_enum(w, step, c.length, &is_value)
    else:
        fault = read_value(w, step, c)
    kept.at = w.record.at
    w.record = kept
    return fault


cdef inline Reason read_one(void* context) noexcept nogil:
    """Read one record, for the ``Walk`` at ``context``."""
    cdef Walk* w = <Walk*>context
    cdef Nested* c = &w.out.columns[0]
    cdef Reason fault
    if w.known.framed:
        fault = open_frame(w)
        if fault:
            return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    w.left = LEFT_BY_ALL + LEFT_BY_BYTE * (w.record.end - w.record.pos)
    fault = read_fields(w, 0, 0)
    return fault if fault else finish(w, 0)


cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil:
    cdef Walk* w = <Walk*>context
    return run_records(&w.out, &w.record, context, read_one, records, most)
