"""Decodes Protobuf values with the compiled runtime and a descriptor set, and maps fields to Arrow columns."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from .schema import Decoded, Reader, SchemaError

__all__ = ["ProtobufValues"]

Convert = Callable[[Any], Any]
Typed = tuple[pa.DataType, Convert]

_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),  # the types to which Spark maps unsigned numbers
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_MOST_NESTED = 100  # the deepest nesting of messages that the runtime reads
_CONFLUENT_BYTES = 5  # a zero byte and the id of the schema
_MISFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)  # a well-formed value does not fit its column
_WRAPPED = "google.protobuf."
_WRAPPERS = {f"{_WRAPPED}{name}Value" for name in (
    "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes",
)}  # fmt: skip


class ProtobufValues:
    """Decoder of values of one message type of a descriptor set (imports included). Raises SchemaError.

    With ``ids``, values begin with a zero byte, the id of a schema, which must be one of ``ids``, and message indexes.
    """

    def __init__(self, descriptors: bytes, message: str, ids: Sequence[int] | None = None) -> None:
        self._descriptors = descriptors
        self._name = message
        self._ids = ids
        self.record  # noqa: B018 - rejects an unusable schema here and not on an executor

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufValues, (self._descriptors, self._name, self._ids)

    @cached_property
    def _message(self) -> Descriptor:
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(self._descriptors)
        except DecodeError:
            raise SchemaError("is no descriptor set: protoc --include_imports --descriptor_set_out=FILE") from None
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files.file:
                pool.Add(file)
            return pool.FindMessageTypeByName(self._name)
        except KeyError:
            known = [f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type]
            raise SchemaError(f'holds no message "{self._name}": there are {", ".join(known[:20]) or "none"}') from None
        except TypeError as exc:
            raise SchemaError(f"is not whole (--include_imports): {exc}") from None

    @cached_property
    def _typed(self) -> Typed:
        return _message_type(self._message, ())

    @property
    def record(self) -> pa.StructType:
        """The Arrow type of the records."""
        return self._typed[0]

    def compile(self) -> Reader:
        """See ``Decoder``."""
        make, convert = message_factory.GetMessageClass(self._message), self._typed[1]
        names, ids, record = _names_by_indexes(self._message.file), self._ids, self.record

        def message(value: bytes | None) -> dict[str, Any]:
            if value is None:
                raise ValueError("NoValue")
            if ids is not None:
                value = _unframed(value, ids)
                indexes, size = _message_indexes(value)
                name = names.get(indexes)
                if name != self._name:
                    raise ValueError(f"the value is of message {name or list(indexes)}, not {self._name}")
                value = value[size:]
            found: dict[str, Any] = convert(make.FromString(value))
            return found

        def read(values: pa.Array) -> Iterator[Decoded]:
            found, bad = {}, {}
            for row, value in enumerate(values.to_pylist()):
                try:
                    found[row] = message(value)
                except Exception as exc:  # any error that the library raises for a value concerns only this value
                    bad[row] = _words(exc)
            try:
                records = pa.array(found.values(), record)
            except _MISFIT:
                for row in [*found]:
                    try:
                        pa.array([found[row]], record)
                    except _MISFIT as exc:
                        del found[row]
                        bad[row] = _words(exc)
                records = pa.array(found.values(), record)
            yield Decoded(pa.RecordBatch.from_struct_array(records), 0, len(values), sorted(bad.items()))

        return read


def _unframed(value: bytes, ids: Sequence[int]) -> bytes:
    if len(value) < _CONFLUENT_BYTES or value[0]:
        raise ValueError("NoSchemaId")
    found = int.from_bytes(value[1:_CONFLUENT_BYTES], "big")
    if found not in ids:
        raise ValueError(f"UnknownSchema {found} (the job is for {' or '.join(map(str, ids))})")
    return value[_CONFLUENT_BYTES:]


def _words(exc: Exception) -> str:
    text = " ".join(str(exc).split())[:200]
    return text if type(exc) is ValueError and text else f"{type(exc).__name__}: {text}"


def _message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the message indexes that follow the schema id in Confluent's framing, and their size in bytes.

    They are a count and as many indexes, from the outside in, all zigzag varints; a single 0 stands for the path 0.
    """
    count, at = _zigzag(value, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_NESTED:
        raise ValueError(f"the value begins with {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and the position after it."""
    found = shift = 0
    for place in range(at, min(len(value), at + 5)):
        found |= (value[place] & 0x7F) << shift
        shift += 7
        if value[place] < 0x80:
            return (found >> 1) ^ -(found & 1), place + 1
    raise ValueError("the value ends within its message indexes, or has none")


def _names_by_indexes(file: FileDescriptor) -> dict[tuple[int, ...], str]:
    """Return the messages of ``file`` by their message indexes.

    Clients disagree on whether the hidden message of a map field counts. It is not in the text of a schema, so it does
    not count here, but it is found where no other message has its path.
    """
    names: dict[tuple[int, ...], str] = {}
    for with_maps in (False, True):
        waiting: list[tuple[tuple[int, ...], list[Descriptor]]] = [((), list(file.message_types_by_name.values()))]
        while waiting:
            path, messages = waiting.pop()
            shown = [each for each in messages if with_maps or not each.GetOptions().map_entry]
            for index, message in enumerate(shown):
                names.setdefault((*path, index), message.full_name)
                waiting.append(((*path, index), list(message.nested_types)))
    return names


def _message_type(message: Descriptor, inside: tuple[str, ...]) -> Typed:
    if message.full_name in inside:
        raise SchemaError(f"{message.full_name} contains itself: no column can hold that")
    if message.full_name == f"{_WRAPPED}Timestamp":
        # Microseconds, also outside the range of a datetime.
        return pa.timestamp("us", "UTC"), lambda value: value.seconds * 1_000_000 + value.nanos // 1000
    inside = (*inside, message.full_name)
    if message.full_name in _WRAPPERS:
        found, convert = _single(message.fields_by_name["value"], inside)
        return found, lambda value: convert(value.value)
    parts = [(field.name, _field(field, inside)) for field in message.fields]
    if not parts:
        raise SchemaError(f"{message.full_name} has no fields")
    getters = [(name, getter) for name, (_, getter) in parts]
    struct = pa.struct([pa.field(name, found) for name, (found, _) in parts])
    return struct, lambda value: {name: getter(value) for name, getter in getters}


def _field(field: FieldDescriptor, inside: tuple[str, ...]) -> Typed:
    """Return the column of a field, and the function that reads it from its message."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, key_convert = _single(entry.fields_by_name["key"], inside)
        held, held_convert = _single(entry.fields_by_name["value"], inside)

        def pairs(message: Message) -> list[tuple[Any, Any]]:
            values = getattr(message, name)
            return [(key_convert(each), held_convert(values[each])) for each in values]

        return pa.map_(key, held), pairs
    found, convert = _single(field, inside)
    if field.is_repeated:
        return pa.list_(found), lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return found, lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return found, lambda message: convert(getattr(message, name))


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> Typed:
    """Return the column of a single value of a field, and its conversion."""
    if field.message_type is not None:
        return _message_type(field.message_type, inside)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number, str(number))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary(), _same
    return _SCALARS[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value
