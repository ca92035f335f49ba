"""Definition and repetition levels of the leaves of a record batch (parquet-format, "Nested Encoding")."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Bytes, bytes_reserve
from fastwire.parquet.schema cimport (
    READ_NOTHING,
    SHAPE_LARGE_LIST,
    SHAPE_LEAF,
    SHAPE_LIST,
    SHAPE_STRUCT,
    Node,
)

from fastwire.parquet.errors import UnwritableError


@cython.final
cdef class Part:
    pass


@cython.final
cdef class Entries:
    """The entries of a field that has others in it: levels, and places in its array. What it shares, others own."""

    cdef int64_t count
    cdef uint8_t* definitions
    cdef uint8_t* repetitions
    cdef int32_t* index
    cdef void* own_definitions
    cdef void* own_repetitions
    cdef void* own_index
    cdef Entries above

    def __dealloc__(self):
        free(self.own_definitions)
        free(self.own_repetitions)
        free(self.own_index)

    cdef int new_definitions(self) except -1:
        self.own_definitions = malloc(<size_t>(self.count + 1))
        if self.own_definitions is NULL:
            raise MemoryError()
        self.definitions = <uint8_t*>self.own_definitions
        return 0

    cdef int new_repetitions(self) except -1:
        self.own_repetitions = malloc(<size_t>(self.count + 1))
        if self.own_repetitions is NULL:
            raise MemoryError()
        self.repetitions = <uint8_t*>self.own_repetitions
        return 0

    cdef int new_index(self) except -1:
        self.own_index = malloc(<size_t>(self.count * 4 + 1))
        if self.own_index is NULL:
            raise MemoryError()
        self.index = <int32_t*>self.own_index
        return 0


cdef inline bint is_set(const uint8_t* bits, int64_t at) noexcept nogil:
    return (bits[at >> 3] >> (at & 7)) & 1


cdef int64_t unset(const uint8_t* bits, int64_t first, int64_t count) noexcept nogil:
    """Return the number of zero bits."""
    cdef int64_t at = first, end = first + count, found = 0
    cdef uint8_t byte
    while at < end and at & 7:
        found += not is_set(bits, at)
        at += 1
    while at + 8 <= end:
        byte = ~bits[at >> 3]
        byte = byte - ((byte >> 1) & 0x55)
        byte = (byte & 0x33) + ((byte >> 2) & 0x33)
        found += (byte + (byte >> 4)) & 0x0F
        at += 8
    while at < end:
        found += not is_set(bits, at)
        at += 1
    return found


cdef list parts_of(Node node, ArrowArray* batch, int64_t number):
    """Return the parts of the leaves of a field of the record, the ``number``-th of ``batch``.

    Raises UnwritableError for nulls in a field that takes none.
    """
    cdef list found = []
    cdef ArrowArray* array = batch.children[number]
    cdef int level
    if node.shape == SHAPE_LEAF:
        return [flat(node, array, batch.offset, batch.length)]
    level = common_end(node, array, array.offset + batch.offset, batch.length)
    if level >= 0:
        end_all(node, array, batch.length, <uint8_t>level, found)
    else:
        expand(node, array, rows_of(batch.offset, batch.length), found)
    return found


cdef Part flat(Node node, ArrowArray* array, int64_t offset, int64_t count):
    """The part of a leaf that is a field of the record."""
    cdef Part part = Part()
    part.node = node
    part.array = array
    part.count = count
    part.first = array.offset + offset
    if node.read == READ_NOTHING and not node.index:
        part.nulls = count
    elif array.n_buffers and array.buffers[0] is not NULL and array.null_count:
        part.bits = <const uint8_t*>array.buffers[0]
        part.bit = part.first
        part.nulls = unset(part.bits, part.bit, count)
        if part.nulls == 0 or part.nulls == count:
            part.bits = NULL
    if part.nulls and not node.nullable and node.read != READ_NOTHING:
        raise UnwritableError(f"the column {node.name} has nulls, and its field is not nullable")
    return part


cdef int common_end(Node node, ArrowArray* array, int64_t first, int64_t count) except -2:
    """Return the definition level at which all rows of a field end: they are null, or lists without items. Else -1."""
    cdef const int32_t* offsets
    cdef const int64_t* wide
    cdef int64_t nulls = 0
    if array.n_buffers and array.buffers[0] is not NULL and array.null_count:
        nulls = unset(<const uint8_t*>array.buffers[0], first, count)
    if nulls == count and node.nullable:
        return node.above
    if nulls:
        return -1
    if node.shape == SHAPE_LIST:
        offsets = <const int32_t*>array.buffers[1]
        return node.definition if offsets[first] == offsets[first + count] else -1
    if node.shape == SHAPE_LARGE_LIST:
        wide = <const int64_t*>array.buffers[1]
        return node.definition if wide[first] == wide[first + count] else -1
    return -1


cdef void end_all(Node node, ArrowArray* array, int64_t count, uint8_t level, list into) except *:
    """Append the parts of all leaves of ``node``: no row has a value there."""
    cdef Part part
    cdef int64_t i
    if node.shape == SHAPE_LEAF:
        part = Part()
        part.node = node
        part.array = array
        part.count = part.nulls = count
        part.level = level
        into.append(part)
        return
    for i in range(len(node.children)):
        end_all(<Node>node.children[i], array.children[i], count, level, into)


cdef Entries rows_of(int64_t offset, int64_t count):
    cdef Entries made = Entries()
    cdef int64_t i
    made.count = count
    check_places(offset + count)
    made.new_definitions()
    made.new_index()
    for i in range(count):
        made.definitions[i] = 0
        made.index[i] = <int32_t>(offset + i)
    return made


cdef int check_places(int64_t places) except -1:
    if places > INT32_MAX:
        raise UnwritableError(f"a batch has {places} values in one nested column, more than {INT32_MAX}")
    return 0


cdef int expand(Node node, ArrowArray* array, Entries above, list into) except -1:
    """Append the parts of all leaves of ``node``. ``above`` has its places."""
    cdef Entries here
    cdef Node child
    cdef Part part
    cdef int64_t i
    here = present(node, array, above)
    if node.shape == SHAPE_LEAF:
        part = Part()
        part.node = node
        part.array = array
        part.count = here.count
        part.definitions = here.definitions
        part.repetitions = here.repetitions
        part.index = here.index
        part.owner = here
        for i in range(part.count):
            part.nulls += part.index[i] < 0
        into.append(part)
        return 0
    if node.shape == SHAPE_STRUCT:
        for i, child in enumerate(node.children):
            expand(child, array.children[i], here, into)
        return 0
    return expand(<Node>node.children[0], array.children[0], items(node, array, here), into)


cdef Entries present(Node node, ArrowArray* array, Entries above):
    """Places in the buffers of ``array``; where it is null the entry ends, with the level of what is above."""
    cdef Entries made = Entries()
    cdef const uint8_t* bits = NULL
    cdef int64_t i, at
    cdef bint nulls = False
    cdef bint none = node.shape == SHAPE_LEAF and node.read == READ_NOTHING and not node.index
    cdef bint nullable = node.definition > node.above
    made.above = above
    made.count = above.count
    made.definitions, made.repetitions, made.index = above.definitions, above.repetitions, above.index
    check_places(array.offset + array.length)
    if array.n_buffers and array.buffers[0] is not NULL and array.null_count and not none:
        bits = <const uint8_t*>array.buffers[0]
    if nullable:
        made.new_definitions()
    if array.offset or bits is not NULL or none:
        made.new_index()
    with nogil:
        if made.own_index is not NULL:
            for i in range(above.count):
                at = above.index[i]
                made.index[i] = <int32_t>at
                if at >= 0:
                    at += array.offset
                    made.index[i] = <int32_t>at
                    if none or (bits is not NULL and not is_set(bits, at)):
                        nulls = True
                        made.index[i] = -1
        if nullable:
            for i in range(above.count):
                made.definitions[i] = above.definitions[i] + (made.index[i] >= 0)
    if nulls and not nullable:
        raise UnwritableError(f"the column {'.'.join(node.path)} has nulls, and its field is not nullable")
    return made


cdef Entries items(Node node, ArrowArray* array, Entries lists):
    """The items of lists; a list without items is one entry without a place."""
    cdef const int32_t* small = NULL
    cdef const int64_t* large = NULL
    cdef int64_t i, k, at, first, size, total = 0, to = 0
    cdef Entries made = Entries()
    if node.shape == SHAPE_LARGE_LIST:
        large = <const int64_t*>array.buffers[1]
    elif node.shape == SHAPE_LIST:
        small = <const int32_t*>array.buffers[1]
    for i in range(lists.count):
        at = lists.index[i]
        size = 0
        if at >= 0:
            size = large[at + 1] - large[at] if large is not NULL else (
                small[at + 1] - small[at] if small is not NULL else node.items
            )
        total += max(size, 1)
    check_places(total)
    made.count = total
    made.new_definitions()
    made.new_repetitions()
    made.new_index()
    with nogil:
        for i in range(lists.count):
            at = lists.index[i]
            size = 0
            first = 0
            if at >= 0:
                if large is not NULL:
                    first = large[at]
                    size = large[at + 1] - first
                elif small is not NULL:
                    first = small[at]
                    size = small[at + 1] - first
                else:
                    first = at * node.items
                    size = node.items
            made.repetitions[to] = lists.repetitions[i] if lists.repetitions is not NULL else 0
            if size == 0:
                made.definitions[to] = lists.definitions[i]
                made.index[to] = -1
                to += 1
                continue
            for k in range(size):
                if k:
                    made.repetitions[to] = <uint8_t>(node.repetition + 1)
                made.definitions[to] = <uint8_t>(node.definition + 1)
                made.index[to] = <int32_t>(first + k)
                to += 1
    return made


cdef int pick(Part part, int64_t first, int64_t end, Bytes* scratch, Picked* picked) except -1:
    """Find the values among some entries. The result is valid while ``scratch`` is not used again."""
    cdef int64_t i, count = 0
    cdef int64_t* to
    picked.array = part.array
    picked.index = NULL
    picked.first = part.first + first
    picked.count = 0
    if part.nulls == part.count:
        return 0
    if part.index is NULL and part.bits is NULL:
        picked.count = end - first
        return 0
    scratch.size = 0
    if bytes_reserve(scratch, (end - first) * 8):
        raise MemoryError()
    to = <int64_t*>scratch.data
    with nogil:
        if part.index is NULL:
            for i in range(first, end):
                to[count] = part.first + i
                count += (part.bits[(part.bit + i) >> 3] >> ((part.bit + i) & 7)) & 1
        else:
            for i in range(first, end):
                to[count] = part.index[i]
                count += part.index[i] >= 0
    picked.count = count
    if count and to[count - 1] - to[0] == count - 1:
        picked.first = to[0]                   # one after the other, as places only grow
    else:
        picked.index = to
    return 0
