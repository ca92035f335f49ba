"""The schemas of records: of a registry by the ids that values begin with, or of brokers by the versions of records."""

from abc import ABC, abstractmethod
from array import array
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import pyarrow as pa

from fastwire.decode.avro.schema import compile_avro, compile_avro_field
from fastwire.decode.json.schema import compile_json
from fastwire.decode.pairs import Part, split_pairs
from fastwire.decode.program import SchemaError, Step
from fastwire.decode.protobuf.descriptors import message_of, registered_message
from fastwire.decode.protobuf.schema import compile_protobuf

from ..config.decode import KEY, DecodeConfig
from ..net.backoff import Backoff
from ..net.schemaregistry import (
    RegistryAwayError,
    RegistrySchema,
    SchemaRegistry,
    TopicSchemas,
    UnknownSchemaError,
    registry_of,
)
from ..runtime.logs import get_logger
from .schemaversions import SchemaVersions

Pause = Callable[[str, float], None]
"""Waits some seconds for the reason given. Raises SinkFailedError if the wait is interrupted."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0

NO_PAIR = -1
"""Number instead of that of a schema, for a record that should be a pair of a key and a value."""

Form = Literal["avro", "json", "protobuf"]
Written = tuple[Sequence[Step], Sequence[Sequence[int]]]
"""The program of a schema, and of Protobuf the message indexes of the message."""
_log = get_logger("decode")


class RecordSchemas(ABC):
    """Schemas by the numbers that decoders know them by."""

    @abstractmethod
    def schema(self, id: int) -> RegistrySchema:
        """Return a schema. Raises UnknownSchemaError, or RegistryAwayError."""

    @abstractmethod
    def newest(self, topic: str) -> int:
        """Return the number of a topic's newest schema. Raises UnknownSchemaError, or RegistryAwayError."""

    @abstractmethod
    def name(self, id: int) -> str:
        """Return a schema as text for people."""

    @abstractmethod
    def forget(self) -> None:
        """Ask again for schemas that were unknown."""

    def found(self, id: int, pause: Pause) -> RegistrySchema:
        """Return a schema; calls ``pause`` while the registry is away, which may last. Raises UnknownSchemaError."""
        backoff = Backoff(first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S)
        while True:
            try:
                return self.schema(id)
            except RegistryAwayError as exc:
                again_s = backoff.failed(_log, "the schema registry is away", exc, schema=self.name(id))
                pause(f"the schema registry is away: {exc}", again_s)


class RegisteredSchemas(RecordSchemas):
    """The schemas of a registry; their numbers are its ids."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def schema(self, id: int) -> RegistrySchema:
        """See the base."""
        return self._registry.schema(id)

    def newest(self, topic: str) -> int:
        """See the base: that of the subject for the values of a topic, as clients name it unless told otherwise."""
        return self._registry.newest(f"{topic}-value")

    def name(self, id: int) -> str:
        """See the base."""
        return str(id)

    def forget(self) -> None:
        """Do nothing: an unknown id is asked for each time."""


class BrokerSchemas(RecordSchemas):
    """The schemas of brokers, numbered as they come."""

    needed = SchemaVersions.needed

    def __init__(self, topics: TopicSchemas) -> None:
        self._topics = topics
        self._versions = SchemaVersions()
        self._known: dict[int, RegistrySchema] = {}
        self._unknown: dict[int, str] = {}

    def schema(self, id: int) -> RegistrySchema:
        """See the base."""
        if id in self._unknown:
            raise UnknownSchemaError(self._unknown[id])
        if id not in self._known:
            topic, version = self._versions.key(id)
            try:
                if version is None:
                    raise UnknownSchemaError("its producer has sent it without a schema")
                self._known[id] = self._topics.schema(topic, version)
            except UnknownSchemaError as exc:
                self._unknown[id] = str(exc)
                raise
        return self._known[id]

    def newest(self, topic: str) -> int:
        """See the base."""
        return self._versions.number(topic, self._topics.newest(topic))

    def key(self, id: int, pause: Pause) -> RegistrySchema | None:
        """Return the schema of keys, as :meth:`found` that of values; None if the records' producer has named none."""
        return None if self._versions.key(id)[1] is None else self.found(id, pause).key

    def name(self, id: int) -> str:
        """See the base."""
        return self._versions.name(id)

    def forget(self) -> None:
        """See the base."""
        self._unknown.clear()

    def numbered(self, batch: pa.RecordBatch, pause: Pause) -> tuple[pa.RecordBatch, memoryview, Iterable[int], int]:
        """Return the batch, with keys and values apart, the number of the schema of each row, and the different ones.

        The last part is the memory of keys and values that were copied for it, in bytes. A row that should be a pair
        and is not has the number ``NO_PAIR``.
        """
        numbers, different = self._versions.of(batch)
        pairs = [id for id in different if self._is_pair(id, pause)]
        if not pairs:
            return batch, numbers, different, 0
        import pyarrow.compute as pc  # takes as long as the rest of pyarrow

        ids = pa.Array.from_buffers(pa.int32(), batch.num_rows, [None, pa.py_buffer(numbers)])
        chosen = pc.is_in(ids, value_set=pa.array(pairs, pa.int32()))
        column = batch.column("value")
        marks = memoryview(chosen.cast(pa.uint8()).buffers()[1]).cast("B")
        keys, values, bad = split_pairs(column, marks[: batch.num_rows])
        batch = batch.set_column(batch.schema.get_field_index("value"), batch.schema.field("value"), _array(values))
        if "key" in batch.schema.names:
            mine = pc.if_else(pc.and_(chosen, column.is_valid()), _array(keys), batch.column("key"))
            batch = batch.set_column(batch.schema.get_field_index("key"), batch.schema.field("key"), mine)
        if bad:
            changed = array("i", numbers)
            for row in bad:
                changed[row] = NO_PAIR
            numbers = memoryview(changed)
        return batch, numbers, different, keys.nbytes + values.nbytes

    def _is_pair(self, id: int, pause: Pause) -> bool:
        try:
            return self.found(id, pause).paired
        except UnknownSchemaError:
            return False


def schemas_of(decode: DecodeConfig, topics: TopicSchemas | None) -> RecordSchemas | None:
    """Return the schemas by which records are decoded, for brokers ``topics``; None if all have those of the files.

    Raises ConfigError for the registry's TLS files.
    """
    if topics is not None:
        return BrokerSchemas(topics)
    if decode.registry is None or decode.by_brokers:
        return None
    return RegisteredSchemas(registry_of(decode.registry))


def compiled(schema: RegistrySchema, form: Form, message: str) -> Written:
    """Return the program of a schema of values; ``message`` is the type of those of Protobuf, "" for the schema's own.

    Raises SchemaError.
    """
    _check_kind(schema, form)
    if form == "json":
        return compile_json(schema.text), ()
    if form == "avro":
        return compile_avro(schema.text, schema.references, fieldless=True), ()
    if schema.message:
        message = message or schema.message
        if schema.message != message:
            raise SchemaError("", f"its values are messages of {schema.message}, not of {message}")
        return compile_protobuf(message_of(b64decode(schema.text), message)), ()
    imports = dict(zip(schema.names, schema.references, strict=True))
    found, paths = registered_message(schema.text, imports, message)
    return compile_protobuf(found), paths


def compiled_key(schema: RegistrySchema, form: Form) -> Written:
    """Return the program of a schema of keys, as ``read_key_program`` that of a file. Raises SchemaError."""
    _check_kind(schema, form)
    if form == "json":
        return compile_json(schema.text), ()
    return compile_avro_field(KEY, schema.text, schema.references), ()


def _check_kind(schema: RegistrySchema, form: Form) -> None:
    if schema.kind != form.upper():
        raise SchemaError("", f"it is a schema of {schema.kind}, not of {form.upper()}")


def _array(part: Part) -> pa.Array:
    buffers = [pa.py_buffer(each) for each in (part.validity, part.offsets, part.data)]
    return pa.Array.from_buffers(pa.binary(), len(part.offsets) // 4 - 1, buffers)
