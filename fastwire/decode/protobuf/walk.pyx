"""The decoder of Protobuf: programs of messages as scripts of the walker, and the records that do not match them."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from fastwire.decode.decoded cimport (
    DEEP,
    MISSING,
    NO_HEADER,
    NO_VALUE,
    OTHER,
    RANGE,
    REPLACED,
    TAG,
    TOO_LARGE,
    TRUNCATED,
    UTF8,
    VARINT,
    names_of,
)
from fastwire.decode.protobuf.read cimport run
from fastwire.decode.protobuf.script cimport (
    MOST_PATH,
    NO_STEP,
    WIRE_BOOL,
    WIRE_BYTES,
    WIRE_DOUBLE,
    WIRE_ENCODED,
    WIRE_ENTRY,
    WIRE_ENUM,
    WIRE_FIXED32,
    WIRE_FIXED64,
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
    WIRE_STRING,
    WIRE_TIMESTAMP,
    WIRE_UINT32,
    WIRE_UINT64,
    Script,
    Step,
    Text,
    Walk,
    Wire,
)
from fastwire.decode.protobuf.token cimport KIND_32, KIND_64, KIND_GROUP, KIND_SIZED, KIND_VARINT, NO_KIND, Kind
from fastwire.decode.scripted cimport ScriptDecoder, script_at
from fastwire.wire.pool cimport Pool

__all__ = ["MOST_INDEXES", "REASONS", "ProtobufDecoder"]

MOST_INDEXES = MOST_PATH
"""Levels of nested message types that the message indexes of a framed record may have."""

REASONS = names_of((
    TRUNCATED, VARINT, TAG, UTF8, RANGE, MISSING, DEEP, NO_VALUE, TOO_LARGE, NO_HEADER, OTHER, REPLACED,
))
"""Stable names of the reasons why a record is bad; ``ProtobufDecoder.refuse`` has its own."""

# By the type of a value: how it is read, and the wire type of its tag.
cdef dict WIRES = {
    "": (WIRE_NONE, KIND_VARINT),
    "bool": (WIRE_BOOL, KIND_VARINT),
    "int32": (WIRE_INT32, KIND_VARINT),
    "int64": (WIRE_INT64, KIND_VARINT),
    "uint32": (WIRE_UINT32, KIND_VARINT),
    "uint64": (WIRE_UINT64, KIND_VARINT),
    "sint32": (WIRE_SINT32, KIND_VARINT),
    "sint64": (WIRE_SINT64, KIND_VARINT),
    "enum": (WIRE_ENUM, KIND_VARINT),
    "fixed32": (WIRE_FIXED32, KIND_32),
    "fixed64": (WIRE_FIXED64, KIND_64),
    "sfixed32": (WIRE_SFIXED32, KIND_32),
    "sfixed64": (WIRE_SFIXED64, KIND_64),
    "float": (WIRE_FLOAT, KIND_32),
    "double": (WIRE_DOUBLE, KIND_64),
    "string": (WIRE_STRING, KIND_SIZED),
    "bytes": (WIRE_BYTES, KIND_SIZED),
    "message": (WIRE_MESSAGE, KIND_SIZED),
    "entry": (WIRE_ENTRY, KIND_SIZED),
    "list": (WIRE_LIST, KIND_SIZED),
    "timestamp": (WIRE_TIMESTAMP, KIND_SIZED),
    "encoded": (WIRE_ENCODED, KIND_SIZED),
}

cdef enum:
    LEAST_NEAR = 64              # field numbers that always have slots


@cython.final
cdef class ProtobufDecoder(ScriptDecoder):
    """Decodes columns of Protobuf messages into the columns of ``program``, in memory of ``pool``.

    Without ``framed`` all records are read by ``written``, or by the program itself. With it, each record begins with
    the id of its schema and the indexes of its message type in it (spec: Confluent wire format): :meth:`add` and
    :meth:`refuse` make ids known.
    """
    cdef Walk walk

    def __cinit__(self, program, Pool pool not None, *, bint framed=False, written=None):
        program = tuple(program)
        self.open(&self.walk.out, &self.walk.record, &self.walk, run, program, pool)
        self.set_weights(program)
        self.open_scripts(&self.walk.known, sizeof(Script), framed)
        if not framed:
            self.add(0, program if written is None else written)
            self.walk.known.current = 0
            self.walk.steps = (<Script*>self.walk.known.scripts).steps
            self.walk.chosen = (<Script*>self.walk.known.scripts).chosen

    def __dealloc__(self):
        cdef int i
        for i in range(self.walk.known.count):
            drop_steps(<Script*>script_at(&self.walk.known, i))
        free(self.walk.weights)

    cdef int set_weights(self, tuple program) except -1:
        cdef int number
        self.walk.weights = <int*>calloc(len(program), sizeof(int))
        if self.walk.weights is NULL:
            raise MemoryError()
        for number in range(len(program) - 1, -1, -1):  # children come after their parents
            step = program[number]
            self.walk.weights[number] = 1
            for child in range(step.first, step.first + step.children):
                self.walk.weights[number] += self.walk.weights[child]
        return 0

    def add(self, int32_t id, program, paths=()):
        """Read records of the schema ``id`` by ``program``, whose steps name the columns of this decoder.

        ``paths`` has up to two paths of message indexes, of at most ``MOST_INDEXES`` levels, that name the message.
        """
        cdef Script* script
        cdef int number, oneofs, place
        program = tuple(program)
        script = <Script*>self.new_script(id, program, "")
        script.steps = <Step*>calloc(len(program), sizeof(Step))
        script.chosen = <int*>calloc(len(program) + 1, sizeof(int))
        if script.steps is NULL or script.chosen is NULL:
            raise MemoryError()
        script.count = len(program)
        for number in range(script.count + 1):
            script.chosen[number] = -1
        oneofs = 0
        for number, step in enumerate(program):
            self.set_step(&script.steps[number], step, number)
        for number, step in enumerate(program):
            children = program[step.first : step.first + step.children]
            if script.steps[number].wire in (WIRE_MESSAGE, WIRE_ENTRY):
                self.set_fields(&script.steps[number], step.first, children)
                for place, child in enumerate(children, step.first):
                    script.steps[place].oneof = -1 if child.oneof < 0 else oneofs + child.oneof
                    if child.oneof >= 0:
                        script.steps[place].plain = NO_KIND
                oneofs += 1 + max((child.oneof for child in children), default=-1)
        for place, path in enumerate(paths[:2]):
            if len(path) > MOST_PATH:
                raise ValueError(f"{len(path)} message indexes")
            script.paths_size[place] = len(path)
            for number, index in enumerate(path):
                script.paths[place][number] = index
            script.paths_count = place + 1
        script.head.refused = False

    cdef int set_step(self, Step* s, step, int number) except -1:
        cdef int i
        wire, kind = WIRES[step.wire]
        s.wire = <Wire><int>wire
        s.kind = <Kind><int>kind
        s.tagged = KIND_GROUP if step.grouped else KIND_SIZED if step.wrapped else s.kind
        s.column = number if step.column is None else step.column
        s.first = step.first
        s.children = step.children
        s.wrapped = step.wrapped
        s.closed = step.closed
        s.packed = s.tagged != KIND_SIZED and s.tagged != KIND_GROUP
        s.oneof = -1
        s.plain = NO_KIND if s.column < 0 or s.wrapped or s.wire >= WIRE_ENUM or s.wire == WIRE_NONE else s.tagged
        s.has_default = step.default is not None
        s.zero = s.has_default and not any(step.default) and step.wire not in ("enum", "message", "")
        if s.has_default:
            s.default = self.kept(step.default)
        s.symbols_count = len(step.symbols)
        s.symbols = <Text*>calloc(s.symbols_count + 1, sizeof(Text))
        s.numbers = <int64_t*>calloc(s.symbols_count + 1, sizeof(int64_t))
        if s.symbols is NULL or s.numbers is NULL:
            raise MemoryError()
        for i, symbol in enumerate(step.symbols):
            s.symbols[i] = self.kept(symbol)
            s.numbers[i] = step.numbers[i]
        return 0

    cdef int set_fields(self, Step* s, int first, tuple children) except -1:
        """Set the tables from field numbers to steps: slots for small numbers, and an ordered list of the others."""
        cdef int i
        places = {child.number: first + i for i, child in enumerate(children) if child.number}
        s.near = LEAST_NEAR + 4 * len(places)
        far = sorted(number for number in places if number >= s.near)
        s.far_count = len(far)
        s.slots = <int32_t*>calloc(s.near, sizeof(int32_t))
        s.far_numbers = <uint32_t*>calloc(s.far_count + 1, sizeof(uint32_t))
        s.far_steps = <int32_t*>calloc(s.far_count + 1, sizeof(int32_t))
        if s.slots is NULL or s.far_numbers is NULL or s.far_steps is NULL:
            raise MemoryError()
        for i in range(<int>s.near):
            s.slots[i] = places.get(i, NO_STEP)
        for i, number in enumerate(far):
            s.far_numbers[i] = number
            s.far_steps[i] = places[number]
        return 0

    cdef Text kept(self, bytes text):
        self.texts.append(text)
        return Text(data=<const uint8_t*><const char*>text, size=len(text))


cdef void drop_steps(Script* script) noexcept:
    cdef int i
    if script.steps is not NULL:
        for i in range(script.count):
            free(script.steps[i].symbols)
            free(script.steps[i].numbers)
            free(script.steps[i].slots)
            free(script.steps[i].far_numbers)
            free(script.steps[i].far_steps)
    free(script.steps)
    free(script.chosen)
