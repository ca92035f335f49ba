"""Keys of records decoded into one column of the type of their schema."""

from collections.abc import Callable
from typing import Literal

import pyarrow as pa

from fastwire.decode.avro import compile_avro_field
from fastwire.decode.avrowalk import AvroDecoder
from fastwire.decode.jsonwalk import JsonDecoder
from fastwire.decode.program import BadRecord, SchemaError, Step, deletable
from fastwire.decode.resolution import resolve
from fastwire.wire.pool import Pool

from ..config.decode import KEY
from ..net.schemaregistry import RegistrySchema, UnknownSchemaError

__all__ = ["KeyDecoder", "is_of_key"]

Find = Callable[[int], RegistrySchema]
"""Returns the schema of an id. Raises UnknownSchemaError; waits for a registry that is away."""


def is_of_key(bad: BadRecord) -> bool:
    """Return True for a bad key; no field of values has the name of the column where there is a KeyDecoder."""
    return bad.path.partition(".")[0].removesuffix("[]") == KEY


class KeyDecoder:
    """Decodes keys by a program of ``read_key_program``; null ones are null.

    If they are ``framed``, each begins with the id of its schema, and is read into the column.
    """

    def __init__(
        self, program: tuple[Step, ...], *, form: Literal["avro", "json"], framed: bool = False, memory: int = 64 << 20
    ) -> None:
        self._program = deletable(program)
        self._form = form
        self._framed = framed
        self._pool = Pool(memory)
        self._refused = False
        self._decoder = self._made()
        columns = pa.schema(self._decoder)
        self.field: pa.Field = columns.field(0) if form == "avro" else pa.field(KEY, pa.struct(columns))
        """The column."""

    @property
    def nbytes(self) -> int:
        """Memory of decoded keys that are not written yet, and what is kept for the next, in bytes. From any thread."""
        return self._pool.used + self._pool.kept

    def trim(self) -> None:
        """Give memory back that no column occupies, and ask again for schemas that the registry did not have."""
        self._pool.trim()
        if self._refused:
            self._decoder, self._refused = self._made(), False

    def decode(self, keys: pa.Array, find: Find) -> tuple[pa.Array, list[BadRecord]]:
        """Return the column, with a row for each sound key and each null, and the other keys."""
        parts = [pa.nulls(0, self.field.type)]
        bad: list[BadRecord] = []
        first = 0
        while first < len(keys):
            decoded = self._decoder.decode(keys, first)
            parts.append(
                self._column(decoded.bad, pa.record_batch(decoded), keys.slice(first, decoded.upto - first), first)
            )
            bad += [each._replace(path=self._path(each.path)) for each in decoded.bad]
            first = decoded.upto
            if decoded.unknown is not None:
                self._learn(decoded.unknown, find)
        return pa.concat_arrays(parts), bad

    def _made(self) -> AvroDecoder | JsonDecoder:
        decoder: AvroDecoder | JsonDecoder
        if self._form == "json":
            decoder = JsonDecoder(self._program, self._pool)
        else:
            decoder = AvroDecoder(self._program, self._pool, framed=self._framed)
        decoder.keep_nulls()
        return decoder

    def _column(self, bad: list[BadRecord], batch: pa.RecordBatch, keys: pa.Array, first: int) -> pa.Array:
        if self._form == "avro":
            return batch.column(0)
        wrong = {each.row - first for each in bad}
        nulls = keys.is_null()
        if wrong:
            nulls = nulls.take(pa.array([row for row in range(len(keys)) if row not in wrong], pa.int64()))
        return pa.StructArray.from_arrays(batch.columns, fields=[*batch.schema], mask=nulls)

    def _path(self, path: str) -> str:
        return path or KEY if self._form == "avro" else f"{KEY}.{path}".rstrip(".")

    def _learn(self, id: int, find: Find) -> None:
        assert isinstance(self._decoder, AvroDecoder)
        try:
            schema = find(id)
            if schema.kind != "AVRO":
                raise SchemaError("", f"it is a schema of {schema.kind}, not of AVRO")
            written = compile_avro_field(KEY, schema.text, schema.references)
            self._decoder.add(id, resolve(written, self._program))
        except (UnknownSchemaError, SchemaError) as exc:
            why = "UnknownSchema" if isinstance(exc, UnknownSchemaError) else "IncompatibleSchema"
            self._decoder.refuse(id, f"{why} {id} ({exc})")
            self._refused = True
