"""The decoder of JSON: from a column of texts to columns of values, without an object a record.

Each text is one object (spec: RFC 8259), whose keys may come in any order.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from fastwire.decode.decoded cimport (
    BASE64,
    DECIMAL,
    DEEP,
    DUPLICATE,
    ESCAPE,
    INEXACT,
    MISSING,
    NO_VALUE,
    NULL_VALUE,
    RANGE,
    REFUSED,
    STRANGE,
    SYMBOL,
    SYNTAX,
    TIME,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    TYPE,
    UTF8,
    Reason,
    RecordDecoder,
    names_of,
)
from fastwire.decode.json.read cimport (
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
from fastwire.decode.json.value cimport CLOCK_DATE, CLOCK_INSTANT, CLOCK_LOCAL, CLOCK_LOOSE, CLOCK_TIME, Clock
from fastwire.wire.pool cimport Pool

__all__ = ["REASONS", "JsonDecoder"]

REASONS = names_of((
    TRUNCATED, SYNTAX, TRAILING, DEEP, ESCAPE, UTF8, TYPE, NULL_VALUE, MISSING, DUPLICATE, RANGE, INEXACT,
    DECIMAL, SYMBOL, BASE64, TIME, NO_VALUE, TOO_LARGE, STRANGE,
))
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
cdef dict SECONDS = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}

cdef enum:
    LEAST_SCRATCH = 64           # bytes; enough for any time


@cython.final
cdef class JsonDecoder(RecordDecoder):
    """Decodes columns of JSON texts by a program of ``compile_json``, into memory of ``pool``.

    With the numbers of their schemas, records of those that :meth:`refuse` names are bad.

    ``closed``: a record is bad if it has a field without a column, unless this is null, or has nothing but nulls in it;
    also with a number in quotes, and with one without a fraction that its double would change. ``partial``: fields
    of the record itself without a column are passed over all the same.

    ``raw``: a text takes a value of any type, as it is written.

    ``loose``: as ``from_json`` of Spark reads them. Texts are ``raw``. A timestamp in UTC may lack its zone and its
    time, or have digits below its unit, which are cut off; as a number it is in seconds.
    """
    cdef Walk walk
    cdef tuple program
    cdef dict reasons
    cdef bint loose
    cdef bint raw

    def __cinit__(self, program, Pool pool not None, *, bint loose=False, bint closed=False, bint raw=False,
                  bint partial=False):
        self.program = tuple(program)
        self.reasons = {}
        self.loose = loose
        self.raw = raw or loose
        self.walk.closed = closed
        self.walk.partial = partial
        self.open(&self.walk.out, &self.walk.record, &self.walk, run, self.program, pool)
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
        if self.walk.steps is not NULL:
            for i in range(self.walk.out.count):
                free(self.walk.steps[i].names)
                free(self.walk.steps[i].slots)
        free(self.walk.steps)
        free(self.walk.scratch)
        free(self.walk.refused)

    cdef tuple steps(self):
        return self.program

    cdef str reason(self, Reason fault):
        return self.reasons[self.walk.record.id] if fault == REFUSED else RecordDecoder.reason(self, fault)

    def refuse(self, int32_t id, str reason not None):
        """Report each record of the schema ``id`` as bad, for ``reason``."""
        cdef int32_t* refused = <int32_t*>realloc(self.walk.refused, (self.walk.refused_count + 1) * sizeof(int32_t))
        if refused is NULL:
            raise MemoryError()
        self.reasons[id] = reason
        refused[self.walk.refused_count] = id
        self.walk.refused = refused
        self.walk.refused_count += 1

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
            s.quotes = not self.loose and s.clock in (CLOCK_INSTANT, CLOCK_LOCAL)   # "20260801" is a date in ISO 8601
            if self.loose and s.clock == CLOCK_INSTANT:
                s.clock = CLOCK_LOOSE
                s.factor = SECONDS[step.arrow[2]]
        s.raw = self.raw
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
            if not any(byte < 0x20 or byte in b'"\\' for byte in each):   # these have an escape in JSON
                memcpy(&name.mask, b"\xff" * 8, min(8, len(text)))
            slot = hash_of(name.text, name.size) & s.last_slot
            while s.slots[slot] != EMPTY:
                slot = (slot + 1) & s.last_slot
            s.slots[slot] = i
            self.walk.scratch_size = max(self.walk.scratch_size, name.size)
        return 0
