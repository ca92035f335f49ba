"""Keys of records decoded into one column of the type of their schema."""

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from fastwire.decode.program import BadRecord, Step

from ..config.decode import KEY
from ..dataset.columnnames import ANY_NAME, NameRule
from .evolvingdecoder import Evolve, EvolvingDecoder
from .recordschemas import BrokerSchemas, Pause, RecordSchemas, Written, compiled_key


def is_of_key(bad: BadRecord) -> bool:
    """Return True for a bad key; no column of values has the name of that of the keys where there is a KeyDecoder."""
    return bad.path.partition(".")[0].removesuffix("[]") == KEY


class KeyDecoder(EvolvingDecoder):
    """Decodes keys by a program of ``read_key_program``; null ones are null.

    With ``schemas`` of a registry each key of Avro begins with the id of its own. With those of brokers it has the
    schema of a key that its record's version names, or is written by the program if that names none. The column grows
    as those of values.
    """

    def __init__(
        self,
        program: Sequence[Step],
        *,
        form: Literal["avro", "json"],
        schemas: RecordSchemas | None = None,
        evolve: Evolve = "add",
        for_table: bool = False,
        names: NameRule = ANY_NAME,
        memory: int = 64 << 20,
    ) -> None:
        super().__init__(
            program,
            form,
            memory=memory,
            evolve=evolve,
            schemas=schemas,
            find=self._written_by,
            within=KEY if form == "json" else "",
            for_table=for_table,
            names=names,
            keeps_nulls=True,
        )
        self._program_of_all = program

    @property
    def field(self) -> pa.Field:
        """The column, as it is now."""
        return self.schema.field(0) if self.form == "avro" else pa.field(KEY, pa.struct(self.schema))

    def decoded(self, keys: pa.Array, ids: memoryview | None, pause: Pause) -> tuple[pa.Array, list[BadRecord]]:
        """Return the column, with a row for each sound key and each null, and the other keys.

        ``ids`` are the numbers of the records' schemas, if brokers have them.
        """
        while True:
            field = self.field
            parts = [pa.nulls(0, field.type)]
            bad: list[BadRecord] = []
            first = 0
            while first < len(keys) and field == self.field:  # else all once more, into the columns that there are now
                decoded = self.decode(keys, first, ids)
                part = keys.slice(first, decoded.upto - first)
                parts.append(self._column(decoded.bad, pa.record_batch(decoded), part, first))
                bad += [each._replace(path=self._path(each.path)) for each in decoded.bad]
                first = decoded.upto
                if decoded.unknown is not None:
                    self.learn(decoded.unknown, pause)
            if field == self.field:
                return pa.concat_arrays(parts), bad

    def _written_by(self, id: int, pause: Pause, /) -> Written:
        assert self._schemas is not None
        found = self._schemas
        schema = found.key(id, pause) if isinstance(found, BrokerSchemas) else found.found(id, pause)
        return (self._program_of_all, ()) if schema is None else compiled_key(schema, self.form)

    def _column(self, bad: list[BadRecord], batch: pa.RecordBatch, keys: pa.Array, first: int) -> pa.Array:
        if self.form == "avro":
            return batch.column(0)
        wrong = {each.row - first for each in bad}
        nulls = keys.is_null()
        if wrong:
            nulls = nulls.take(pa.array([row for row in range(len(keys)) if row not in wrong], pa.int64()))
        return pa.StructArray.from_arrays(batch.columns, fields=[*batch.schema], mask=nulls)

    def _path(self, path: str) -> str:
        return path or KEY if self.form == "avro" else f"{KEY}.{path}".rstrip(".")
