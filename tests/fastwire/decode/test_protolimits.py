"""Golden bytes of Protobuf: limits of each type, merging, groups, oneofs, framing, and hostile sizes."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.avro.resolution import resolve
from fastwire.decode.evolution import columns_of, grown, program_of
from fastwire.decode.program import BadRecord, SchemaError, Step
from fastwire.decode.protobuf.descriptors import message_of
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.decode.protobuf.walk import ProtobufDecoder
from fastwire.wire.pool import Pool
from tests.support.protobuf import FieldProto, FileProto, described, field

POOL = Pool(256 << 20)
REPEATED = FieldProto.LABEL_REPEATED
REQUIRED = FieldProto.LABEL_REQUIRED
GROUP = FieldProto.TYPE_GROUP


def program(*fields: Any, syntax: str = "proto3", oneofs: int = 0) -> tuple[Step, ...]:
    """Return the program of a message M beside a message In, an open and a closed enum."""
    made = FileProto(name="made.proto", package="t", syntax=syntax)
    made.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct"))
    top = made.message_type.add(name="M")
    top.field.extend(fields)
    for number in range(oneofs):
        top.oneof_decl.add(name=f"o{number}")
    made.message_type.add(name="In").field.extend([
        field("a", 1, "int32"), field("b", 2, "string"), field("c", 3, "int32", label=REPEATED), field("in", 4, "t.In"),
    ])  # fmt: skip
    enum = made.enum_type.add(name="E")
    for number, name in ((0, "ZERO"), (1, "ONE"), (1000, "MANY"), (-2, "MINUS")):
        enum.value.add(name=name, number=number)
    return compile_protobuf(message_of(described(made), "t.M"))


def entries(name: str, kind: Any) -> Sequence[Step]:
    """Return the program of a message with a map of int32 to a field ``kind`` of number 2."""
    made = FileProto(name="made.proto", package="t", syntax="proto2")
    made.enum_type.add(name="E").value.add(name="ZERO", number=0)
    made.message_type.add(name="In").field.append(field("a", 1, "int32", default_value="4"))
    top = made.message_type.add(name="M")
    top.field.append(field(name, 1, "t.M.FEntry", label=REPEATED))
    entry = top.nested_type.add(name="FEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, "int32"), kind])
    return compile_protobuf(message_of(described(made), "t.M"))


def decode(steps: Sequence[Step], values: Sequence[bytes], pool: Pool = POOL) -> tuple[list[Any], list[BadRecord]]:
    decoded = ProtobufDecoder(steps, pool).decode(pa.array(values, pa.binary()))
    assert decoded.upto == len(values)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    return batch.to_pylist(), decoded.bad


def one(steps: Sequence[Step], data: bytes) -> Any:
    """Return the value of the field f, or the reason why the record is bad, with its offset."""
    rows, bad = decode(steps, [data])
    return (bad[0].reason, bad[0].offset) if bad else rows[0]["f"]


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        ("int32", b"\x08" + b"\xff" * 9 + b"\x01", -1),
        ("int32", b"\x08\xff\xff\xff\xff\x0f", -1),
        ("int32", b"\x08\x80\x80\x80\x80\x20", 0),  # 2^33: the upper half is dropped
        ("int32", b"\x08\x85\x80\x80\x80\x80\x80\x80\x80\x80\x00", 5),
        ("int64", b"\x08" + b"\xff" * 9 + b"\x7f", -1),  # the upper bits of the tenth byte are dropped
        ("int64", b"\x08" + b"\x80" * 9 + b"\x02", 0),
        ("int64", b"\x08" + b"\xff" * 10, ("InvalidVarint", 1)),
        ("int64", b"\x08" + b"\xff" * 9, ("Truncated", 1)),
        ("int64", b"\x08", ("Truncated", 1)),
        ("uint32", b"\x08\xff\xff\xff\xff\x0f", (1 << 32) - 1),
        ("uint64", b"\x08" + b"\xff" * 9 + b"\x01", (1 << 64) - 1),
        ("sint32", b"\x08\xff\xff\xff\xff\x0f", -(1 << 31)),
        ("sint32", b"\x08\xff\xff\xff\xff\x1f", -(1 << 31)),
        ("sint64", b"\x08" + b"\xff" * 9 + b"\x01", -(1 << 63)),
        ("bool", b"\x08\x80\x80\x80\x80\x80\x01", True),
        ("bool", b"\x08\x00", False),
        ("fixed32", b"\x0d\xff\xff\xff\xff", (1 << 32) - 1),
        ("sfixed32", b"\x0d\xff\xff\xff\xff", -1),
        ("fixed64", b"\x09" + b"\xff" * 8, (1 << 64) - 1),
        ("sfixed64", b"\x09" + b"\xff" * 7, ("Truncated", 1)),
        ("float", b"\x0d\x00\x00\xc0\x3f", 1.5),
        ("double", b"\x09" + b"\x00" * 6 + b"\xf8\x3f", 1.5),
        ("double", b"\x0d\x00\x00\xc0\x3f", 0.0),  # another wire type: an unknown field
        ("string", b"\x0a\x03\xe2\x82\xac", "€"),
        ("string", b"\x0a\x02\xe2\x82", ("InvalidUtf8", 2)),
        ("string", b"\x0a\x0aabcdefgh\xed\xa0", ("InvalidUtf8", 2)),
        ("string", b"\x0a\x03\xe2\x82", ("Truncated", 1)),
        ("string", b"\x0a" + b"\xff" * 9 + b"\x01", ("Truncated", 1)),
        ("string", b"\x0a\xff\xff\xff\xff\x07", ("Truncated", 1)),
        ("bytes", b"\x0a\x02\xe2\x82", b"\xe2\x82"),
        ("int32", b"\x88\x80\x80\x80\x00\x07", 7),  # a tag with more bytes than it needs
        ("int32", b"\x88\x80\x80\x80\x10\x07", ("InvalidTag", 0)),
        ("int32", b"\x88\x80\x80\x80\x80\x00\x07", ("InvalidTag", 0)),
        ("int32", b"\x88\x80", ("Truncated", 0)),
        ("int32", b"\x00\x01", ("InvalidTag", 0)),
        ("int32", b"\x08\x01\x0e", ("InvalidTag", 2)),
        ("int32", b"\x08\x01\x0f\x01", ("InvalidTag", 2)),
        ("int32", b"\x08\x01\x0c", ("InvalidTag", 2)),
        ("int32", b"\x1b\x08\x01\x1c\x08\x02", 2),  # an unknown group, with a field of the same number in it
        ("int32", b"\x1b\x23\x24\x08\x01\x24", ("InvalidTag", 5)),
        ("int32", b"\x1b\x08\x01", ("Truncated", 3)),
        ("int32", b"\x0b\x08\x01\x0c", 0),  # a group instead of a number
        ("int32", b"\x1b" * 100 + b"\x1c" * 100 + b"\x08\x03", 3),
        ("int32", b"\x1b" * 101 + b"\x1c" * 101, ("TooDeep", 100)),
        ("int32", b"\x08\x01\x08\x02\x08\x03", 3),
        ("string", b"\x0a\x02ab\x0a\x01c", "c"),
        ("int32", b"\xfa\xff\xff\xff\x0f\x02ab\x08\x01", 1),  # the largest number of a field
    ],
)
def test_limits_of_each_type(kind: str, data: bytes, seen: Any) -> None:
    assert one(program(field("f", 1, kind)), data) == seen


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        ("int32", b"\x08\x01\x0a\x02\x02\x03\x08\x04", [1, 2, 3, 4]),
        ("int32", b"\x0a\x00", []),
        ("int32", b"", []),
        ("int32", b"\x0a\x02\x02\x83", ("Truncated", 3)),
        ("fixed32", b"\x0a\x05\x01\x00\x00\x00\x02", ("Truncated", 6)),
        ("double", b"\x0a\x08" + b"\x00" * 6 + b"\xf8\x3f", [1.5]),
        ("bool", b"\x0a\x03\x00\x01\x02", [False, True, True]),
        ("string", b"\x0a\x01a\x0a\x00", ["a", ""]),
        ("t.In", b"\x0a\x00\x0a\x04\x12\x02ab", [{"a": 0, "b": "", "c": [], "in": None},
                                                 {"a": 0, "b": "ab", "c": [], "in": None}]),
        ("t.In", b"\x08\x01", []),
        ("google.protobuf.Int32Value", b"\x0a\x02\x08\x07\x0a\x00", [7, 0]),
    ],
)  # fmt: skip
def test_lists(kind: str, data: bytes, seen: Any) -> None:
    for packed in (True, False):
        listed = field("f", 1, kind, label=REPEATED)
        if not kind.startswith(("t.", "google", "string")):
            listed.options.packed = packed
        assert one(program(listed), data) == seen


def test_items_may_stand_between_other_fields() -> None:
    steps = program(field("f", 1, "sint32", label=REPEATED), field("g", 2, "string", label=REPEATED))
    rows, _ = decode(steps, [b"\x08\x02\x12\x01a\x0a\x01\x04\x12\x01b\x08\x06", b"\x12\x01c"])
    assert rows == [{"f": [1, 2, 3], "g": ["a", "b"]}, {"f": [], "g": ["c"]}]


def test_pieces_of_a_message_are_merged() -> None:
    steps = program(field("f", 1, "t.In"), field("x", 2, "int32"))
    parts = [b"\x0a\x05\x08\x01\x12\x01p", b"\x10\x09", b"\x0a\x02\x18\x05", b"\x0a\x04\x08\x02\x18\x06"]
    rows, _ = decode(steps, [b"".join(parts), b"\x0a\x00", b""])
    assert rows == [
        {"f": {"a": 2, "b": "p", "c": [5, 6], "in": None}, "x": 9},
        {"f": {"a": 0, "b": "", "c": [], "in": None}, "x": 0},
        {"f": None, "x": 0},
    ]


def test_pieces_of_messages_that_are_cells() -> None:
    fields = [field("f", 1, "google.protobuf.Timestamp")]
    parts = [b"\x0a\x02\x08\x05", b"\x0a\x03\x10\xe8\x07", b"\x0a\x00"]  # seconds, nanoseconds
    (row,), _ = decode(program(*fields), [b"".join(parts)])
    assert row["f"].timestamp() == 5.000001
    assert one(program(field("f", 1, "google.protobuf.Int32Value")), b"\x0a\x02\x08\x05\x0a\x00") == 5
    assert one(program(field("f", 1, "google.protobuf.Int32Value")), b"\x0a\x00") == 0
    assert one(program(field("f", 1, "google.protobuf.Struct")), b"\x0a\x02\x0a\x00\x0a\x02\x12\x00") == b"\n\0\x12\0"
    assert one(program(field("f", 1, "t.In")), b"\x0a\x04\x22\x02\x08\x07")["in"] == b"\x08\x07"


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"\x0a\x06\x10\xff\x93\xeb\xdc\x03", 0.999999),
        (b"\x0a\x06\x10\x80\x94\xeb\xdc\x03", ("OutOfRange", 2)),  # a second of nanoseconds
        (b"\x0a\x0b\x10" + b"\xff" * 9 + b"\x01", ("OutOfRange", 2)),
        (b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01", -1.0),
        (b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", ("OutOfRange", 2)),
        (b"\x0a\x02\x08", ("Truncated", 1)),
        (b"\x0a\x01\x08", ("Truncated", 3)),
        (b"\x0a\x02\x0c\x00", ("InvalidTag", 3)),
    ],
)
def test_times(data: bytes, seen: Any) -> None:
    found = one(program(field("f", 1, "google.protobuf.Timestamp")), data)
    assert (found if isinstance(found, tuple) else found.timestamp()) == seen


@pytest.mark.parametrize(
    ("syntax", "data", "seen"),
    [
        ("proto3", b"\x08\x01", "ONE"),
        ("proto3", b"\x08\xe8\x07", "MANY"),
        ("proto3", b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "MINUS"),
        ("proto3", b"\x08\x81\x80\x80\x80\x10", "ONE"),
        ("proto3", b"\x08\x02", "2"),
        ("proto3", b"\x08\xff\xff\xff\xff\xf8\xff\xff\xff\xff\x01", "-1879048193"),
        ("proto3", b"", "ZERO"),
        ("proto2", b"\x08\x01\x08\x02", "ONE"),
        ("proto2", b"\x08\x02", None),
    ],
)
def test_enums(syntax: str, data: bytes, seen: Any) -> None:
    assert one(program(field("f", 1, "t.E", type=FieldProto.TYPE_ENUM), syntax=syntax), data) == seen


def test_the_last_member_of_a_oneof_counts() -> None:
    members = [field("f", 1, "int32", oneof_index=0), field("g", 2, "t.In", oneof_index=0),
               field("h", 3, "t.E", oneof_index=0, type=FieldProto.TYPE_ENUM), field("i", 4, "string")]  # fmt: skip
    steps = program(*members, oneofs=1)
    dropped = program(members[1], members[3], oneofs=1)
    values = [
        b"\x08\x01\x12\x02\x18\x05",
        b"\x12\x02\x18\x05\x08\x00\x22\x01x",
        b"\x12\x02\x18\x05\x08\x01\x12\x02\x18\x06",
        b"\x12\x02\x18\x05\x12\x02\x18\x06",
        b"\x18\x01\x08\x02\x18\x07",
        b"",
    ]
    inner = {"a": 0, "b": "", "in": None}
    rows, _ = decode(steps, values)
    assert rows == [
        {"f": None, "g": {**inner, "c": [5]}, "h": None, "i": ""},
        {"f": 0, "g": None, "h": None, "i": "x"},
        {"f": None, "g": {**inner, "c": [6]}, "h": None, "i": ""},
        {"f": None, "g": {**inner, "c": [5, 6]}, "h": None, "i": ""},
        {"f": None, "g": None, "h": "7", "i": ""},
        {"f": None, "g": None, "h": None, "i": ""},
    ]
    # A member without a column removes the others, too.
    decoded = ProtobufDecoder(dropped, POOL, written=resolve(steps, dropped)).decode(pa.array(values, pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [{"g": row["g"], "i": row["i"]} for row in rows]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize("kind", ["int32", "t.In"])
def test_an_unknown_number_of_a_closed_enum_is_no_member_of_a_oneof(syntax: str, kind: str) -> None:
    members = [field("f", 1, kind, oneof_index=0), field("h", 2, "t.E", oneof_index=0, type=FieldProto.TYPE_ENUM)]
    steps = program(*members, syntax=syntax, oneofs=1)
    dropped = program(members[0], syntax=syntax, oneofs=1)
    set_, inner = {"int32": (b"\x08\x05", 5), "t.In": (b"\x0a\x02\x08\x05", {"a": 5, "b": None, "c": [], "in": None})}[
        kind
    ]
    if kind == "t.In" and syntax == "proto3":
        inner = {**inner, "b": ""}  # type: ignore[dict-item]
    closed = syntax == "proto2"
    values = [
        set_ + b"\x10\x63",
        b"\x10\x63" + set_,
        b"\x10\x01\x10\x63",
        set_ + b"\x10\x01\x10\x63",
        b"\x10\x01" + set_,
    ]
    rows, bad = decode(steps, values)
    assert not bad
    assert rows == [
        {"f": inner, "h": None} if closed else {"f": None, "h": "99"},
        {"f": inner, "h": None},
        {"f": None, "h": "ONE" if closed else "99"},
        {"f": None, "h": "ONE" if closed else "99"},
        {"f": inner, "h": None},
    ]
    decoded = ProtobufDecoder(dropped, POOL, written=resolve(steps, dropped)).decode(pa.array(values, pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [{"f": row["f"]} for row in rows]


def test_members_of_oneofs_that_replace_each_other_too_often() -> None:
    """Each replacement looks at a thousand columns, for four bytes."""
    made = FileProto(name="made.proto", package="t", syntax="proto3")
    top = made.message_type.add(name="M")
    top.field.extend([field("f", 1, "t.Wide", oneof_index=0), field("g", 2, "int32", oneof_index=0)])
    top.field.append(field("h", 3, "string"))
    top.oneof_decl.add(name="o")
    made.message_type.add(name="Wide").field.extend(field(f"f{i}", i, "int32") for i in range(1, 1001))
    steps = compile_protobuf(message_of(described(made), "t.M"))
    there_and_back = b"\x0a\x02\x08\x01\x10\x05"
    large = b"\x1a\xa0\x8d\x06" + b"x" * 100_000  # whose size warrants more
    values = [there_and_back * 60, there_and_back * 100, there_and_back * 60, large + there_and_back * 100]
    rows, bad = decode(steps, values)
    assert [(each.row, each.reason, each.path) for each in bad] == [(1, "RepeatedOneof", "g")]
    assert [(row["f"], row["g"]) for row in rows] == [(None, 5)] * 3


def test_maps() -> None:
    steps = entries("f", field("value", 2, "t.In"))
    assert one(steps, b"\x0a\x00") == [(0, {"a": 4})]
    assert one(steps, b"\x0a\x06\x12\x02\x08\x07\x08\x01") == [(1, {"a": 7})]
    assert one(steps, b"\x0a\x04\x08\x01\x08\x02\x0a\x02\x08\x02") == [(2, {"a": 4}), (2, {"a": 4})]
    closed = entries("f", field("value", 2, "t.E", type=FieldProto.TYPE_ENUM))
    assert one(closed, b"\x0a\x04\x08\x01\x10\x05\x0a\x04\x08\x02\x10\x00") == [(2, "ZERO")]


def test_required_fields() -> None:
    steps = program(field("f", 1, "int32", label=REQUIRED), field("g", 2, "t.In"), syntax="proto2")
    assert one(steps, b"\x08\x00") == 0
    assert one(steps, b"\x12\x00") == ("MissingField", 2)


def test_groups() -> None:
    steps = program(
        field("f", 1, "t.In", type=GROUP), field("g", 2, "t.In", type=GROUP, label=REPEATED), syntax="proto2"
    )
    rows, bad = decode(steps, [
        b"\x0b\x08\x01\x0c\x0b\x18\x02\x0c\x13\x14\x13\x12\x01x\x14", b"\x0b\x08\x01", b"\x0b\x08\x01\x14",
        b"\x0a\x02\x08\x01",
    ])  # fmt: skip
    plain: dict[str, Any] = {"a": None, "b": None, "c": [], "in": None}
    assert rows == [
        {"f": {**plain, "a": 1, "c": [2]}, "g": [plain, {**plain, "b": "x"}]},
        {"f": None, "g": []},
    ]
    assert [(each.reason, each.path, each.offset) for each in bad] == [("Truncated", "f", 3), ("InvalidTag", "f", 3)]


@pytest.mark.parametrize("kind", ["Int32Value", "Struct", "Timestamp"])
def test_cells_as_groups(kind: str) -> None:
    """The end of the group is found by its fields, not by its bytes: a text may look like a tag."""
    steps = program(field("f", 1, f"google.protobuf.{kind}", type=GROUP), syntax="proto2")
    content = {"Int32Value": b"\x08\x07", "Struct": b"\x0a\x02\xc3\xa9", "Timestamp": b"\x08\x07"}[kind]
    seen = one(steps, b"\x0b" + content + b"\x8c\x80\x00")
    assert seen == {"Int32Value": 7, "Struct": content}.get(kind, seen)
    assert one(steps, b"\x0b" + content)[0] == "Truncated"


def test_a_record_is_found_again_behind_a_bad_one() -> None:
    steps = program(field("f", 1, "t.In", label=REPEATED), field("g", 2, "t.In"), field("h", 3, "string"))
    good = b"\x0a\x05\x12\x01x\x18\x01\x12\x02\x18\x02\x1a\x01z"
    values = [good, good + b"\x0a\x03\x12\x01\xff", good, good[:-1], good + b"\x12\x03\x18\x80\x80", good]
    rows, bad = decode(steps, values)
    assert bad == [
        BadRecord(1, "InvalidUtf8", "f[].b", len(good) + 4),
        BadRecord(3, "Truncated", "h", len(good) - 2),
        BadRecord(4, "Truncated", "g.c[]", len(good) + 3),
    ]
    empty = {"a": 0, "b": "", "c": [], "in": None}
    assert rows == [{"f": [{**empty, "b": "x", "c": [1]}], "g": {**empty, "c": [2]}, "h": "z"}] * 3


def test_field_numbers_of_any_size() -> None:
    numbers = [1, 15, 16, 2047, 2048, 200_000, (1 << 29) - 1]
    steps = program(*(field(f"f{number}", number, "int32") for number in numbers))

    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])

    (row,), _ = decode(
        steps, [b"".join(varint(number << 3) + bytes([i]) for i, number in enumerate([*numbers, 300_000]))]
    )
    assert [*row.values()] == list(range(len(numbers)))


def test_a_value_that_becomes_too_large_is_bad() -> None:
    steps = program(field("f", 1, "double", label=REPEATED), field("g", 2, "t.In", label=REPEATED))
    values = [b"\x0a\x08" + b"\0" * 8, b"\x12\x00" * 200_000, b"\x0a\x08" + b"\1" * 8]
    rows, bad = decode(steps, values, Pool(16 << 20))
    assert [each.reason for each in bad] == ["TooLarge"]
    assert [len(row["f"]) for row in rows] == [1, 1]


def test_a_newer_message_adds_columns() -> None:
    old = program(field("f", 1, "int32"), field("g", 2, "string", label=REPEATED))
    new = program(field("f", 1, "int64"), field("h", 5, "t.E", type=FieldProto.TYPE_ENUM), field("i", 6, "t.In"))
    union = grown(old, new)
    assert [str(column).partition("<")[0] for column in columns_of(union)] == [
        "f int64 not null", "g list", "h string", "i struct",
    ]  # fmt: skip
    decoder = ProtobufDecoder(union, POOL, framed=True)
    decoder.add(1, resolve(old, union), [(0,)])
    decoder.add(2, resolve(new, union), [(1, 3), (1, 4)])
    first, second = b"\0\0\0\0\1", b"\0\0\0\0\2"
    sound = [
        first + b"\0\x08\x07\x12\x01x",
        second + b"\4\2\6\x08" + b"\xff" * 9 + b"\x01",
        second + b"\4\2\x08\x28\1",  # the other path
        first + b"\2\0\x08\x01",  # the path 0 in full
    ]
    wrong = [second + b"\0", second + b"\4\2\5", first + b"\x42", first, b"\0\0\0", first + b"\2\1", first + b"\1"]
    frames = sound + wrong
    decoded = decoder.decode(pa.array(frames, pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [
        {"f": 7, "g": ["x"], "h": None, "i": None},
        {"f": -1, "g": [], "h": "ZERO", "i": None},
        {"f": 0, "g": [], "h": "ONE", "i": None},
        {"f": 1, "g": [], "h": None, "i": None},
    ]
    assert [(each.reason, each.offset) for each in decoded.bad] == [
        *[("OtherMessage", 5)] * 3, ("Truncated", 5), ("NoSchemaId", 0), *[("OtherMessage", 5)] * 2,
    ]  # fmt: skip
    assert decoder.decode(pa.array([b"\0\0\0\0\3\0"], pa.binary())).unknown == 3


def test_a_schema_that_could_not_be_added_has_bad_records_only() -> None:
    one = program(field("f", 1, "int32"))
    decoder = ProtobufDecoder(one, POOL, framed=True)
    with pytest.raises(ValueError, match="17 message indexes"):
        decoder.add(1, one, [(0,) * 17])
    decoded = decoder.decode(pa.array([b"\0\0\0\0\1\0\x08\1"], pa.binary()))
    assert (decoded.rows, len(decoded.bad)) == (0, 1)


def test_a_narrower_message_does_not_fit() -> None:
    wide, other = program(field("f", 1, "int64")), program(field("f", 1, "string"))
    assert resolve(program(field("f", 1, "int32")), wide)[1].wire == "int32"
    for given in (program(field("f", 1, "uint64")), other):
        with pytest.raises(SchemaError):
            grown(wide, given)
        with pytest.raises(SchemaError):
            resolve(given, wide)


def test_columns_of_a_dataset_take_the_values() -> None:
    steps = program(field("f", 1, "uint64"), field("g", 2, "t.In"), field("h", 3, "google.protobuf.Timestamp"))
    kept = grown(steps, program_of(columns_of(program(field("old", 1, "int32"), field("f", 2, "uint64")))))
    decoder = ProtobufDecoder(kept, POOL, written=resolve(steps, kept))
    (row,) = pa.record_batch(decoder.decode(pa.array([b"\x08\x05\x1a\x00"], pa.binary()))).to_pylist()
    assert (row["f"], row["g"], row["h"].timestamp(), row["old"]) == (5, None, 0, None)


def test_a_column_of_a_newer_list_has_nulls_for_older_records() -> None:
    old = program(field("x", 1, "int32"))
    union = grown(old, program(field("x", 1, "int32"), field("f", 2, "int32", label=REPEATED)))
    decoder = ProtobufDecoder(union, POOL, written=resolve(old, union))
    batch = pa.record_batch(decoder.decode(pa.array([b"", b"\x10\x01"], pa.binary())))
    assert batch.to_pylist() == [{"x": 0, "f": None}] * 2


def test_a_text_that_becomes_a_message_stays_text() -> None:
    texts, messages = program(field("f", 1, "string")), program(field("f", 1, "google.protobuf.Struct"))
    decoder = ProtobufDecoder(texts, POOL, written=resolve(messages, texts))
    decoded = decoder.decode(pa.array([b"\x0a\x02\x0a\x00", b"\x0a\x03\x0a\x01\xff"], pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [{"f": "\n\0"}]
    assert [(each.reason, each.path) for each in decoded.bad] == [("InvalidUtf8", "f")]
