"""Rows of chunks whose values are decoded into columns, and the dead letters of the values that do not match."""

import json
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.decode.evolution import Column, columns_of, named_as
from fastwire.decode.json.growth import crowded
from fastwire.decode.program import BadRecord, SchemaError, Step
from fastwire.reason import Reason

from ..config.decode import DELETED, KEY
from ..dataset.columnnames import ANY_NAME, NameRule
from ..dataset.levelvalues import unnameable
from ..net.schemaregistry import RegistryAwayError, UnknownSchemaError
from ..runtime.errors import DatasetMismatchError
from ..runtime.logs import get_logger
from .evolvingdecoder import Evolve, EvolvingDecoder
from .keydecoder import KeyDecoder, is_of_key
from .recordrows import DecodedRows, RecordRows, Runs
from .recordschemas import BrokerSchemas, Form, Pause, RecordSchemas, Written, compiled

_SHOWN_KEY = 64  # bytes of a bad key in the reason
MOST_SAMPLES, MOST_SAMPLE_BYTES = 10_000, 16 << 20
"""Values that are looked at for new fields at a time, and the bytes of the first ones of a topic."""
_log = get_logger("decode")


class ValueDecoder(RecordRows):
    """Decodes the values of record batches of ``system`` into ``columns``, with at most ``memory`` bytes at a time.

    The values have the format ``form``. Columns of the records have a _ before their name. ``extra`` ones are in the
    batches, and not in the files; the values of some, the ``levels``, name folders. With the ``schemas`` of a registry
    each value begins with the id of its own, and is read into the columns of ``program``; with those of brokers each
    record has a version. While they are away, ``pause`` is called between two attempts. Columns of other schemas are
    added if the columns are ``open_ended``, or (``evolve``) refused; ``for_table`` also those that make a column wider.
    With the column ``_deleted`` a null value is a row of nulls. ``keys`` makes the column of keys, by the same schemas.
    If it ``infers``, the columns are those of the dataset and, for fields that it lacks, of the values; objects at the
    places ``maps`` become maps. If it ``widens``, a column of whole numbers becomes one of doubles for a fraction, one
    of numbers or truth values becomes text for a value of another type, and a text takes values of any type. If
    they are ``registered``, the columns are those of the dataset and of the schemas of the records, of Protobuf of
    their type ``message`` ("": their only one).
    """

    prefix = "_"

    def __init__(
        self,
        program: Sequence[Step],
        columns: Sequence[str],
        system: str,
        *,
        form: Form = "avro",
        on_error: Literal["dead_letter", "stop"] = "dead_letter",
        evolve: Evolve = "add",
        open_ended: bool = False,
        extra: Sequence[str] = (),
        levels: Sequence[str] = (),
        memory: int = 64 << 20,
        schemas: RecordSchemas | None = None,
        for_table: bool = False,
        names: NameRule = ANY_NAME,
        keys: KeyDecoder | None = None,
        infers: bool = False,
        maps: Collection[str] = (),
        widens: bool = False,
        registered: bool = False,
        message: str = "",
    ) -> None:
        super().__init__(columns, system, on_error=on_error)
        self._schemas = schemas
        self._message = program[0].name or message
        self._keys = keys
        self._copied = 0  # bytes of keys and values that were pairs
        self._evolve = evolve
        self._open_ended = open_ended
        self._extra = extra
        self._levels = levels
        self._for_table = for_table
        self._infers = infers
        self._maps = maps
        self._widens = widens
        self._follows = infers or registered
        self._own = self.columns if self._follows else ()
        self._refused: set[str] = set()  # fields that were logged
        given = {each.name for each in columns_of(program)}
        self._keeps_nulls = DELETED in columns and DELETED not in given
        self._values = EvolvingDecoder(
            program,
            form,
            memory=memory,
            evolve=evolve,
            schemas=schemas,
            find=self._written_by,
            lands=self._lands,
            levels=levels,
            for_table=for_table,
            names=names,
            taken={*columns, *extra} - given,
            keeps_nulls=self._keeps_nulls,
            infers=infers,
            maps=maps,
            widens=widens,
        )
        self._take_columns()
        own = (name.removeprefix("_") for name in self._columns if name not in (DELETED, *self._values.schema.names))
        versions = BrokerSchemas.needed if isinstance(schemas, BrokerSchemas) else ()
        self.needed = frozenset({"value", *own, *versions, *self._places.number_columns})

    @property
    def infers(self) -> bool:
        """True if the columns come from the values."""
        return self._infers

    @property
    def types(self) -> tuple[Column, ...]:
        """The decoded columns of the files."""
        keys = () if self._keys is None else self._keys.columns
        return tuple(column for column in (*self._values.columns, *keys) if column.name in self.columns)

    @property
    def level_types(self) -> tuple[Column, ...]:
        """The decoded columns that name folders, in the order of the folders."""
        types = {column.name: column for column in self._values.columns}
        return tuple(types[name] for name in self._levels)

    @property
    def fields(self) -> "dict[str, pa.Field[Any]]":
        """The decoded columns of the files, by name."""
        fields = [*self._values.schema, *([] if self._keys is None else [self._keys.field])]
        return {field.name: field for field in fields if field.name in self.columns}

    @property
    def texts(self) -> dict[str, str]:
        """The types of the decoded columns of the files, by name."""
        return {name: f"{field.type}{'' if field.nullable else ' not null'}" for name, field in self.fields.items()}

    @property
    def nbytes(self) -> int:
        """Memory of decoded columns that are not written yet, and what is kept for the next, in bytes. From any
        thread.
        """
        keys = 0 if self._keys is None else self._keys.nbytes
        return self._values.nbytes + self._copied + keys

    def trim(self) -> None:
        """Give memory back that no columns occupy, and ask again for schemas that the registry did not have."""
        if self._schemas is not None:
            self._schemas.forget()
        for part in self._parts:
            part.trim()

    def decode(self, batch: pa.RecordBatch, runs: Runs, pause: Pause) -> Iterator[DecodedRows]:
        """Yield the rows of ``batch``, whose logs are ``runs``, in their order.

        Raises LogRefusedError for a value that does not match, if that is to stop its log.
        """
        if not isinstance(self._schemas, BrokerSchemas):
            yield from self._decoded(batch, batch, None, runs, pause)
            return
        opened, ids, different, self._copied = self._schemas.numbered(batch, pause)
        try:
            for part in self._parts:
                part.prepare(different, pause)
            self._take_columns()
            yield from self._decoded(batch, opened, ids, runs, pause)
        finally:
            self._copied = 0

    def _decoded(
        self, batch: pa.RecordBatch, opened: pa.RecordBatch, ids: memoryview | None, runs: Runs, pause: Pause
    ) -> Iterator[DecodedRows]:
        """Yield the rows of ``batch``, whose keys and values are those of ``opened``, by schemas of these ``ids``."""
        values = opened.column("value")
        first = 0
        while first < batch.num_rows:
            decoded = self._values.decode(values, first, ids)
            if self._infers and self._infer(values, decoded.bad):
                continue  # into the new columns
            bad = [_named(one, values, self._maps) for one in decoded.bad] if self._infers else list(decoded.bad)
            wrong = [one.row for one in bad]
            rows = self._joined(pa.record_batch(decoded), _without(opened, first, decoded.upto, wrong))
            if no := misnamed(rows, self._levels, _left(first, decoded.upto, wrong), table=self._for_table):
                rows = rows.take(pa.array(sorted(set(range(rows.num_rows)) - no.keys()), pa.int64()))
                bad = sorted([*bad, *no.values()])
                wrong = [one.row for one in bad]
            if self._keys is not None:
                rows, found = self._with_keys(rows, _left(first, decoded.upto, wrong), ids, pause)
                bad = sorted([*bad, *found])
                wrong = [one.row for one in bad]
            dead_letters = [self.dead_letter_of(one, batch, runs, opened) for one in bad]
            left = _left(first, decoded.upto, wrong)
            held = decoded.nbytes + self._copied
            yield DecodedRows(rows, _cut(runs, first, decoded.upto, wrong), left, dead_letters, held)
            first = decoded.upto
            if decoded.unknown is not None:
                self._values.learn(decoded.unknown, pause)
                self._take_columns()

    def adopt(self, types: Sequence[Column]) -> None:
        """Add the columns of the dataset, so that all values are read into the same ones.

        Raises SchemaError if they conflict, or differ and must not.
        """
        if not self._follows and self._evolve != "add":
            mine, held = ({each.plain for each in which} for which in (named_as(self.types, types), types))
            if types and (differing := mine ^ held):
                names = ", ".join(sorted({column.name for column in differing}))
                raise SchemaError("", f"the dataset and the schema differ in these columns: {names}")
        of_keys = [] if self._keys is None else [column for column in types if column.name == KEY]
        of_values = [column for column in types if column not in of_keys]
        own = {*self._own} if self._follows else {*self.columns} - {*self._values.schema.names}
        if other := next((each for each in of_values if each.name in own), None):
            raise SchemaError(other.name, f"the dataset has {other}, and not the column of the records")
        if self._follows:
            self._values.take(of_values)
            self.columns = self._own
        else:
            self._values.adopt(of_values)
        if self._keys is not None and of_keys:
            self._keys.adopt(of_keys)
        self._take_columns()

    def begin(self, topic: str) -> None:
        """Add the columns of a topic's newest schema.

        Raises UnknownSchemaError without one, RegistryAwayError, DatasetMismatchError if it cannot have columns.
        """
        assert self._schemas is not None, "there is a registry, or brokers have the schemas"
        try:
            self._values.take_schema(self._schemas.newest(topic), _raise_away)
        except SchemaError as exc:
            raise DatasetMismatchError(f"the newest schema of {topic} cannot have columns: {exc}") from None
        self._take_columns()

    def begin_if_known(self, topic: str) -> None:
        """Add the columns of a topic's newest schema, if there is one and it can have columns.

        Raises RegistryAwayError. What is wrong with a schema, the records tell that have it.
        """
        with suppress(UnknownSchemaError, DatasetMismatchError):
            self.begin(topic)

    def infer(self, values: Iterable[bytes], wider: Mapping[str, str] = MappingProxyType({})) -> Sequence[str]:
        """Add columns for the fields of ``values``. Return the fields that cannot have one, each with the reason.

        The columns at the paths ``wider`` get these types.

        Raises DatasetMismatchError if there are no columns yet, and would be too many.
        """
        try:
            found = self._values.infer(values, {*self._own, DELETED, KEY}, wider)
        except SchemaError as exc:
            raise DatasetMismatchError(
                f"no columns can be inferred from the values: {exc}. Name its place in decode.maps (commands: --map), "
                "or write the schema"
            ) from None
        if found.added:
            _log.info("columns for fields of values are added, or wider", columns=[str(each) for each in found.added])
            self._take_columns()
        return found.refused

    def keep(self, names: Collection[str]) -> None:
        """Decode the inferred columns ``names`` alone from now on, and pass over other fields."""
        self._values.keep(names)
        self.columns = self._own
        self._take_columns()

    def _infer(self, values: pa.Array, bad: Sequence[BadRecord]) -> bool:
        """Add columns for the fields of bad values that lack one, and widen those that do not take their values.

        Return False if there are none.
        """
        wider = self._values.wider(bad) if self._widens else {}
        rows = [one.row for one in bad if one.reason == Reason.NEW_COLUMNS]
        if not (rows or wider) or (self._evolve != "add" and self._values.columns):
            return False
        before = self._values.columns
        refused = self.infer((values[row].as_py() for row in rows[:MOST_SAMPLES]), wider)
        if new := [each for each in refused if each not in self._refused]:
            self._refused.update(new)
            _log.warning("fields of values cannot have columns, and the values become dead letters", fields=new)
        return self._values.columns != before

    @property
    def _parts(self) -> Sequence[EvolvingDecoder]:
        return [self._values] if self._keys is None else [self._values, self._keys]

    def _take_columns(self) -> None:
        """Take the columns that the decoder of values has now."""
        names = self._values.schema.names
        if self._open_ended:
            self.columns += tuple(name for name in names if self._lands(name) and name not in self.columns)
        self._columns = (*self.columns, *(name for name in self._extra if name not in self.columns))

    def _lands(self, name: str) -> bool:
        return name in self.columns or (self._open_ended and name not in self._levels)

    def _written_by(self, id: int, pause: Pause, /) -> Written:
        assert self._schemas is not None
        return compiled(self._schemas.found(id, pause), self._values.form, self._message)

    def _with_keys(
        self, rows: pa.RecordBatch, numbers: Sequence[int], ids: memoryview | None, pause: Pause
    ) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the rows with decoded keys, without those whose keys are bad. Row i has the number ``numbers[i]``."""
        assert self._keys is not None
        keys, bad = self._keys.decoded(rows.column(KEY), None if ids is None else _chosen(ids, numbers), pause)
        if bad:
            wrong = {each.row for each in bad}
            rows = rows.take(pa.array([i for i in range(rows.num_rows) if i not in wrong], pa.int64()))
        rows = rows.set_column(rows.schema.get_field_index(KEY), self._keys.field, keys)
        return rows, [each._replace(row=numbers[each.row]) for each in bad]

    def _joined(self, values: pa.RecordBatch, own: pa.RecordBatch) -> pa.RecordBatch:
        arrays, fields = [], []
        for name in self._columns:
            if name == DELETED and self._keeps_nulls:
                arrays.append(own.column("value").is_null())
                fields.append(pa.field(name, pa.bool_(), nullable=False))
                continue
            source, label = (values, name) if name in self._values.schema.names else (own, name.removeprefix("_"))
            arrays.append(source.column(label))
            fields.append(source.schema.field(label).with_name(name))
        if not arrays:
            return own.select([])  # from no arrays Arrow makes no rows
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def dead_letter_of(
        self, bad: BadRecord, batch: pa.RecordBatch, runs: Runs, opened: pa.RecordBatch | None = None
    ) -> DeadLetter:
        """See ``RecordRows.letter_of``."""
        reason = str(bad)
        if self._keys is not None and is_of_key(bad) and bad.reason != Reason.NEW_COLUMNS:
            key = (opened or batch).column(KEY.removeprefix("_"))[bad.row].as_py()
            reason = bad.told(f"the key 0x{key[:_SHOWN_KEY].hex()}")  # the dead letter has no other place for it
        stops = self._evolve == "strict" and bad.reason.startswith(Reason.NEW_COLUMNS)
        return self.letter(bad.row, reason, batch, runs, "does not match the schema", stops=stops)


def _raise_away(why: str, seconds: float) -> None:
    raise RegistryAwayError(why)


def _named(bad: BadRecord, values: pa.Array, maps: Collection[str]) -> BadRecord:
    """Return ``bad`` with the name of the field that has no column, if that is its reason.

    Of a value with too many fields it is the object that has the most of them.
    """
    if bad.reason != Reason.NEW_COLUMNS:
        return bad
    value = values[bad.row].as_py()
    if place := crowded(value, maps):
        return bad._replace(path=place)
    name = json.JSONDecoder().raw_decode(value[bad.offset :].decode(errors="replace"))[0]
    return bad._replace(path=f"{bad.path}.{name}" if bad.path else name)


def _without(batch: pa.RecordBatch, first: int, upto: int, wrong: Sequence[int]) -> pa.RecordBatch:
    """Return the rows from ``first`` to before ``upto`` without the ``wrong`` ones."""
    if not wrong:
        return batch.slice(first, upto - first)
    return batch.take(pa.array(_left(first, upto, wrong), pa.int64()))


def _left(first: int, upto: int, wrong: Sequence[int]) -> Sequence[int]:
    """Return the numbers of these rows."""
    out = set(wrong)
    return [row for row in range(first, upto) if row not in out] if out else range(first, upto)


def _chosen(ids: memoryview, rows: Sequence[int]) -> memoryview:
    """Return the numbers of the schemas of these rows."""
    if isinstance(rows, range):
        return ids[rows.start : rows.stop]
    return memoryview(array("i", (ids[row] for row in rows)))


def misnamed(
    rows: pa.RecordBatch, levels: Sequence[str], numbers: Sequence[int], *, table: bool
) -> dict[int, BadRecord]:
    """Return the rows with a value that cannot name a folder. Row i has the number ``numbers[i]``."""
    found: dict[int, BadRecord] = {}
    for level in levels:
        for row, reason in unnameable(rows.column(level), level, table=table).items():
            found.setdefault(row, BadRecord(numbers[row], reason, level, 0))
    return found


def _cut(runs: Runs, first: int, upto: int, wrong: Sequence[int]) -> Runs:
    """Return the runs of the rows from ``first`` to before ``upto`` without the ``wrong`` ones, numbered from 0.

    ``wrong`` is in ascending order.
    """
    kept = []
    for log, start, rows in runs:
        low, high = max(start, first), min(start + rows, upto)
        if low < high and (count := high - low - bisect_left(wrong, high) + bisect_left(wrong, low)):
            kept.append((log, count))
    starts = accumulate((count for _, count in kept), initial=0)
    return [(log, start, count) for (log, count), start in zip(kept, starts, strict=False)]
