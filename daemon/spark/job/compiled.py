"""Decodes Avro, JSON and Protobuf with the compiled decoders of the daemon, into the types that Spark has."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.avro.walk import AvroDecoder
from fastwire.decode.branches import numbered
from fastwire.decode.json.walk import JsonDecoder
from fastwire.decode.program import SchemaError as ProgramError
from fastwire.decode.program import Step
from fastwire.decode.protobuf.descriptors import indexes_of, message_of
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.decode.protobuf.walk import ProtobufDecoder
from fastwire.reason import Reason
from fastwire.wire.pool import Pool

from .schema import Decoded, Reader, SchemaError

_MEMORY = 256 << 20
"""Bytes for the columns of one task. A single record may take a fourth of them."""


class JsonValues:
    """Decoder of JSON objects by ``program`` into columns of the type ``record``."""

    def __init__(self, program: Sequence[Step], record: pa.StructType) -> None:
        self.record = record
        self._program = program

    def compile(self) -> Reader:
        """See ``Decoder``."""
        return _reader(JsonDecoder(self._program, Pool(_MEMORY), loose=True), self.record)


class _BinaryValues(ABC):
    """Decoder of binary values by ``program``; with ``ids``, each begins with the id of its schema, one of ``ids``.

    Raises SchemaError for a type that Spark lacks.
    """

    def __init__(self, program: Sequence[Step], ids: Sequence[int] | None) -> None:
        self._program = program
        self._ids = ids
        self.record: pa.StructType = _in_spark(pa.struct(list(pa.schema(self._decoder()))), "")

    @abstractmethod
    def _decoder(self) -> AvroDecoder | ProtobufDecoder:
        """Return a decoder that knows the ids."""

    def compile(self) -> Reader:
        """See ``Decoder``."""
        return _reader(self._decoder(), self.record, self._ids or ())


class AvroValues(_BinaryValues):
    """Decoder of Avro records without a header; with ``ids``, each begins with the id of its schema, one of ``ids``.

    With ``by_number`` the columns of unions are ``member0``, ``member1`` …, as in tables of older versions. Raises
    SchemaError for a schema whose values are not records, or have a type that Spark lacks.
    """

    def __init__(self, schema: str, ids: Sequence[int] | None = None, *, by_number: bool = False) -> None:
        try:
            program = compile_avro(schema)
        except ProgramError as exc:
            raise SchemaError(str(exc)) from None
        super().__init__(numbered(program) if by_number else program, ids)

    def _decoder(self) -> AvroDecoder:
        decoder = AvroDecoder(self._program, Pool(_MEMORY), framed=self._ids is not None)
        for id in self._ids or ():
            decoder.add(id, self._program)
        return decoder


class ProtobufValues(_BinaryValues):
    """Decoder of messages of one type of a descriptor set, whose name may be "" if there is one alone.

    With ``ids``, each begins with a zero byte, the id of a schema, one of ``ids``, and the message indexes of the type.
    Raises SchemaError for a set without the type.
    """

    def __init__(self, descriptors: bytes, message: str, ids: Sequence[int] | None = None) -> None:
        try:
            found = message_of(descriptors, message)
            self._paths = () if ids is None else indexes_of(found.file, found.full_name)
            super().__init__(compile_protobuf(found), ids)
        except ProgramError as exc:
            raise SchemaError(str(exc)) from None

    def _decoder(self) -> ProtobufDecoder:
        decoder = ProtobufDecoder(self._program, Pool(_MEMORY), framed=self._ids is not None)
        for id in self._ids or ():
            decoder.add(id, self._program, self._paths)
        return decoder


def _reader(
    decoder: AvroDecoder | JsonDecoder | ProtobufDecoder, record: pa.StructType, ids: Sequence[int] = ()
) -> Reader:
    schema = pa.schema(list(record))

    def read(values: pa.Array) -> Iterator[Decoded]:
        first = 0
        while first < len(values):
            decoded = decoder.decode(values, first)
            bad = [(one.row, str(one)) for one in decoded.bad]
            # Memory is shared, but for types that Spark lacks.
            yield Decoded(pa.record_batch(decoded).cast(schema), first, decoded.upto, bad)
            first = decoded.upto
            if decoded.unknown is not None:
                assert not isinstance(decoder, JsonDecoder)
                known = " or ".join(map(str, ids))
                decoder.refuse(decoded.unknown, f"{Reason.UNKNOWN_SCHEMA} {decoded.unknown} (the job is for {known})")

    return read


def _in_spark(kind: pa.DataType, path: str) -> pa.DataType:
    """Return the type of Spark's that holds the values of a type, with nulls. Raises SchemaError."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _in_spark(each.type, f"{path}.{each.name}")) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_spark(kind.key_type, path), _in_spark(kind.item_type, path))
    if pa.types.is_list(kind):
        return pa.list_(_in_spark(kind.value_type, path))
    if pa.types.is_time(kind):
        raise SchemaError(f"{path[1:]}: Spark has no type for {kind}")
    if pa.types.is_timestamp(kind):
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us", kind.tz)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind
