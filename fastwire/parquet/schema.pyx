"""Arrow types as Parquet's: physical type, logical type, repetition (parquet-format, LogicalTypes.md)."""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, strcmp

from fastwire.columns.arrow cimport NULLABLE, ArrowSchema

from fastwire.parquet.errors import UnwritableError
from fastwire.parquet.thrift import BINARY, FALSE, I8, I32, STRUCT, TRUE, binary, integer, struct

cdef enum:
    UTF8 = 0                     # converted types
    MAP = 1
    LIST_TYPE = 3
    DECIMAL = 5
    DATE = 6
    TIME_MILLIS = 7
    TIME_MICROS = 8
    TIMESTAMP_MILLIS = 9
    TIMESTAMP_MICROS = 10
    UINT_8 = 11
    INT_8 = 15
    MOST_DEPTH = 100             # of nested fields

_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_SECONDS = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}
_UNITS = {"m": 1, "u": 2, "n": 3}  # of logical times
_INTEGERS = {"c": (1, True), "C": (1, False), "s": (2, True), "S": (2, False), "i": (4, True), "I": (4, False),
             "l": (8, True), "L": (8, False)}


@cython.final
cdef class Node:

    def __init__(self, str name, bytes format, bint nullable, tuple path):
        self.name = name
        self.format = format
        self.nullable = nullable
        self.path = path
        self.children = []
        self.elements = []
        self.factor = 1


cdef list fields_of(ArrowSchema* schema):
    """Return the nodes of the fields of a record batch. Raises UnwritableError for a type that does not fit."""
    cdef int64_t i
    if strcmp(schema.format, b"+s"):
        raise UnwritableError(f"the schema of a file is a struct, not {schema.format.decode()}")
    return [node_of(schema.children[i], (), 0, 0, None) for i in range(schema.n_children)]


cdef bint same_shape(Node node, ArrowSchema* schema):
    """Return whether an array with ``schema`` fits a node."""
    cdef int64_t i
    if node.format != type_text(schema):
        return False
    if node.shape == SHAPE_LEAF:
        return True
    if schema.n_children != len(node.children):
        return False
    for i in range(schema.n_children):
        if not same_shape(<Node>node.children[i], schema.children[i]):
            return False
    return True


cdef bytes type_text(ArrowSchema* schema):
    """The format of a field; of a dictionary both, that of its values behind that of its indexes."""
    if schema.dictionary is NULL:
        return schema.format
    return schema.format + b":" + schema.dictionary.format


cdef dict metadata_of(ArrowSchema* schema):
    """Return the metadata of a field: native 32-bit counts and sizes, as the C data interface has them."""
    cdef const char* at = schema.metadata
    cdef int32_t pairs = 0, size = 0
    found = {}
    if at is NULL:
        return found
    memcpy(&pairs, at, 4)
    at += 4
    for _ in range(pairs):
        parts = []
        for _ in range(2):
            memcpy(&size, at, 4)
            parts.append(at[4:4 + size])
            at += 4 + size
        found[parts[0]] = parts[1]
    return found


cdef Node node_of(ArrowSchema* schema, tuple above, int definition, int repetition, object name):
    cdef Node node
    cdef Node child
    cdef int64_t i
    cdef bint nullable = (schema.flags & NULLABLE) != 0
    cdef str called = name if name is not None else (schema.name.decode() if schema.name is not NULL else "")
    path = (*above, called)
    if len(path) > MOST_DEPTH:
        raise UnwritableError(f"the column {'.'.join(path[:4])}… nests more than {MOST_DEPTH} levels deep")
    node = Node(called, type_text(schema), nullable, path)
    node.above = definition
    node.definition = definition + nullable
    node.repetition = repetition
    metadata = metadata_of(schema)
    number = metadata.get(b"PARQUET:field_id")
    field_id = int(number) if number is not None else None
    repeated = _OPTIONAL if nullable else _REQUIRED
    format = schema.format.decode()
    if format == "+s":
        if not schema.n_children:
            raise UnwritableError(f"the column {'.'.join(path)} is a struct without fields")
        node.shape = SHAPE_STRUCT
        node.elements.append(element(called, repeated, children=schema.n_children, field_id=field_id))
        for i in range(schema.n_children):
            child = node_of(schema.children[i], path, node.definition, repetition, None)
            node.children.append(child)
            node.elements += child.elements
    elif format in ("+l", "+L", "+m") or format.startswith("+w:"):
        node.shape = SHAPE_LARGE_LIST if format == "+L" else SHAPE_LIST
        if format.startswith("+w:"):
            node.shape = SHAPE_FIXED_LIST
            node.items = int(format[3:])
        is_map = format == "+m"
        group = "key_value" if is_map else "list"
        logical = struct((2, STRUCT, struct())) if is_map else struct((3, STRUCT, struct()))
        node.elements.append(
            element(called, repeated, children=1, converted=MAP if is_map else LIST_TYPE, logical=logical,
                    field_id=field_id)
        )
        inside = (*path, group)
        if is_map:
            node.elements.append(element(group, _REPEATED, children=2))
            child = node_of_entries(schema.children[0], inside, node.definition + 1, repetition + 1)
        else:
            node.elements.append(element(group, _REPEATED, children=1))
            child = node_of(schema.children[0], inside, node.definition + 1, repetition + 1, "element")
        node.children.append(child)
        node.elements += child.elements
    else:
        node.shape = SHAPE_LEAF
        leaf(node, schema, format, metadata, repeated, field_id)
    return node


cdef Node node_of_entries(ArrowSchema* schema, tuple above, int definition, int repetition):
    """The key and value of a map: a struct that Parquet has no group of its own for."""
    cdef Node node = Node("", type_text(schema), False, above)
    cdef Node child
    cdef int i
    node.shape = SHAPE_STRUCT
    node.above = node.definition = definition
    node.repetition = repetition
    for i, name in enumerate(("key", "value")):
        child = node_of(schema.children[i], above, definition, repetition, name)
        node.children.append(child)
        node.elements += child.elements
    return node


cdef void leaf(Node node, ArrowSchema* schema, str format, dict metadata, int repeated, object field_id) except *:
    """Set what a column of values is."""
    converted = logical = None
    precision = scale = None
    if schema.dictionary is not NULL:
        if format not in _INTEGERS:
            raise unwritable(node)
        node.index, node.index_signed = _INTEGERS[format]
        format = schema.dictionary.format.decode()
    node.signed = True
    if format == "n":
        node.read, node.physical, node.order = READ_NOTHING, INT32, ORDER_NONE
        logical = struct((11, STRUCT, struct()))
        node.definition = node.above + 1
        repeated = _OPTIONAL
    elif format == "b":
        node.read, node.physical, node.order = READ_BITS, BOOLEAN, ORDER_BOOL
    elif format in _INTEGERS:
        node.width, node.signed = _INTEGERS[format]
        node.physical = INT64 if node.width == 8 else INT32
        node.read = READ_NARROW if node.width < 4 else READ_PLAIN
        node.order = ORDER_SIGNED if node.signed else ORDER_UNSIGNED
        if node.width < 4 or not node.signed:
            bits = node.width * 8
            converted = (INT_8 if node.signed else UINT_8) + (8, 16, 32, 64).index(bits)
            logical = struct((10, STRUCT, struct((1, I8, bytes((bits,))), (2, TRUE if node.signed else FALSE, b""))))
    elif format in ("f", "g"):
        node.width = 4 if format == "f" else 8
        node.read, node.order = READ_PLAIN, ORDER_FLOAT
        node.physical = FLOAT if format == "f" else DOUBLE
    elif format in ("z", "Z", "u", "U"):
        node.read = READ_LARGE if format in ("Z", "U") else READ_BINARY
        node.physical, node.order = BYTE_ARRAY, ORDER_BYTES
        if format in ("u", "U"):
            node.text = True
            converted, logical = UTF8, struct((1, STRUCT, struct()))
    elif format.startswith("w:"):
        node.width = node.length = int(format[2:])
        if not node.width:
            raise unwritable(node)
        node.read, node.physical, node.order = READ_PLAIN, FIXED, ORDER_BYTES
        if metadata.get(b"ARROW:extension:name") == b"arrow.uuid":
            logical = struct((14, STRUCT, struct()))
    elif format.startswith("d:"):
        precision, scale, *bits = (int(each) for each in format[2:].split(","))
        node.width = (bits[0] if bits else 128) // 8
        if scale < 0 or scale > precision:
            raise unwritable(node)
        node.length = decimal_bytes(precision)
        node.read, node.physical, node.order = READ_REVERSED, FIXED, ORDER_DECIMAL
        converted = DECIMAL
        logical = struct((5, STRUCT, struct((1, I32, integer(scale)), (2, I32, integer(precision)))))
    elif format in ("tdD", "tdm"):
        node.width = 4 if format == "tdD" else 8
        node.read = READ_PLAIN if format == "tdD" else READ_SCALED
        node.factor = 1 if format == "tdD" else -86_400_000
        node.physical, node.order = INT32, ORDER_SIGNED
        converted, logical = DATE, struct((6, STRUCT, struct()))
    elif format in ("tts", "ttm", "ttu", "ttn"):
        unit = format[2:3]
        node.width = 4 if unit in "sm" else 8
        node.read = READ_SCALED if unit == "s" else READ_PLAIN
        node.factor = 1_000 if unit == "s" else 1
        node.physical = INT32 if unit in "sm" else INT64
        node.order = ORDER_SIGNED
        unit = "m" if unit == "s" else unit
        converted = {"m": TIME_MILLIS, "u": TIME_MICROS}.get(unit)
        logical = struct((7, STRUCT, time_type(unit, False)))
    elif format[:3] in ("tss", "tsm", "tsu"):
        # Microseconds for all: Spark reads no others with the same certainty.
        node.width = 8
        node.factor = 1_000_000 // _SECONDS[format[2:3]]
        node.read = READ_PLAIN if node.factor == 1 else READ_SCALED
        node.physical, node.order = INT64, ORDER_SIGNED
        utc = format[4:] != ""
        converted = TIMESTAMP_MICROS if utc else None
        logical = struct((8, STRUCT, time_type("u", utc)))
    else:
        raise unwritable(node)
    node.elements.append(
        element(
            node.name, repeated, physical=node.physical, length=node.length if node.physical == FIXED else None,
            converted=converted, logical=logical, precision=precision, scale=scale, field_id=field_id,
        )
    )


cdef object unwritable(Node node):
    return UnwritableError(
        f"the column {'.'.join(node.path)} has the Arrow type {node.format.decode()!r}, which these Parquet files do "
        "not hold"
    )


def decimal_bytes(int precision):
    """Return the least number of bytes that hold a decimal of ``precision`` digits."""
    size = 1
    while 10**precision > 1 << (8 * size - 1):
        size += 1
    return size


cdef bytes time_type(str unit, bint utc):
    return struct((1, TRUE if utc else FALSE, b""), (2, STRUCT, struct((_UNITS[unit], STRUCT, struct()))))


def element(
    str name, int repeated, children=None, physical=None, length=None, converted=None, logical=None, precision=None,
    scale=None, field_id=None,
):
    """Encode a SchemaElement."""
    fields = []
    if physical is not None:
        fields.append((1, I32, integer(physical)))
    if length is not None:
        fields.append((2, I32, integer(length)))
    fields += [(3, I32, integer(repeated)), (4, BINARY, binary(name.encode()))]
    if children is not None:
        fields.append((5, I32, integer(children)))
    if converted is not None:
        fields.append((6, I32, integer(converted)))
    if scale is not None:
        fields += [(7, I32, integer(scale)), (8, I32, integer(precision))]
    if field_id is not None:
        fields.append((9, I32, integer(field_id)))
    if logical is not None:
        fields.append((10, STRUCT, logical))
    return struct(*fields)
