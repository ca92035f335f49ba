"""The decoder of one part of the records, their values or their keys, whose columns grow with the records' schemas."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from fastwire.decode.avro.resolution import resolve
from fastwire.decode.avro.walk import AvroDecoder
from fastwire.decode.decoded import Decoded
from fastwire.decode.evolution import Column, adopted, columns_of, grown, is_textual, program_of
from fastwire.decode.json.growth import Growth, growth
from fastwire.decode.json.schema import fitted
from fastwire.decode.json.walk import JsonDecoder
from fastwire.decode.program import BadRecord, SchemaError, Step, deletable
from fastwire.decode.protobuf.walk import ProtobufDecoder
from fastwire.reason import Reason
from fastwire.wire.pool import Pool

from ..dataset.columnnames import ANY_NAME, NameRule, crossed
from ..dataset.tableschema import misfit
from ..net.schemaregistry import UnknownSchemaError
from ..runtime.logs import get_logger
from .recordschemas import NO_PAIR, BrokerSchemas, Form, Pause, RecordSchemas, Written

Evolve = Literal["add", "strict", "dead_letter"]

_log = get_logger("decode")


class Find(Protocol):
    """The programs of the records' schemas."""

    def __call__(self, id: int, pause: Pause, /) -> Written:
        """Return the program of a schema. Raises UnknownSchemaError, SchemaError."""


class EvolvingDecoder:
    """Decodes columns of bytes of the format ``form`` by ``program``, with at most ``memory`` bytes at a time.

    With ``schemas`` each record has a number of these, and is read by the program that ``find`` returns. Its columns
    are added to those that there are, or (``evolve``) such records are bad; ``for_table`` also those that would make a
    column wider, and those with columns that ``names`` refuses, or whose names are ``taken`` by the records. Only
    columns that ``lands`` is true for count, and for tables also the ``levels``. With ``within`` the fields of the
    program are those of one column of this name. If it ``keeps_nulls``, a null is a row of nulls. If it ``infers``, a
    value of JSON is bad if it has a field without a column: :meth:`infer` adds the column. Objects at the places
    ``maps`` become maps. If it ``widens``, a text takes a value of any type, and fields of several types of scalars are
    inferred as text.
    """

    def __init__(
        self,
        program: Sequence[Step],
        form: Form,
        *,
        memory: int = 64 << 20,
        evolve: Evolve = "add",
        schemas: RecordSchemas | None = None,
        find: Find | None = None,
        within: str = "",
        lands: Callable[[str], bool] = lambda name: True,
        levels: Sequence[str] = (),
        for_table: bool = False,
        names: NameRule = ANY_NAME,
        taken: Container[str] = (),
        keeps_nulls: bool = False,
        infers: bool = False,
        maps: Collection[str] = (),
        widens: bool = False,
    ) -> None:
        self.form = form
        self.given = program
        """The program of the configured schema; of JSON with all that the records' schemas have added."""
        self._begun_empty = not columns_of(program)
        self._pool = Pool(memory)
        self._evolve = evolve
        self._schemas = schemas
        self._find = find
        self._within = within
        self._lands = lands
        self._levels = levels
        self._for_table = for_table
        self._names = names
        self._taken = taken
        self._keeps_nulls = keeps_nulls
        self._infers = infers
        self._maps = maps
        self._widens = widens
        self._kept: frozenset[str] | None = None
        self._written: dict[int, Written] = {}
        self._refusals: dict[int, str] = {}
        self._admitted: set[int] = set()
        self._program: Sequence[Step] = ()
        self._read_into(deletable(program) if keeps_nulls else program)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The decoded columns."""
        return self._columns(self._program)

    @property
    def nbytes(self) -> int:
        """Memory of decoded columns that are not written yet, and what is kept for the next, in bytes. From any
        thread.
        """
        return self._pool.used + self._pool.kept

    def trim(self) -> None:
        """Give memory back that no columns occupy, and look again for schemas that there were not."""
        self._pool.trim()
        if self._refusals:
            self._refusals = {}
            self._decoder = self._made()

    def prepare(self, ids: Iterable[int], pause: Pause) -> None:
        """Learn the schemas of records in JSON, whose decoder reads the records of all schemas."""
        if self.form == "json":
            for id in sorted({*ids} - self._admitted - self._refusals.keys()):
                self.learn(id, pause)

    def decode(self, column: pa.Array, first: int, ids: memoryview | None = None) -> Decoded:
        """Return the records of ``column`` from ``first``: see ``RecordDecoder.decode``.

        A schema at which it has stopped as ``unknown`` has to be learned before the next call.
        """
        return self._decoder.decode(column, first, ids)

    def learn(self, id: int, pause: Pause) -> None:
        """Make the schema ``id`` known to the decoder, with its columns. Calls ``pause`` while a registry is away."""
        try:
            self.take_schema(id, pause)
        except (UnknownSchemaError, SchemaError) as exc:
            why = Reason.UNKNOWN_SCHEMA if isinstance(exc, UnknownSchemaError) else Reason.INCOMPATIBLE_SCHEMA
            self._refuse(id, why, str(exc))

    def take_schema(self, id: int, pause: Pause) -> None:
        """As :meth:`learn`. Raises UnknownSchemaError, SchemaError."""
        assert self._find is not None
        if id not in self._written:
            self._written[id] = self._find(id, pause)
        self._admit(id, *self._written[id])

    def wider(self, bad: Iterable[BadRecord]) -> dict[str, str]:
        """Return the types that columns must have, by path, to take the values for which these records are ``bad``.

        Whole numbers become doubles for a fraction, and numbers and truth values text for a value of another type.
        """
        held = {step.path: step.arrow for step in self._program if is_textual(step.arrow)}
        found: dict[str, str] = {}
        for one in bad:
            if one.reason == Reason.TYPE and one.path in held:
                found[one.path] = "u"
            elif one.reason == Reason.INEXACT and held.get(one.path) in ("i", "l"):
                found.setdefault(one.path, "g")
        return found

    def infer(self, values: Iterable[bytes], taken: Container[str], wider: Mapping[str, str]) -> Growth:
        """Add columns for the fields of ``values``, but for those whose names are ``taken``.

        The columns at the paths ``wider`` get these types.

        Raises SchemaError if there are no columns yet, and would be too many.
        """

        def refusal(union: Sequence[Step]) -> str:
            new = [each for each in self._columns(union) if each.name not in self.schema.names]
            if own := next((each.name for each in new if each.name in taken), None):
                return f'"{own}" is a column of the records'
            try:
                self._check_names(union)
            except SchemaError as exc:
                return str(exc)
            if not self._for_table:
                return ""
            table = self._of_table(union)
            return misfit(self._of_table(self._program), table) or crossed(table)

        found = growth(self._program, values, refusal, self._maps, unites=self._widens, wider=wider, only=self._kept)
        self._read_into(found.program)
        return found

    def take(self, types: Sequence[Column]) -> None:
        """Decode into the columns ``types`` of a dataset, and into no others."""
        if self.columns != tuple(types):
            self._admitted.clear()  # their columns may not be among these
            self._read_into(program_of(types))  # a value may lack each of them

    def keep(self, names: Collection[str]) -> None:
        """Decode these inferred columns alone from now on; other fields of the values are passed over."""
        self._kept = frozenset(names)
        kept, self._program = [each for each in self.columns if each.name in names], ()
        self._read_into(program_of(kept))

    def adopt(self, types: Sequence[Column]) -> None:
        """Add the columns of the dataset, so that all records are read into the same ones.

        Raises SchemaError if they conflict.
        """
        if self._within:
            if any(column.arrow != "+s" for column in types):
                raise SchemaError(self._within, "the column of the dataset is no struct")
            inner = tuple(each for column in types for each in column.children)
        else:
            inner = tuple(types)
        union = adopted(self._program, program_of(inner, required=self._keeps_nulls))
        if self._for_table and types and (why := misfit(types, self._of_table(union))):
            raise SchemaError("", why)
        self._read_into(union)

    def _columns(self, program: Sequence[Step]) -> tuple[Column, ...]:
        fields = columns_of(program)
        return (Column(self._within, "+s", True, fields),) if self._within else fields

    def _read_into(self, program: Sequence[Step]) -> None:
        """Decode into the columns of ``program`` from now on."""
        if program == self._program:
            return
        self._program = program
        self._decoder = self._made()
        self.schema = pa.schema(self._decoder)
        """The Arrow columns of what is decoded."""

    def _made(self) -> AvroDecoder | JsonDecoder | ProtobufDecoder:
        made = self._new()
        if self._keeps_nulls:
            made.keep_nulls()
        return made

    def _new(self) -> AvroDecoder | JsonDecoder | ProtobufDecoder:
        decoder: AvroDecoder | JsonDecoder | ProtobufDecoder
        if self.form == "json":
            decoder = JsonDecoder(
                fitted(self._program, self.given),
                self._pool,
                closed=self._infers,
                raw=self._widens,
                partial=self._kept is not None,
            )
            for id, reason in self._refusals.items():
                decoder.refuse(id, reason)
        else:
            kind = ProtobufDecoder if self.form == "protobuf" else AvroDecoder
            if self._schemas is None:
                return kind(self._program, self._pool, written=resolve(self.given, self._program))
            decoder = kind(self._program, self._pool, framed=True)
        if isinstance(self._schemas, BrokerSchemas):
            decoder.refuse(NO_PAIR, Reason.KEY_VALUE.value)
        return decoder

    def _admit(self, id: int, written: Sequence[Step], paths: Sequence[Sequence[int]]) -> None:
        """Read records of a schema from now on. Raises SchemaError if they do not fit the columns."""
        assert self._schemas is not None
        union = grown(self._program, written)
        if self._for_table and (why := misfit(self._of_table(self._program), self._of_table(union))):
            raise SchemaError("", why)
        known = {column.plain for column in self.columns}
        new = [each for each in self._columns(union) if each.plain not in known and self._lands(each.name)]
        grows = self._evolve == "add" or not known  # the first schema of a dataset without columns has them
        if new and not grows:
            self._refuse(id, Reason.NEW_COLUMNS, ", ".join(map(str, new)))
            return
        if own := next((each.name for each in new if each.name in self._taken), None):
            raise SchemaError(own, "this is a column of the records")
        if grows:
            self._check_names(union)
            resolve(written, union)  # its columns stay away if its records do
        if self.form == "json" and (grows or self._begun_empty):
            given = grown(self.given, written)
            if given != self.given:  # the dataset has the columns of its enums, and not their symbols
                self.given, self._program = given, ()
        if grows or not self._program:
            self._read_into(union)  # also for symbols of an enum, which are no columns
        if new:
            _log.info(
                "columns of a schema are added", schema=self._schemas.name(id), columns=[str(column) for column in new]
            )
        self._admitted.add(id)
        if isinstance(self._decoder, ProtobufDecoder):
            self._decoder.add(id, resolve(written, self._program), paths)
        elif isinstance(self._decoder, AvroDecoder):
            self._decoder.add(id, resolve(written, self._program))

    def _check_names(self, union: Sequence[Step]) -> None:
        """Raise SchemaError if the columns that are added have names that readers take for others."""
        before, after = (
            [each for each in self._columns(of) if self._lands(each.name)] for of in (self._program, union)
        )
        if (why := self._names.refusal(after)) and not self._names.refusal(before):
            raise SchemaError("", why)

    def _of_table(self, program: Sequence[Step]) -> list[Column]:
        """Return the columns of a program that are those of the table."""
        return [each for each in self._columns(program) if self._lands(each.name) or each.name in self._levels]

    def _refuse(self, id: int, reason: str, why: str) -> None:
        assert self._schemas is not None
        name = self._schemas.name(id)
        _log.warning("records of a schema cannot be decoded", schema=name, reason=reason, why=why)
        self._refusals[id] = f"{reason} {name} ({why})"
        self._decoder.refuse(id, self._refusals[id])
