"""The entrance: a file of row groups, written one after the other."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema
from fastwire.parquet.column cimport PageWriter
from fastwire.parquet.nested cimport parts_of
from fastwire.parquet.schema cimport SHAPE_LEAF, Node, fields_of, same_shape

from fastwire import __version__
from fastwire.parquet.errors import UnwritableError
from fastwire.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, binary, integer, many, struct

__all__ = ["ParquetWriter"]

_MAGIC = b"PAR1"
_VERSION = 2  # of the format: logical types as they are today
_ROOT = b"schema"


@cython.final
cdef class ParquetWriter:
    """Writes one Parquet file.

    ``schema`` is any object with ``__arrow_c_schema__`` whose type is a struct, one field a column; ``write`` takes the
    file as objects of type bytes, in order, and may raise. Small ones are merged up to ``buffer_bytes``. ``columns``
    says of top-level columns by name what is known: (role, statistics), a role as in ``fastwire.columns.schema``.
    Columns that are not named are plain, without statistics beyond the number of nulls. ``metadata`` are keys and
    values of the footer.

    For one thread. After an exception the file is void. Raises UnwritableError for a type that does not fit, ValueError
    for an unknown ``codec``.
    """

    cdef readonly int64_t rows
    """Rows written so far."""

    cdef list fields
    cdef list leaves
    cdef list known
    cdef list groups
    cdef list metadata
    cdef PageWriter pages
    cdef object write_

    def __init__(
        self, schema, write, *, str codec="zstd", level=None, columns=None, metadata=None, int64_t buffer_bytes=0
    ):
        cdef ArrowSchema* root
        cdef Node node
        capsule = schema.__arrow_c_schema__()
        root = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
        self.fields = fields_of(root)
        self.pages = PageWriter(write, codec, level, buffer_bytes)
        self.leaves = []
        self.known = []
        for node in self.fields:
            found = leaves_of(node)
            self.leaves += found
            self.known += [(columns or {}).get(node.name, ("plain", False))] * len(found)
        self.groups = []
        self.metadata = [
            struct((1, BINARY, binary(key)), (2, BINARY, binary(value))) for key, value in (metadata or {}).items()
        ]
        self.pages.put(_MAGIC)

    def write_row_group(self, batches):
        """Write ``batches`` (objects with ``__arrow_c_array__`` of the schema of the file) as one row group.

        Rows keep their order. Raises UnwritableError for a batch of another schema, a null in a field that takes none,
        and a value that its type in Parquet cannot hold; nothing is written for batches without rows.
        """
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        cdef Node node
        cdef int64_t rows = 0, began = self.pages.position, i, k, raw = 0
        cdef list held = []
        cdef list parts
        chunks = []
        for batch in batches:
            capsules = batch.__arrow_c_array__()
            held.append(capsules)
            schema = <ArrowSchema*>PyCapsule_GetPointer(capsules[0], "arrow_schema")
            array = <ArrowArray*>PyCapsule_GetPointer(capsules[1], "arrow_array")
            if schema.n_children != len(self.fields):
                raise UnwritableError(f"a batch has {schema.n_children} columns, and the file {len(self.fields)}")
            for i in range(schema.n_children):
                node = self.fields[i]
                if not same_shape(node, schema.children[i]):
                    raise UnwritableError(f"the column {node.name} of a batch has another type than that of the file")
            rows += array.length
        if not rows:
            return
        for i, node in enumerate(self.fields):
            parts = []
            for capsules in held:
                array = <ArrowArray*>PyCapsule_GetPointer(capsules[1], "arrow_array")
                if array.length:
                    parts.append(parts_of(node, array, i))
            # A leaf at a time: the levels of large lists take much.
            for k in range(len(parts[0])):
                role, stats = self.known[len(chunks)]
                chunks.append(self.pages.chunk(self.leaves[len(chunks)], [each[k] for each in parts], role, stats))
                raw += self.pages.raw
                for each in parts:
                    each[k] = None
        self.pages.rest()
        self.rows += rows
        self.groups.append((chunks, raw, rows, began, self.pages.position - began))

    def close(self):
        """Write the footer. No call follows."""
        cdef Node node
        groups = self.indexed()
        elements = [struct((3, I32, integer(0)), (4, BINARY, binary(_ROOT)), (5, I32, integer(len(self.fields))))]
        for node in self.fields:
            elements += node.elements
        order = struct((1, STRUCT, struct()))
        fields = [
            (1, I32, integer(_VERSION)), (2, LIST, many(STRUCT, elements)), (3, I64, integer(self.rows)),
            (4, LIST, many(STRUCT, groups)),
        ]
        if self.metadata:
            fields.append((5, LIST, many(STRUCT, self.metadata)))
        fields.append((6, BINARY, binary(f"fastwire version {__version__}".encode())))
        fields.append((7, LIST, many(STRUCT, [order] * len(self.leaves))))
        footer = struct(*fields)
        self.pages.put(footer)
        self.pages.put(len(footer).to_bytes(4, "little") + _MAGIC)
        self.pages.flush()

    cdef list indexed(self):
        """Write the indexes of the pages, if any column chunk has more than one, and return the encoded RowGroups."""
        every = [chunk for chunks, *_ in self.groups for chunk in chunks]
        # Readers want the places of pages for all column chunks of a file, or for none.
        wanted = any([len(index) > 1 for _, _, index in every])
        places = [[] for _ in every]
        for first, name in ((6, "column_index"), (4, "offset_index")) if wanted else ():
            for fields, (_, _, index) in zip(places, every):
                encoded = getattr(index, name)()
                if encoded is not None:
                    fields[:0] = [(first, I64, integer(self.pages.position)), (first + 1, I32, integer(len(encoded)))]
                    self.pages.put(encoded)
        columns = iter([
            struct((2, I64, integer(began)), (3, STRUCT, metadata), *fields)
            for (began, metadata, _), fields in zip(every, places)
        ])
        return [
            struct(
                (1, LIST, many(STRUCT, [next(columns) for _ in chunks])), (2, I64, integer(raw)),
                (3, I64, integer(rows)), (5, I64, integer(began)), (6, I64, integer(size)),
                *([(7, I16, integer(number))] if number < 1 << 15 else []),
            )
            for number, (chunks, raw, rows, began, size) in enumerate(self.groups)
        ]


cdef list leaves_of(Node node):
    cdef Node child
    if node.shape == SHAPE_LEAF:
        return [node]
    return [leaf for child in node.children for leaf in leaves_of(child)]
