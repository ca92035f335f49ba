# cython: boundscheck=True, cdivision=True
"""Rows as the messages of batch entries (spec: pulsar 9, 10), and their partitions as official clients choose them.

The results equal those of ``payload.encode_batch``, ``batcher.weight`` and ``router``.
A key of bytes is sent as base64.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from fastwire.columns.block cimport Block
from fastwire.columns.builder cimport is_utf8
from fastwire.columns.routes cimport LOOSE, Routes, weight_of_headers
from fastwire.columns.rows cimport Rows, blob, bytes_at, has_text_key, headers_of, millis, number
from fastwire.pulsar.format.base64 cimport encode_base64, encoded_size
from fastwire.wire.varint cimport fw_u32le
from fastwire.wire.writer cimport put_u32be, put_varint, varint_size

__all__ = ["MessageBlock", "MessageRoutes"]

cdef enum:
    OVERHEAD = 32                # weight of a message beside its bytes
    MOST_BYTES_A_HEAD = 128      # sizes, tags and numbers of a message
    POSITIVE = 0x7FFFFFFF


cdef uint32_t java_hash(uint32_t found, const uint8_t* text, int64_t size) noexcept nogil:
    """Continue Java's ``String.hashCode`` with UTF-8 that is sound: it counts UTF-16 code units."""
    cdef int64_t i = 0
    cdef uint32_t point
    while i < size:
        point = text[i]
        if point < 0x80:
            i += 1
        elif point < 0xE0:
            point = (point & 0x1F) << 6 | text[i + 1] & 0x3F
            i += 2
        elif point < 0xF0:
            point = (point & 0x0F) << 12 | (<uint32_t>text[i + 1] & 0x3F) << 6 | text[i + 2] & 0x3F
            i += 3
        else:
            point = (
                (point & 0x07) << 18
                | (<uint32_t>text[i + 1] & 0x3F) << 12
                | (<uint32_t>text[i + 2] & 0x3F) << 6
                | text[i + 3] & 0x3F
            ) - 0x10000
            found = 31 * found + (0xD800 | point >> 10)
            point = 0xDC00 | point & 0x3FF
            i += 4
        found = 31 * found + point
    return found


cdef inline uint32_t scramble(uint32_t word) noexcept nogil:
    word *= <uint32_t>0xCC9E2D51
    word = word << 15 | word >> 17
    return word * <uint32_t>0x1B873593


cdef uint32_t murmur3(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t word, found = 0
    cdef int64_t at, whole = size & ~3
    for at in range(0, whole, 4):
        found ^= scramble(fw_u32le(data + at))
        found = found << 13 | found >> 19
        found = found * 5 + <uint32_t>0xE6546B64
    word = 0
    for at in range(size - 1, whole - 1, -1):
        word = word << 8 | data[at]
    found ^= scramble(word) ^ <uint32_t>size
    found = (found ^ found >> 16) * <uint32_t>0x85EBCA6B
    found = (found ^ found >> 13) * <uint32_t>0xC2B2AE35
    return found ^ found >> 16


@cython.final
cdef class MessageRoutes(Routes):
    """The routes of rows for Pulsar. Headers must be text; ``murmur3`` selects that hash instead of Java's."""

    def __cinit__(self, Rows rows, int64_t now_ms, bint murmur3=False):
        self.murmur3 = murmur3

    cdef int measure(self, int64_t row) except -1:
        cdef Rows rows = self.rows
        cdef int64_t size, micros = 0, weight = OVERHEAD
        cdef const uint8_t* key = blob(&rows.key, row, &size)
        self.hashes[row] = LOOSE
        if key is not NULL and has_text_key(rows, row):
            if rows.key_is_text and not is_utf8(key, size):
                raise ValueError("a key of text is not UTF-8")
            weight += size
            self.hashes[row] = self.hash_of(key, size)
        elif key is not NULL:
            text = encoded(key, size)
            weight += len(text)
            self.hashes[row] = self.hash_of(text, len(text))
        blob(&rows.value, row, &size)
        weight += size
        blob(&rows.ordering_key, row, &size)
        weight += size
        if rows.headers.offsets is not NULL:
            weight += weight_of_headers(rows, row)
            check_texts(rows, row)
        if number(&rows.event_time, row, &micros) and (micros % 1000 or not micros):
            rows.changed_times += 1  # 0 is the number of no time
        self.weights[row] = weight
        return 0

    def group(self, int64_t first, int64_t stop):
        """Sort the rows ``first`` to ``stop`` of a step by key, for ``runs``.

        Keys come in the order of their first rows, and the rows of a key keep theirs.
        """
        cdef int64_t count = stop - first
        cdef int64_t room = 2
        cdef int64_t i
        cdef int32_t* table
        cdef int32_t* leads
        cdef int32_t* members
        cdef int32_t* rows
        cdef int64_t* ends
        self.check(first, stop)
        while room < 2 * count:
            room *= 2
        table = <int32_t*>malloc(<size_t>room * sizeof(int32_t))
        leads = <int32_t*>malloc(<size_t>(count + 1) * sizeof(int32_t))
        members = <int32_t*>malloc(<size_t>(count + 1) * sizeof(int32_t))
        rows = <int32_t*>malloc(<size_t>(count + 1) * sizeof(int32_t))
        ends = <int64_t*>calloc(<size_t>(count + 1), sizeof(int64_t))
        try:
            if table is NULL or leads is NULL or members is NULL or rows is NULL or ends is NULL:
                raise MemoryError()
            with nogil:
                memset(table, 0xFF, <size_t>room * sizeof(int32_t))
                self.count_keys(self.order + first, count, table, room, leads, members, ends)
                for i in range(count):
                    rows[ends[members[i]]] = self.order[first + i]
                    ends[members[i]] += 1
                memcpy(self.order + first, rows, <size_t>count * sizeof(int32_t))
        finally:
            free(table)
            free(leads)
            free(members)
            free(rows)
            free(ends)

    def runs(self, int64_t first, int64_t stop):
        """Return the runs of rows with the same key among ``first`` to ``stop``: a list of (first, stop, key).

        The bounds are for ``Block.add``. The key is None for rows without one, else its kind and its bytes.
        """
        cdef int64_t at = first, end, row, size
        cdef const uint8_t* key
        self.check(first, stop)
        found = []
        while at < stop:
            row = self.order[at]
            end = at + 1
            while end < stop and self.is_same(row, self.order[end]):
                end += 1
            key = self.sticky(row, &size)
            found.append((at, end, None if key is NULL else (self.kind(row), <bytes>key[:size])))
            at = end
        return found

    cdef int check(self, int64_t first, int64_t stop) except -1:
        """Raise ValueError for bounds outside of the rows."""
        if not 0 <= first <= stop <= self.rows.count:
            raise ValueError(f"rows {first} to {stop} of {self.rows.count}")
        return 0

    cdef void count_keys(
        self,
        const int32_t* order,
        int64_t count,
        int32_t* table,
        int64_t room,
        int32_t* leads,
        int32_t* members,
        int64_t* starts,
    ) noexcept nogil:
        """Set the number of each row's key, and where the rows of each key start. ``table`` is full of -1."""
        cdef int32_t groups = 0
        cdef int64_t i, at, size, before, sum_ = 0
        cdef const uint8_t* key
        for i in range(count):
            key = self.sticky(order[i], &size)
            at = murmur3(key, size) & (room - 1) if key is not NULL else 0
            while table[at] >= 0 and not self.is_same(leads[table[at]], order[i]):
                at = (at + 1) & (room - 1)
            if table[at] < 0:
                table[at] = groups
                leads[groups] = order[i]
                groups += 1
            members[i] = table[at]
            starts[members[i]] += 1
        for i in range(groups):
            before, sum_ = sum_, sum_ + starts[i]
            starts[i] = before

    cdef const uint8_t* sticky(self, int64_t row, int64_t* size) noexcept nogil:
        """Return what chooses the consumer of a row on Key_Shared (spec: pulsar 29, trap 18); NULL for none."""
        cdef const uint8_t* key = blob(&self.rows.ordering_key, row, size)
        return blob(&self.rows.key, row, size) if key is NULL else key

    cdef bint is_same(self, int64_t one, int64_t other) noexcept nogil:
        """Return True if two rows have the same key of the same kind."""
        cdef int64_t size, other_size
        cdef const uint8_t* key = self.sticky(one, &size)
        cdef const uint8_t* other_key = self.sticky(other, &other_size)
        if self.kind(one) != self.kind(other) or size != other_size:
            return False
        return key is NULL or memcmp(key, other_key, <size_t>size) == 0

    cdef int kind(self, int64_t row) noexcept nogil:
        """Return 0 without a key, 1 for an ordering key, 2 for a key of text, 3 for one of bytes."""
        cdef int64_t size
        if blob(&self.rows.ordering_key, row, &size) is not NULL:
            return 1
        if blob(&self.rows.key, row, &size) is NULL:
            return 0
        return 2 if has_text_key(self.rows, row) else 3

    cdef int32_t hash_of(self, const uint8_t* text, int64_t size) noexcept nogil:
        return <int32_t>((murmur3(text, size) if self.murmur3 else java_hash(0, text, size)) & POSITIVE)


cdef bytes encoded(const uint8_t* data, int64_t size):
    text = bytearray(encoded_size(size))
    cdef uint8_t[:] place = text
    if size:
        encode_base64(data, &place[0], size)
    return bytes(text)


cdef int check_texts(Rows rows, int64_t row) except -1:
    """Raise ValueError for a header whose value is not text."""
    cdef int64_t first, i, size
    cdef int64_t count = headers_of(&rows.headers, row, &first)
    cdef const uint8_t* data
    for i in range(first, first + count):
        data = blob(&rows.headers.values, i, &size)
        if data is NULL or not is_utf8(data, size):
            value = bytes_at(&rows.headers.values, i)
            raise ValueError(f"properties of Pulsar are text in UTF-8, not {value!r:.60}")
    return 0


cdef inline int64_t field_size(int64_t size) noexcept nogil:
    return 1 + varint_size(<uint64_t>size) + size


cdef inline uint8_t* put_field(uint8_t* p, uint8_t tag, const uint8_t* data, int64_t size) noexcept nogil:
    p[0] = tag
    p = put_varint(p + 1, <uint64_t>size)
    memcpy(p, data, <size_t>size)
    return p + size


@cython.final
cdef class MessageBlock(Block):
    """The messages of a batch, numbered from ``first_sequence``."""

    def __cinit__(self, int64_t first_sequence):
        self.first_sequence = first_sequence

    cdef Block empty(self):
        return MessageBlock(self.first_sequence)  # copies keep their numbers

    cdef int put(self, Routes routes, int64_t row) except -1:
        cdef Rows rows = routes.rows
        cdef int64_t key_size, value_size, order_size, name_size, size, first, i
        cdef const uint8_t* key = blob(&rows.key, row, &key_size)
        cdef const uint8_t* value = blob(&rows.value, row, &value_size)
        cdef const uint8_t* order = blob(&rows.ordering_key, row, &order_size)
        cdef const uint8_t* name
        cdef const uint8_t* data
        cdef int64_t headers = headers_of(&rows.headers, row, &first)
        cdef int64_t time = 0
        cdef int64_t most = MOST_BYTES_A_HEAD + encoded_size(key_size) + value_size + order_size
        cdef bint is_base64 = False
        cdef uint8_t* start
        cdef uint8_t* p
        for i in range(first, first + headers):
            blob(&rows.headers.names, i, &name_size)
            blob(&rows.headers.values, i, &size)
            most += 32 + name_size + size
        start = self.reserve(most)
        p = start + 4
        for i in range(first, first + headers):
            name = blob(&rows.headers.names, i, &name_size)
            data = blob(&rows.headers.values, i, &size)
            p[0] = 0x0A
            p = put_varint(p + 1, <uint64_t>(field_size(name_size) + field_size(size)))
            p = put_field(put_field(p, 0x0A, name, name_size), 0x12, data, size)
        if key is not NULL and has_text_key(rows, row):
            p = put_field(p, 0x12, key, key_size)
        elif key is not NULL:
            is_base64 = True
            p[0] = 0x12
            p = put_varint(p + 1, <uint64_t>encoded_size(key_size))
            encode_base64(key, p, key_size)
            p += encoded_size(key_size)
        p[0] = 0x18
        p = put_varint(p + 1, <uint64_t>value_size)
        if number(&rows.event_time, row, &time):
            time = millis(time)
        if time:
            p[0] = 0x28
            p = put_varint(p + 1, <uint64_t>time)
        if is_base64:
            p[0], p[1] = 0x30, 1
            p += 2
        if order is not NULL:
            p = put_field(p, 0x3A, order, order_size)
        p[0] = 0x40
        p = put_varint(p + 1, <uint64_t>(self.first_sequence + self.count))
        if value is NULL:
            p[0], p[1] = 0x48, 1
            p += 2
        put_u32be(start, <uint32_t>(p - start - 4))
        if value_size:
            memcpy(p, value, <size_t>value_size)
        return self.end_record(p + value_size)
