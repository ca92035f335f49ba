"""Message types of Protobuf as programs: columns, presence, defaults, and the descriptor sets that are refused."""

import random
from base64 import b64encode
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, struct_pb2
from google.protobuf.descriptor import Descriptor

from fastwire.decode.program import MOST_COLUMNS, MOST_DEPTH, SchemaError, Step
from fastwire.decode.protobuf.descriptors import message_of, registered_message
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.decode.protobuf.walk import ProtobufDecoder
from fastwire.wire.pool import Pool
from tests.support.protobuf import FieldProto, FileProto, described, field

REPEATED = FieldProto.LABEL_REPEATED


def file(syntax: str = "proto3", package: str = "t", **messages: Any) -> Any:
    """Return a file with messages of these fields."""
    made = FileProto(name="made.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        made.message_type.add(name=name).field.extend(fields)
    return made


def steps(descriptor: Descriptor) -> dict[str, Step]:
    return {step.path: step for step in compile_protobuf(descriptor)}


def schema_of(descriptor: Descriptor) -> pa.Schema:
    return pa.schema(ProtobufDecoder(compile_protobuf(descriptor), Pool(1 << 20)))


def test_each_type_has_its_column() -> None:
    made = file(M=[
        field("d", 1, "double"), field("f", 2, "float"), field("i32", 3, "int32"), field("s32", 4, "sint32"),
        field("x32", 5, "sfixed32"), field("i64", 6, "int64"), field("s64", 7, "sint64"), field("x64", 8, "sfixed64"),
        field("u32", 9, "uint32"), field("f32", 10, "fixed32"), field("u64", 11, "uint64"), field("f64", 12, "fixed64"),
        field("b", 13, "bool"), field("s", 14, "string"), field("z", 15, "bytes"),
        field("list", 16, "sint32", label=REPEATED), field("time", 17, "google.protobuf.Timestamp"),
        field("wrapped", 18, "google.protobuf.UInt32Value"), field("free", 19, "google.protobuf.Struct"),
        field("took", 20, "google.protobuf.Duration"), field("any", 21, "google.protobuf.Any"),
    ])  # fmt: skip
    made.dependency.extend(
        f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct", "duration", "any")
    )
    required = dict.fromkeys(
        ("i32", "s32", "x32"), pa.int32()) | dict.fromkeys(("i64", "s64", "x64", "u32", "f32"), pa.int64()
    )  # fmt: skip
    required |= dict.fromkeys(("u64", "f64"), pa.decimal128(20, 0))
    required |= {"d": pa.float64(), "f": pa.float32(), "b": pa.bool_(), "s": pa.string(), "z": pa.binary()}
    required["list"] = pa.list_(pa.field("item", pa.int32(), nullable=False))
    took = pa.struct([pa.field("seconds", pa.int64(), nullable=False), pa.field("nanos", pa.int32(), nullable=False)])
    any_ = pa.struct(
        [pa.field("type_url", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    optional = {
        "time": pa.timestamp("us", "UTC"), "wrapped": pa.int64(), "free": pa.binary(), "took": took, "any": any_,
    }  # fmt: skip
    schema = schema_of(message_of(described(made), "t.M"))
    assert {each.name: each.type for each in schema if not each.nullable} == required
    assert {each.name: each.type for each in schema if each.nullable} == optional
    assert schema.names == [each.name for each in made.message_type[0].field]


def test_maps_and_messages_inside() -> None:
    made = file(
        M=[field("by_name", 1, "t.M.ByNameEntry", label=REPEATED), field("lines", 2, "t.Line", label=REPEATED)],
        Line=[field("count", 1, "int32"), field("more", 2, "t.Line")],
    )
    entry = made.message_type[0].nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, "string"), field("value", 2, "t.Line")])
    line = pa.struct([pa.field("count", pa.int32(), nullable=False), pa.field("more", pa.binary())])
    schema = schema_of(message_of(described(made), "t.M"))
    assert schema.field("by_name").type == pa.map_(pa.string(), pa.field("value", line, nullable=False))
    assert schema.field("lines").type == pa.list_(pa.field("item", line, nullable=False))


def test_presence_of_proto2() -> None:
    made = file("proto2", M=[
        field("plain", 1, "int32"), field("given", 2, "int32", default_value="-5"),
        field("needed", 3, "int32", label=FieldProto.LABEL_REQUIRED), field("text", 4, "string", default_value="é"),
        field("one", 5, "int32", oneof_index=0, default_value="7"), field("other", 6, "int32", oneof_index=0),
    ])  # fmt: skip
    made.message_type[0].oneof_decl.add(name="o")
    found = steps(message_of(described(made)))
    assert {name: step.nullable for name, step in found.items() if name} == {
        "plain": True, "given": False, "needed": False, "text": False, "one": True, "other": True,
    }  # fmt: skip
    assert {name: step.default for name, step in found.items() if name} == {
        "plain": None, "given": b"\xfb" + b"\xff" * 8 + b"\x01", "needed": None, "text": b"\x02\xc3\xa9", "one": None,
        "other": None,
    }  # fmt: skip
    assert [found[name].oneof for name in ("plain", "one", "other")] == [-1, 0, 0]


def test_presence_of_editions() -> None:
    made = file("editions", M=[field("explicit", 1, "int32"), field("implicit", 2, "int32")])
    made.edition = descriptor_pb2.EDITION_2023
    made.message_type[0].field[1].options.features.field_presence = descriptor_pb2.FeatureSet.IMPLICIT
    found = steps(message_of(described(made)))
    assert [found[name].nullable for name in ("explicit", "implicit")] == [True, False]


def test_a_message_is_named_if_there_are_several() -> None:
    made = file(A=[field("x", 1, "int32")], B=[field("a", 1, "t.A")])
    with pytest.raises(SchemaError, match=r"the message is not named, and there are t\.A, t\.B"):
        message_of(described(made))
    assert message_of(described(made), "t.B").full_name == "t.B"
    with pytest.raises(SchemaError, match=r'no message "t\.C"'):
        message_of(described(made), "t.C")
    other = FileProto(name="other.proto", dependency=["made.proto"])
    other.message_type.add(name="C").field.append(field("a", 1, "t.A"))
    assert message_of(described(other, made)).full_name == "C"  # the others are imported


def test_files_come_in_any_order() -> None:
    other = FileProto(name="other.proto", dependency=["made.proto"])
    other.message_type.add(name="C").field.append(field("a", 1, "t.A"))
    made = file(A=[field("x", 1, "int32")])
    assert [*steps(message_of(described(made, other)))] == ["", "a", "a.x"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not a descriptor set"),
        (b'syntax = "proto3";', "not a descriptor set"),
        (b"", "no files"),
        (described(FileProto(name="a", dependency=["b"])), "a cannot be used"),
        (described(FileProto(name="a", dependency=["b"]), FileProto(name="b", dependency=["a"])), "cannot be used"),
        (described(file(M=[field("x", 1, "t.Lost")])), "made.proto cannot be used"),
        (described(file(M=[field("x", 0, "int32")])), "made.proto cannot be used"),
        (described(file(M=[])), "t.M has no fields"),
        (described(file()), "there are none"),
    ],
)
def test_descriptor_sets_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        compile_protobuf(message_of(data))


def test_a_message_that_nests_too_deeply_is_refused() -> None:
    levels: dict[str, Any] = {f"L{i}": [field("x", 1, f"t.L{i + 1}")] for i in range(MOST_DEPTH + 1)}
    levels[f"L{MOST_DEPTH + 1}"] = [field("x", 1, "int32")]
    made = file(**levels)
    with pytest.raises(SchemaError, match=f"deeper than {MOST_DEPTH} levels"):
        compile_protobuf(message_of(described(made), "t.L0"))
    assert len(compile_protobuf(message_of(described(made), "t.L2"))) == MOST_DEPTH + 1


def test_a_message_that_grows_by_its_types_is_refused() -> None:
    levels: dict[str, Any] = {f"L{i}": [field("a", 1, f"t.L{i + 1}"), field("b", 2, f"t.L{i + 1}")] for i in range(25)}
    made = file(**levels, L25=[field("x", 1, "int32")])
    with pytest.raises(SchemaError, match=f"more than {MOST_COLUMNS} columns"):
        compile_protobuf(message_of(described(made), "t.L0"))


def test_paths_of_messages() -> None:
    made = file(A=[field("by", 1, "t.A.ByEntry", label=REPEATED)], B=[field("x", 1, "int32")])
    entry = made.message_type[0].nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, "string"), field("value", 2, "t.A.Inner")])
    made.message_type[0].nested_type.add(name="Inner").field.append(field("x", 1, "int32"))
    for name, paths in {"A": ((0,),), "B": ((1,),), "A.Inner": ((0, 0), (0, 1))}.items():
        message, found = registered_message(in_base64(made), {}, f"t.{name}")
        assert (message.full_name, found) == (f"t.{name}", paths)
    with pytest.raises(SchemaError, match=r'no message "t\.C"'):
        registered_message(in_base64(made), {}, "t.C")


def test_a_message_that_is_not_named_is_the_one_that_no_other_contains() -> None:
    inner, one = [field("x", 1, "int32")], [field("of", 1, "t.Inner"), field("again", 2, "t.Order")]
    message, paths = registered_message(in_base64(file(Inner=inner, Order=one)), {}, "")
    assert (message.full_name, paths) == ("t.Order", ((1,),))
    with pytest.raises(SchemaError, match=r"the message is not named, and there are t\.Order, t\.Other"):
        registered_message(in_base64(file(Order=one, Other=inner, Inner=inner)), {}, "")


def test_files_of_a_registry_have_the_names_of_their_imports() -> None:
    used = file(package="", A=[field("x", 1, "int32")])
    main = FileProto(name="default", dependency=["shop/a.proto", "google/protobuf/any.proto"])
    main.message_type.add(name="B").field.extend([field("a", 1, "A"), field("b", 2, "google.protobuf.Any")])
    message, paths = registered_message(in_base64(main), {"shop/a.proto": in_base64(used)}, "B")
    assert ([*steps(message)], paths) == (["", "a", "b", "a.x", "b.type_url", "b.value"], ((0,),))
    with pytest.raises(SchemaError, match=r'"A" is not a message of the schema itself'):
        registered_message(in_base64(main), {"shop/a.proto": in_base64(used)}, "A")
    with pytest.raises(SchemaError, match="cannot be used"):
        registered_message(in_base64(main), {"shop/b.proto": in_base64(used)}, "B")
    for text in ('syntax = "proto3";', "/w=="):
        with pytest.raises(SchemaError, match=r"does not return shop/a\.proto as a serialized file descriptor"):
            registered_message(in_base64(main), {"shop/a.proto": text}, "B")


def in_base64(file: Any) -> str:
    return b64encode(file.SerializeToString()).decode()


def test_messages_of_the_runtime_are_read() -> None:
    assert [*steps(any_pb2.Any.DESCRIPTOR)] == ["", "type_url", "value"]
    assert [*steps(duration_pb2.Duration.DESCRIPTOR)] == ["", "seconds", "nanos"]
    assert {step.path: step.wire for step in compile_protobuf(struct_pb2.ListValue.DESCRIPTOR) if step.number == 0} == {
        "": "message", "values[]": "encoded",
    }  # fmt: skip


def test_damaged_descriptors_are_refused_or_read() -> None:
    made = file(A=[field("x", 1, "int32"), field("b", 2, "t.B", label=REPEATED)], B=[field("y", 1, "string")])
    other = FileProto(name="other.proto", dependency=["made.proto", "google/protobuf/timestamp.proto"])
    other.message_type.add(name="C").field.extend([field("a", 1, "t.A"), field("t", 2, "google.protobuf.Timestamp")])
    whole = described(other, made)
    chance = random.Random(3)
    seen = Counter[bool]()
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 9, 11, 14, 0x30, 0x7F, 0x80, 0xFF))
        try:
            ProtobufDecoder(compile_protobuf(message_of(bytes(data), "C")), Pool(1 << 20))
            seen[True] += 1
        except SchemaError:
            seen[False] += 1
    assert seen[True] > 100 and seen[False] > 100, seen
