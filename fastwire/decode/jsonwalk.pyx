"""The decoder of JSON: from a column of texts to columns of values, without an object a record.

Each text is one object (spec: RFC 8259), whose keys may come in any order. A record that does not match its schema is
removed from the columns and reported; the records after it are decoded.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastwire.decode.decoded cimport Decoded, Records, output_of, records_of, schema_of, set_columns, take_columns
from fastwire.decode.jsonread cimport (
    EMPTY,
    OP_ARRAY,
    OP_BOOL,
    OP_BYTES,
    OP_DECIMAL,
    OP_DOUBLE,
    OP_ENUM,
    OP_FLOAT,
    OP_INT,
    OP_MAP,
    OP_NULL,
    OP_RECORD,
    OP_TEXT,
    Name,
    Operation,
    Step,
    Walk,
    hash_of,
    run,
)
from fastwire.decode.jsontoken cimport (
    BASE64,
    DECIMAL,
    DEEP,
    DUPLICATE,
    ESCAPE,
    INEXACT,
    MISSING,
    NO_MEMORY,
    NO_VALUE,
    NULL_VALUE,
    RANGE,
    SOUND,
    SYMBOL,
    SYNTAX,
    TIME,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    TYPE,
    UTF8,
    Reason,
)
from fastwire.decode.jsonvalue cimport CLOCK_DATE, CLOCK_INSTANT, CLOCK_LOCAL, CLOCK_TIME, Clock
from fastwire.decode.nested cimport nested_drop, nested_open
from fastwire.wire.pool cimport Pool

from fastwire.decode.program import BadRecord

__all__ = ["REASONS", "JsonDecoder"]

cdef dict _NAMES = {
    TRUNCATED: "Truncated",      # the text ends within a value
    SYNTAX: "InvalidJson",
    TRAILING: "TrailingBytes",   # after the object
    DEEP: "TooDeep",             # a value that is skipped nests too deep
    ESCAPE: "InvalidEscape",     # unknown, or half of a surrogate pair
    UTF8: "InvalidUtf8",
    TYPE: "WrongType",           # a value of JSON that its column does not take
    NULL_VALUE: "UnexpectedNull",
    MISSING: "MissingField",     # a field that is not nullable has no key
    DUPLICATE: "DuplicateKey",   # a field has two
    RANGE: "OutOfRange",         # a number that its type does not have
    INEXACT: "Inexact",          # a number or time with decimal places that its column does not keep
    DECIMAL: "DecimalTooLarge",  # more digits than the schema allows
    SYMBOL: "UnknownSymbol",     # of an enum
    BASE64: "InvalidBase64",
    TIME: "InvalidTime",         # no date, time or timestamp
    NO_VALUE: "NoValue",         # the cell is null
    TOO_LARGE: "TooLarge",       # its columns exceed the memory limit of one record; it may be sound
}

REASONS = tuple(_NAMES.values())
"""Stable names of the reasons why a record is bad."""

# By the shape of a column: a dataset may have a wider one than the schema of the values.
cdef dict OPERATIONS = {
    "null": OP_NULL,
    "bool": OP_BOOL,
    "int32": OP_INT,
    "int64": OP_INT,
    "float": OP_FLOAT,
    "double": OP_DOUBLE,
    "text": OP_TEXT,
    "bytes": OP_BYTES,
    "decimal": OP_DECIMAL,
    "struct": OP_RECORD,
    "list": OP_ARRAY,
}

# Limits by type, beside those of a step: of 32 bits, of a day, and milliseconds that microseconds can hold.
cdef dict LIMITS = {
    "i": (-(1 << 31), (1 << 31) - 1),
    "tdD": (-(1 << 31), (1 << 31) - 1),
    "ttm": (0, 86_400_000 - 1),
    "ttu": (0, 86_400_000_000 - 1),
    "tsm": (-((1 << 63) - 1) // 1000, ((1 << 63) - 1) // 1000),
}

cdef dict CLOCKS = {"td": CLOCK_DATE, "tt": CLOCK_TIME, "ts": CLOCK_INSTANT}
cdef dict PLACES = {"D": 0, "s": 0, "m": 3, "u": 6, "n": 9}

cdef enum:
    LEAST_SCRATCH = 64           # bytes; enough for any time


@cython.final
cdef class JsonDecoder:
    """Decodes columns of JSON texts by a program of ``compile_json``, into memory of ``pool``.

    One record may let the columns grow by a fourth of the pool's limit. A call ends early once they have grown by a
    16th, or by 8 MiB. Not for two threads at once.
    """
    cdef Walk walk
    cdef Pool pool
    cdef tuple program
    cdef list texts              # names and symbols that the columns and steps point to

    def __cinit__(self, program, Pool pool not None):
        self.pool = pool
        self.program = tuple(program)
        self.texts = []
        set_columns(&self.walk.out, self.program, pool, self.texts)
        self.walk.steps = <Step*>calloc(len(self.program), sizeof(Step))
        if self.walk.steps is NULL:
            raise MemoryError()
        self.walk.scratch_size = LEAST_SCRATCH
        for number, step in enumerate(self.program):
            self.set_step(&self.walk.steps[number], step)
        self.walk.scratch = <uint8_t*>calloc(self.walk.scratch_size, 1)
        if self.walk.scratch is NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int i
        nested_drop(&self.walk.out)
        if self.walk.steps is not NULL:
            for i in range(self.walk.out.count):
                free(self.walk.steps[i].names)
                free(self.walk.steps[i].slots)
        free(self.walk.steps)
        free(self.walk.scratch)
        free(self.walk.out.columns)

    cdef int set_step(self, Step* s, step) except -1:
        low, high = LIMITS.get(step.arrow.partition(":")[0], (step.low, step.high))
        s.operation = <Operation><int>OPERATIONS[step.shape]
        if step.arrow == "+m":
            s.operation = OP_MAP
        elif step.operation == "enum":
            s.operation = OP_ENUM
        s.low = max(low, step.low)
        s.high = min(high, step.high)
        s.digits = step.digits
        if s.operation == OP_DECIMAL:
            s.scale = int(step.arrow.partition(",")[2])
        if s.operation == OP_INT and step.arrow[0] == "t":
            s.clock = <Clock><int>CLOCKS[step.arrow[:2]]
            if s.clock == CLOCK_INSTANT and step.arrow.endswith(":"):
                s.clock = CLOCK_LOCAL
            s.places = PLACES[step.arrow[2]]
        names = step.symbols
        if s.operation == OP_RECORD:
            names = [each.name.encode() for each in self.program[step.first : step.first + step.children]]
        return self.set_names(s, names)

    cdef int set_names(self, Step* s, names) except -1:
        """Set the names of a step, and the table in which they are found; at least half of it is empty."""
        cdef Name* name
        cdef bytes text
        cdef uint32_t slot
        cdef int i
        s.count = len(names)
        s.last_slot = (1 << (2 * s.count).bit_length()) - 1
        s.names = <Name*>calloc(s.count + 1, sizeof(Name))
        s.slots = <int32_t*>calloc(s.last_slot + 1, sizeof(int32_t))
        if s.names is NULL or s.slots is NULL:
            raise MemoryError()
        for slot in range(s.last_slot + 1):
            s.slots[slot] = EMPTY
        for i, each in enumerate(names):
            text = each + b'"'
            self.texts.append(text)
            name = &s.names[i]
            name.text = <const uint8_t*><const char*>text
            name.size = len(each)
            memcpy(&name.head, name.text, min(8, len(text)))
            memcpy(&name.mask, b"\xff" * 8, min(8, len(text)))
            slot = hash_of(name.text, name.size) & s.last_slot
            while s.slots[slot] != EMPTY:
                slot = (slot + 1) & s.last_slot
            s.slots[slot] = i
            self.walk.scratch_size = max(self.walk.scratch_size, name.size)
        return 0

    def __arrow_c_schema__(self):
        """Return an ``arrow_schema`` capsule of the columns."""
        return schema_of(&self.walk.out)

    def decode(self, values, int64_t first=0):
        """Decode the records of a binary Arrow array (of the PyCapsule interface) from index ``first`` on.

        At least one record is looked at, if there is one. Raises ValueError for an array of another type, or an index
        beyond its end; MemoryError.
        """
        cdef Walk* w = &self.walk
        cdef Records records
        cdef int64_t most = output_of(&w.out)
        cdef Reason fault
        cdef Decoded decoded = Decoded.__new__(Decoded)
        held = records_of(&records, values, first)
        decoded.bad = []
        if nested_open(&w.out):
            raise MemoryError()
        try:
            while records.next < records.count:
                with nogil:
                    fault = run(w, &records, most)
                if fault == SOUND:
                    break
                if fault == NO_MEMORY:
                    raise MemoryError()
                path = self.program[w.at].path if w.at >= 0 else ""
                decoded.bad.append(BadRecord(records.next, _NAMES[fault], path, w.text.pos - w.text.start))
                records.next += 1
            decoded.upto = records.next
            take_columns(decoded, &w.out)
        finally:
            nested_drop(&w.out)
            del held
        return decoded
