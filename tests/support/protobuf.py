"""Message types of Protobuf by hypothesis with values of theirs, and the rows that Arrow returns for them."""

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import strategies as st

from fastwire.decode.program import BadRecord
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.decode.protobuf.walk import REASONS, ProtobufDecoder
from fastwire.wire.pool import Pool

__all__ = [
    "DAY",
    "FieldProto",
    "FileProto",
    "agree",
    "classes",
    "decode",
    "described",
    "expected",
    "field",
    "messages",
    "same",
    "shown",
]

FieldProto = descriptor_pb2.FieldDescriptorProto
FileProto = descriptor_pb2.FileDescriptorProto
_WELL_KNOWN = (timestamp_pb2, wrappers_pb2, struct_pb2, duration_pb2)
_WRAPPERS = {each.full_name for each in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()}
DAY = 86_400
_LONG = re.compile(rb"[\x80-\xff]{5}[\x00-\xff]")

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "sint32": st.integers(-(1 << 31), (1 << 31) - 1),
    "sfixed32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "sint64": st.integers(-(1 << 63), (1 << 63) - 1),
    "sfixed64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "fixed32": st.integers(0, (1 << 32) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "fixed64": st.integers(0, (1 << 64) - 1),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=20),
}
_KEYS = [name for name in _SCALARS if name not in ("float", "double", "bytes")]
_KNOWN_TYPES = ("Timestamp", "Int32Value", "UInt64Value", "BoolValue", "StringValue", "DoubleValue", "BytesValue",
                "Struct", "Duration")  # fmt: skip


def field(name: str, number: int, kind: str, **more: Any) -> Any:
    """Return a field; ``kind`` is a scalar type, or the full name of a message."""
    label = FieldProto.LABEL_OPTIONAL
    if kind in _SCALARS:
        return FieldProto(name=name, number=number, type=_type_number(kind), **{"label": label, **more})
    more = {"type": FieldProto.TYPE_MESSAGE, "label": label, **more}
    return FieldProto(name=name, number=number, type_name=f".{kind}", **more)


def _type_number(kind: str) -> Any:
    return FieldProto.Type.Value(f"TYPE_{kind.upper()}")


def described(file: Any, *others: Any) -> bytes:
    """Return a serialized descriptor set of a file, and of those of google/protobuf that it imports."""
    found = descriptor_pb2.FileDescriptorSet(file=[*others, file])
    return found.SerializeToString()


def classes(file: Any) -> Callable[[str], type[Message]]:
    """Return a function that makes the class of a message of a file."""
    pool = DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(name))


class _Drawn:
    """A file with message types that are drawn."""

    def __init__(self, draw: st.DrawFn, syntax: str, cut: bool) -> None:
        self.draw = draw
        self.known = _KNOWN_TYPES if cut else [name for name in _KNOWN_TYPES if name != "Struct"]
        self.names = count()
        self.file = FileProto(name="drawn.proto", package="t", syntax=syntax)
        self.file.dependency.extend(module.DESCRIPTOR.name for module in _WELL_KNOWN)
        self.syntax = syntax
        if syntax == "editions":
            self.file.edition = descriptor_pb2.EDITION_2023

    def message(self, depth: int) -> str:
        """Add a message type, and return its full name."""
        draw = self.draw
        message = descriptor_pb2.DescriptorProto(name=f"M{next(self.names)}")
        numbers = draw(
            st.lists(
                st.integers(1, 15) | st.integers(16, 3000) | st.integers(20_000, (1 << 29) - 1),
                min_size=1, max_size=5, unique=True,
            )
        )  # fmt: skip
        before = None
        for place, number in enumerate(numbers):
            made = self._field(message, f"f{place}", number, depth, before)
            message.field.append(made)
            before = made
        if draw(st.booleans()):
            self._choice(message)
        synthetic = [each for each in message.field if each.proto3_optional]
        for each in synthetic:  # these follow the others
            each.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{each.name}")
        self.file.message_type.append(message)
        return f"t.{message.name}"

    def _field(self, message: Any, name: str, number: int, depth: int, before: Any) -> Any:
        draw = self.draw
        kinds = [*_SCALARS, "enum", "known", "known", *(("message", "message", "map", "group") if depth else ())]
        if self.syntax != "proto2":
            kinds = [each for each in kinds if each != "group"]
        kind = draw(st.sampled_from(kinds))
        if kind == "map":
            return self._map(message, name, number, depth)
        made = self._typed(kind, name, number, depth)
        labels = ["plain", "optional", "repeated", "repeated", "oneof"]
        if self.syntax == "proto2":
            labels.append("required")
        label = draw(st.sampled_from(labels))
        if label == "required":
            made.label = FieldProto.LABEL_REQUIRED
        elif label == "repeated":
            made.label = FieldProto.LABEL_REPEATED
            if self.syntax != "editions" and made.type in _PACKABLE:
                made.options.packed = draw(st.booleans())
        elif label == "oneof":
            if before is not None and before.HasField("oneof_index") and draw(st.booleans()):
                made.oneof_index = before.oneof_index
            else:
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"o{len(message.oneof_decl)}")
        elif label == "optional" and self.syntax == "proto3":
            made.proto3_optional = True
        elif label == "optional" and self.syntax == "editions" and made.type != FieldProto.TYPE_MESSAGE:
            made.options.features.field_presence = descriptor_pb2.FeatureSet.IMPLICIT
        if self.syntax == "editions" and kind == "message" and draw(st.booleans()):
            made.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
        if self.syntax == "proto2" and label in ("plain", "optional") and kind in ("int32", "sint64", "string"):
            made.default_value = "a default" if kind == "string" else "-77"
        return made

    def _choice(self, message: Any) -> None:
        """Add a oneof of a scalar and an enum; the enum's unknown numbers set it only if it is open."""
        for place, kind in enumerate(("uint32", "enum")):
            made = self._typed(kind, f"c{place}", 4000 + place, 0)
            made.oneof_index = len(message.oneof_decl)
            message.field.append(made)
        message.oneof_decl.add(name="choice")

    def _typed(self, kind: str, name: str, number: int, depth: int) -> Any:
        if kind in _SCALARS:
            return field(name, number, kind)
        if kind == "known":
            return field(name, number, f"google.protobuf.{self.draw(st.sampled_from(self.known))}")
        if kind == "enum":
            return field(name, number, self._enum(), type=FieldProto.TYPE_ENUM)
        made = field(name, number, self.message(depth - 1))
        if kind == "group":
            made.type = FieldProto.TYPE_GROUP
        return made

    def _enum(self) -> str:
        enum = descriptor_pb2.EnumDescriptorProto(name=f"E{next(self.names)}")
        numbers = [0, *self.draw(st.lists(st.sampled_from([-5, 1, 2, 3, 70, (1 << 31) - 1]), unique=True))]
        for number in numbers:
            enum.value.add(name=f"{enum.name}_N{number}".replace("-", "m"), number=number)
        if self.syntax == "editions" and self.draw(st.booleans()):
            enum.options.features.enum_type = descriptor_pb2.FeatureSet.CLOSED
        self.file.enum_type.append(enum)
        return f"t.{enum.name}"

    def _map(self, message: Any, name: str, number: int, depth: int) -> Any:
        entry = message.nested_type.add(name=f"F{name[1:]}Entry")
        entry.options.map_entry = True
        entry.field.append(field("key", 1, self.draw(st.sampled_from(_KEYS))))
        kind = self.draw(st.sampled_from([*_SCALARS, "enum", "known", "message"]))
        entry.field.append(self._typed(kind, "value", 2, depth))
        made = field(name, number, f"t.{message.name}.{entry.name}", label=FieldProto.LABEL_REPEATED)
        return made


_PACKABLE = {_type_number(name) for name in _SCALARS if name not in ("string", "bytes")} | {FieldProto.TYPE_ENUM}


@st.composite
def messages(draw: st.DrawFn, *, cut: bool = True) -> tuple[type[Message], list[Message]]:
    """Draw a message type, and some messages of it; with ``cut`` also messages that are columns of bytes."""
    drawn = _Drawn(draw, draw(st.sampled_from(["proto2", "proto3", "editions"])), cut)
    name = drawn.message(2)
    made = classes(drawn.file)(name)
    return made, [_filled(draw, made) for _ in range(draw(st.integers(1, 4)))]


def _filled(draw: st.DrawFn, made: type[Message]) -> Message:
    message = made()
    _fill(draw, message)
    return message


def _fill(draw: st.DrawFn, message: Message) -> None:
    for each in message.DESCRIPTOR.fields:
        if not each.is_required and not draw(st.booleans()):
            continue
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            held = getattr(message, each.name)
            for _ in range(draw(st.integers(0, 3))):
                key = draw(_SCALARS[_kind(each.message_type.fields_by_name["key"])])
                value = each.message_type.fields_by_name["value"]
                if value.message_type is not None:
                    _fill(draw, held[key])
                else:
                    held[key] = _scalar(draw, value)
        elif each.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if each.message_type is not None:
                    _fill(draw, getattr(message, each.name).add())
                else:
                    getattr(message, each.name).append(_scalar(draw, each))
        elif each.message_type is not None:
            getattr(message, each.name).SetInParent()
            _fill(draw, getattr(message, each.name))
        else:
            setattr(message, each.name, _scalar(draw, each))
    for each in message.DESCRIPTOR.fields:
        if _is_closed(each) and draw(st.booleans()):
            message.MergeFromString(_unknown_number(draw, each))


def _is_closed(each: Any) -> bool:
    """Return True for a field, or a map's value, of an enum whose other numbers are unknown fields."""
    if each.message_type is not None and each.message_type.GetOptions().map_entry:
        each = each.message_type.fields_by_name["value"]
    return each.enum_type is not None and bool(each.enum_type.is_closed)


def _unknown_number(draw: st.DrawFn, each: Any) -> bytes:
    """Return a field with a number that its closed enum lacks, alone or packed with one that it has."""
    number = draw(st.sampled_from([b"\x09", b"\x7f", b"\xff" * 9 + b"\x01"]))
    if each.message_type is not None:
        return _varint(each.number << 3 | 2) + _varint(len(number) + 1) + b"\x10" + number
    if each.is_repeated and draw(st.booleans()):
        known = _varint(each.enum_type.values[0].number)
        return _varint(each.number << 3 | 2) + _varint(len(number) + len(known)) + number + known
    return _varint(each.number << 3) + number


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _kind(each: Any) -> str:
    return str(FieldProto.Type.Name(each.type)).removeprefix("TYPE_").lower()


def _scalar(draw: st.DrawFn, each: Any) -> Any:
    if each.containing_type.full_name == "google.protobuf.Timestamp":
        return draw(st.integers(0, 999_999_999) if each.name == "nanos" else st.integers(-DAY, 1 << 40))
    if each.enum_type is None:
        return draw(_SCALARS[_kind(each)])
    known = [value.number for value in each.enum_type.values]
    return draw(st.sampled_from(known if each.enum_type.is_closed else [*known, 9, -1]))


class _Pairs(dict[Any, Any]):
    """Entries of a map."""


class _Unsure:
    """A map with entries that this runtime leaves out, because they have unknown fields; other ones keep them."""


class _Encoded:
    """A message that is a column of bytes."""

    def __init__(self, message: Message) -> None:
        self.message = message


def expected(message: Any, inside: tuple[str, ...] = ()) -> Any:
    """Return the row of a message."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.seconds * 1_000_000 + message.nanos // 1000
    if name in _WRAPPERS:
        return message.value
    if not message.DESCRIPTOR.fields or name in inside or name in ("google.protobuf.Struct", "google.protobuf.Value"):
        return _Encoded(message)
    return {each.name: _value(each, message, (*inside, name)) for each in message.DESCRIPTOR.fields}


def _value(each: Any, message: Message, inside: tuple[str, ...]) -> Any:
    held = getattr(message, each.name)
    if each.message_type is not None and each.message_type.GetOptions().map_entry:
        value = each.message_type.fields_by_name["value"]
        unknown: Any = UnknownFieldSet(message)
        if any(one.field_number == each.number and one.wire_type == 2 for one in unknown):
            return _Unsure()
        return _Pairs({key: _one(value, held[key], inside) for key in held})
    if each.is_repeated:
        return [_one(each, item, inside) for item in held]
    if each.has_presence and not message.HasField(each.name):
        if each.has_default_value and each.containing_oneof is None:
            return _one(each, each.default_value, inside)
        return None
    return _one(each, held, inside)


def _one(each: Any, value: Any, inside: tuple[str, ...]) -> Any:
    if each.message_type is not None:
        return expected(value, inside)
    if each.enum_type is not None:
        named = each.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def same(seen: Any, wanted: Any) -> bool:
    """Compare a value of Arrow with an expected one."""
    if isinstance(wanted, _Unsure):
        return True
    if isinstance(wanted, _Pairs):
        found = dict(seen)
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, dict):
        return seen is not None and seen.keys() == wanted.keys() and all(same(seen[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(seen) == len(wanted) and all(map(same, seen, wanted))
    if isinstance(wanted, _Encoded):
        again = type(wanted.message).FromString(seen)
        return again.SerializeToString(deterministic=True) == wanted.message.SerializeToString(deterministic=True)
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(seen, float) and math.isnan(seen)
    return bool(seen == wanted)


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch, with timestamps as integers."""
    plain = pa.schema([each.with_type(_plain(each.type)) for each in batch.schema])
    rows: list[dict[str, Any]] = pa.Table.from_batches([batch]).cast(plain).to_pylist()
    return rows


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_plain(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_plain(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def decode(made: Any, values: pa.Array, pool: Pool) -> tuple[list[dict[str, Any]], list[BadRecord]]:
    """Decode all ``values`` in one call, and let pyarrow check each buffer."""
    decoded = ProtobufDecoder(compile_protobuf(made.DESCRIPTOR), pool).decode(values)
    assert decoded.upto == len(values)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    assert batch.num_rows == decoded.rows == len(values) - len(decoded.bad)
    return shown(batch), decoded.bad


def agree(made: type[Message], values: pa.Array, pool: Pool) -> Counter[str]:
    """Compare each of the ``values`` with what google.protobuf says of it; count reasons, and rows as "row"."""
    rows, bad = decode(made, values, pool)
    wrong = {each.row: each for each in bad}
    seen = iter(rows)
    for row, value in enumerate(values.to_pylist()):
        try:
            message = made.FromString(value)
        except DecodeError:
            if row not in wrong:
                assert _LONG.search(value), value  # it takes no sizes of more than five bytes
                next(seen)
                continue
            assert wrong[row].reason in REASONS
            assert 0 <= wrong[row].offset <= len(value)
            continue
        if row in wrong:
            # It does not check texts of proto2, times, and the numbers of fields in unknown groups.
            allowed = ["InvalidUtf8", "OutOfRange", "MissingField"]
            if value and value[min(wrong[row].offset, len(value) - 1)] < 1 << 3:
                allowed.append("InvalidTag")
            assert wrong[row].reason in allowed, (value, wrong[row], message)
            assert wrong[row].reason != "MissingField" or not message.IsInitialized()
            continue
        assert message.IsInitialized()
        found = next(seen)
        assert same(found, expected(message)), (value, found, message)
    return Counter([*(["row"] * len(rows)), *(each.reason for each in bad)])
