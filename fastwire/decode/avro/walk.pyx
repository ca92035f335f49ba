"""The decoder of Avro: programs of schemas as scripts of the walker, and the records that do not match them."""

cimport cython
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free

from fastwire.decode.avro.read cimport (
    OP_ABSENT,
    OP_ARRAY,
    OP_BOOL,
    OP_BYTES,
    OP_DECIMAL,
    OP_DEFAULT,
    OP_DOUBLE,
    OP_EMPTY,
    OP_ENUM,
    OP_FIXED,
    OP_FIXED_DECIMAL,
    OP_FLOAT,
    OP_INT,
    OP_NULL,
    OP_RECORD,
    OP_TEXT,
    OP_UNION,
    Operation,
    Script,
    Step,
    Symbol,
    Walk,
    run,
)
from fastwire.decode.decoded cimport (
    BLOCK,
    BOOLEAN,
    BRANCH,
    DECIMAL,
    LENGTH,
    NO_HEADER,
    NO_VALUE,
    NULL_VALUE,
    RANGE,
    SYMBOL,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    UTF8,
    VARINT,
    names_of,
)
from fastwire.decode.scripted cimport ScriptDecoder, script_at
from fastwire.wire.pool cimport Pool

__all__ = ["REASONS", "AvroDecoder"]

REASONS = names_of((
    TRUNCATED, VARINT, RANGE, BOOLEAN, LENGTH, BRANCH, SYMBOL, UTF8, DECIMAL, BLOCK, TRAILING, NO_VALUE,
    TOO_LARGE, NULL_VALUE, NO_HEADER,
))
"""Stable names of the reasons why a record is bad; ``AvroDecoder.refuse`` has its own."""

cdef dict OPERATIONS = {
    "null": OP_NULL,
    "bool": OP_BOOL,
    "int": OP_INT,
    "float": OP_FLOAT,
    "double": OP_DOUBLE,
    "text": OP_TEXT,
    "bytes": OP_BYTES,
    "fixed": OP_FIXED,
    "enum": OP_ENUM,
    "decimal": OP_DECIMAL,
    "fixed decimal": OP_FIXED_DECIMAL,
    "record": OP_RECORD,
    "array": OP_ARRAY,
    "union": OP_UNION,
    "absent": OP_ABSENT,
    "default": OP_DEFAULT,
    "empty": OP_EMPTY,
}

cdef dict SIZES = {"bool": 1, "float": 4, "double": 8}


@cython.final
cdef class AvroDecoder(ScriptDecoder):
    """Decodes columns of Avro records into the columns of ``program``, in memory of ``pool``.

    Without ``framed`` all records are read by ``written``, or by the program itself. With it, each record begins with
    the id of its schema (spec: Confluent wire format), or ``decode`` is given the ids: :meth:`add` and :meth:`refuse`
    make ids known.
    """
    cdef Walk walk

    def __cinit__(self, program, Pool pool not None, *, bint framed=False, written=None):
        self.open(&self.walk.out, &self.walk.record, &self.walk, run, program, pool)
        self.open_scripts(&self.walk.known, sizeof(Script), framed)
        if not framed:
            self.add(0, program if written is None else written)
            self.walk.known.current = 0
            self.walk.steps = (<Script*>self.walk.known.scripts).steps

    def __dealloc__(self):
        cdef int i
        for i in range(self.walk.known.count):
            drop_steps(<Script*>script_at(&self.walk.known, i))

    def add(self, int32_t id, program):
        """Read records of the schema ``id`` by ``program``, whose steps name the columns of this decoder."""
        cdef Script* script
        cdef int number
        program = tuple(program)
        script = <Script*>self.new_script(id, program, "")
        script.steps = <Step*>calloc(len(program), sizeof(Step))
        if script.steps is NULL:
            raise MemoryError()
        script.count = len(program)
        for number, step in enumerate(program):
            self.set_step(&script.steps[number], step, number)
        script.head.refused = False

    cdef int set_step(self, Step* s, step, int number) except -1:
        cdef int i
        s.operation = <Operation><int>OPERATIONS[step.operation]
        s.column = number if step.column is None else step.column
        s.null_branch = step.null_branch
        s.lone = step.lone
        s.optional = step.lone or step.null_branch >= 0
        s.low = step.low
        s.high = step.high
        s.size = SIZES.get(step.operation, step.size)
        s.digits = step.digits
        s.first = step.first
        s.children = step.children
        s.count = len(step.symbols) or len(step.branches)
        s.symbols = <Symbol*>calloc(len(step.symbols) + 1, sizeof(Symbol))
        s.branches = <int*>calloc(len(step.branches) + 1, sizeof(int))
        if s.symbols is NULL or s.branches is NULL:
            raise MemoryError()
        for i, symbol in enumerate(step.symbols):
            if symbol is not None:
                s.symbols[i] = self.kept(symbol)
        for i, place in enumerate(step.branches):
            s.branches[i] = place
        if step.operation == "default":
            s.value = self.kept(step.default)
        return 0

    cdef Symbol kept(self, bytes text):
        self.texts.append(text)
        return Symbol(text=<const uint8_t*><const char*>text, size=len(text))


cdef void drop_steps(Script* script) noexcept:
    cdef int i
    if script.steps is not NULL:
        for i in range(script.count):
            free(script.steps[i].symbols)
            free(script.steps[i].branches)
    free(script.steps)
