"""Branches of unions are read into the columns of their names, whatever their place and their shape."""

import io
import itertools
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from fastwire.decode.avro.resolution import resolve
from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.avro.walk import AvroDecoder
from fastwire.decode.branches import numbered
from fastwire.decode.evolution import (
    Column,
    added_types,
    adopted,
    columns_from_json,
    columns_of,
    columns_to_json,
    grown,
    named_as,
    program_of,
)
from fastwire.decode.program import SchemaError, Step
from fastwire.wire.pool import Pool

POOL = Pool(64 << 20)
Schema = Any


def rec(name: str, *fields: str, aliases: tuple[str, ...] = ()) -> Schema:
    made = [{"name": each, "type": ["null", "string"], "default": None} for each in fields]
    return {"type": "record", "name": name, "fields": made, "aliases": [*aliases]}


def of(*branches: Schema) -> Schema:
    return {"type": "record", "name": "Ev", "fields": [{"name": "body", "type": [*branches]}]}


def program(schema: Schema) -> tuple[Step, ...]:
    return compile_avro(json.dumps(schema))


def texts(steps: Any) -> list[str]:
    return [str(each) for each in columns_of(steps)]


def written(schema: Schema, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), {"body": value})
    return out.getvalue()


def read(columns: Any, *records: tuple[Schema, Any]) -> list[Any]:
    """Return the branch and the value of each record, or the reason why it is bad."""
    rows: list[Any] = []
    for schema, value in records:
        decoder = AvroDecoder(columns, POOL, written=resolve(program(schema), columns))
        decoded = decoder.decode(pa.array([written(schema, value)], pa.binary()))
        batch = pa.record_batch(decoded)
        batch.validate(full=True)
        if decoded.bad:
            rows.append(decoded.bad[0].reason)
            continue
        (body,) = batch.column("body").to_pylist()
        rows.append({name: each for name, each in body.items() if each is not None})
    return rows


CARD, TRANSFER, CASH = rec("Card", "number"), rec("Transfer", "iban"), rec("Cash", "till")
CREATED, DELETED, RENAMED = (rec(name, "id") for name in ("Created", "Deleted", "Renamed"))


@pytest.mark.parametrize(
    ("first", "then", "columns"),
    [
        (of(CARD, TRANSFER), of(TRANSFER, CARD), "Card struct<number string>, Transfer struct<iban string>"),
        (of(CARD, TRANSFER), of(CARD, CASH, TRANSFER),
         "Card struct<number string>, Transfer struct<iban string>, Cash struct<till string>"),
        (of(CARD, TRANSFER), of(rec("Card", "number", "holder"), TRANSFER),
         "Card struct<number string, holder string>, Transfer struct<iban string>"),
        (of(CREATED, DELETED), of(CREATED, RENAMED, DELETED),
         "Created struct<id string>, Deleted struct<id string>, Renamed struct<id string>"),
        (of("int", CARD), of(CARD, "string", "int"), "int int32, Card struct<number string>, string string"),
    ],
    ids=["another order", "a branch in the middle", "a field in a branch", "equal shapes", "types without names"],
)  # fmt: skip
def test_a_union_that_changes(first: Schema, then: Schema, columns: str) -> None:
    union = grown(program(first), program(then))
    assert texts(union) == [f"body struct<{columns}> not null"]
    for schema in (first, then):
        for branch in schema["fields"][0]["type"]:
            name = branch if isinstance(branch, str) else branch["name"]
            value: Any = {"int": 5, "string": "x"}.get(name)
            if value is None:
                value = {field["name"]: "v" for field in branch["fields"]}
                value = (name, value)
            (row,) = read(union, (schema, value))
            assert [*row] == [name]
            assert "v" in row[name].values() if isinstance(row[name], dict) else row[name] == value


def test_a_branch_that_there_is_not_has_no_other_place() -> None:
    assert read(program(of(CARD, TRANSFER)), (of(CARD, CASH), ("Cash", {"till": "T7"}))) == ["UnknownBranch"]


def test_aliases_of_either_schema_name_a_branch() -> None:
    payment = rec("Payment", "number", aliases=("Card",))
    for first, then in itertools.permutations([of(CARD, TRANSFER), of(TRANSFER, payment)]):
        union = grown(program(first), program(then))
        (name,) = {"Card", "Payment"} & {each.name for each in columns_of(union)[0].children}
        records = [(of(CARD, TRANSFER), ("Card", {"number": "1"})), (of(payment, CASH), ("Payment", {"number": "2"}))]
        assert read(union, *records) == [{name: {"number": "1"}}, {name: {"number": "2"}}]
        kept = columns_from_json(json.loads(json.dumps(columns_to_json(columns_of(union)))))
        without = of(rec("Payment", "number"), CASH)
        assert read(grown(program_of(kept), program(without)), (without, ("Payment", {"number": "3"}))) == [
            {name: {"number": "3"}}
        ]


def test_an_alias_takes_no_branch_that_has_its_own_name() -> None:
    both = of(rec("Payment", "number", aliases=("Card",)), CARD)
    union = grown(program(of(CARD, TRANSFER)), program(both))
    assert read(union, (both, ("Card", {"number": "1"})), (both, ("Payment", {"number": "2"}))) == [
        {"Card": {"number": "1"}}, {"Payment": {"number": "2"}},
    ]  # fmt: skip


def test_namespaces_tell_branches_apart() -> None:
    one, other = rec("a.Card", "number"), rec("b.Card", "number")
    assert [each.name for each in columns_of(program(of(one, other)))[0].children] == ["a_Card", "b_Card"]
    union = grown(program(of(one, TRANSFER)), program(of(other, one)))
    both = of(other, one)
    assert read(union, (both, ("b.Card", {"number": "1"})), (both, ("a.Card", {"number": "2"}))) == [
        {"b_Card": {"number": "1"}}, {"Card": {"number": "2"}},
    ]  # fmt: skip
    upper = program(of(rec("a.CARD", "x"), rec("a.Card", "x")))
    assert [each.name for each in columns_of(upper)[0].children] == ["a_CARD", "a_Card_2"]


def test_enums_and_fixed_types_are_branches_by_name() -> None:
    first = of({"type": "enum", "name": "A", "symbols": ["X"]}, {"type": "enum", "name": "B", "symbols": ["X"]})
    then = {**first, "fields": [{"name": "body", "type": first["fields"][0]["type"][::-1]}]}
    union = grown(program(first), program(then))
    data = [b"\0\0", b"\2\0"]
    for schema, names in ((first, "AB"), (then, "BA")):
        decoded = AvroDecoder(union, POOL, written=resolve(program(schema), union)).decode(pa.array(data, pa.binary()))
        rows = pa.record_batch(decoded).column("body").to_pylist()
        assert [next(name for name in row if row[name]) for row in rows] == list(names)
    sized = [{"type": "fixed", "name": name, "size": 2} for name in "FG"]
    union = grown(program(of(*sized)), program(of(*sized[::-1])))
    assert read(union, (of(*sized[::-1]), b"ab")) in ([{"G": b"ab"}], [{"F": b"ab"}])
    with pytest.raises(SchemaError, match=r"^body\.F: the column has w:2"):
        grown(program(of(*sized)), program(of({**sized[0], "size": 3}, "int")))


@pytest.mark.parametrize("around", ["items", "values"])
def test_unions_in_lists_and_maps(around: str) -> None:
    def within(*branches: Schema) -> Schema:
        kind = {"type": "array" if around == "items" else "map", around: [*branches]}
        return {"type": "record", "name": "Ev", "fields": [{"name": "all", "type": kind}]}

    union = grown(program(within(CREATED, DELETED)), program(within(DELETED, RENAMED, CREATED)))
    (column,) = columns_of(union)
    members = (column.children[0] if around == "items" else column.children[0].children[1]).children
    assert [each.name for each in members] == ["Created", "Deleted", "Renamed"]
    assert [each.branch for each in members] == [("Created",), ("Deleted",), ("Renamed",)]


def test_a_list_in_a_union_grows_with_its_records() -> None:
    def items(*fields: str) -> Schema:
        return {"type": "array", "items": rec("Line", *fields)}

    union = grown(program(of("int", items("a"))), program(of(items("a", "b"), "int")))
    assert texts(union) == ["body struct<int int32, array list<item struct<a string, b string> not null>> not null"]
    other = grown(union, program(of({"type": "array", "items": "string"}, "int")))
    assert [each.name for each in columns_of(other)[0].children] == ["int", "array", "array_2"]
    again = grown(other, program(of("int", {"type": "array", "items": "string"})))
    assert again == other


def test_the_dataset_remembers_branches() -> None:
    kept = columns_of(program(of(CREATED, DELETED)))
    assert columns_from_json(json.loads(json.dumps(columns_to_json(kept)))) == kept
    later = of(DELETED, RENAMED, CREATED)
    union = adopted(program(later), program_of(kept))
    assert [each.name for each in columns_of(union)[0].children] == ["Created", "Deleted", "Renamed"]
    assert read(union, (later, ("Deleted", {"id": "1"})), (later, ("Renamed", {"id": "2"}))) == [
        {"Deleted": {"id": "1"}}, {"Renamed": {"id": "2"}},
    ]  # fmt: skip
    assert added_types(kept, columns_of(union), landing=True) == columns_of(union)


def test_a_default_of_a_union_keeps_its_branch_where_the_dataset_has_another_order() -> None:
    field = {"name": "more", "type": ["string", "int"], "default": "here"}
    schema = {"type": "record", "name": "Ev", "fields": [{"name": "id", "type": "int"}, field]}
    held = {**schema, "fields": [{"name": "id", "type": "int"}, {**field, "type": ["int", "string"]}]}
    union = adopted(program(schema), program_of(columns_of(program(held))))
    assert [each.name for each in columns_of(union)[1].children] == ["int", "string"]
    lacking = {**schema, "fields": schema["fields"][:1]}
    decoder = AvroDecoder(union, POOL, written=resolve(program(lacking), union))
    batch = pa.record_batch(decoder.decode(pa.array([b"\2"], pa.binary())))
    assert batch.to_pylist() == [{"id": 1, "more": {"int": None, "string": "here"}}]


OLD = columns_of(numbered(program(of(CARD, TRANSFER))))
OLD = tuple(each.plain for each in OLD)


def test_members_of_an_older_dataset_are_those_of_their_types() -> None:
    assert str(OLD[0]) == "body struct<member0 struct<number string>, member1 struct<iban string>> not null"
    later = of(CARD, CASH, TRANSFER)
    union = adopted(program(later), program_of(OLD))
    assert read(
        union,
        (later, ("Transfer", {"iban": "1"})),
        (later, ("Cash", {"till": "2"})),
        (later, ("Card", {"number": "3"})),
    ) == [{"member1": {"iban": "1"}}, {"Cash": {"till": "2"}}, {"member0": {"number": "3"}}]
    kept = added_types(OLD, columns_of(union), landing=True)
    assert [each.branch for each in kept[0].children] == [("Card",), ("Transfer",), ("Cash",)]
    swapped = of(TRANSFER, CARD)
    assert read(adopted(program(swapped), program_of(kept)), (swapped, ("Card", {"number": "4"}))) == [
        {"member0": {"number": "4"}}
    ]


def test_members_of_an_older_dataset_that_could_be_several_branches_are_none() -> None:
    old = tuple(each.plain for each in columns_of(numbered(program(of(CREATED, DELETED)))))
    same = adopted(program(of(CREATED, DELETED)), program_of(old))
    assert [each.name for each in columns_of(same)[0].children] == ["member0", "member1"]
    union = adopted(program(of(CREATED, RENAMED, DELETED)), program_of(old))
    assert [each.name for each in columns_of(union)[0].children] == [
        "member0", "member1", "Created", "Renamed", "Deleted",
    ]  # fmt: skip


def test_a_record_with_fields_of_such_names_stays_a_record() -> None:
    schema = {"type": "record", "name": "P", "fields": [{"name": "body", "type": rec("B", "member0", "member1")}]}
    held = program_of(columns_of(program(schema)))
    assert grown(program(schema), held) == adopted(program(schema), held) == program(schema)
    resolve(program(schema), held)


def test_a_record_without_fields_is_there_or_null() -> None:
    ping: Schema = {"type": "record", "name": "Ping", "fields": []}
    columns = program(of("null", ping, CARD))
    assert texts(columns) == ["body struct<Ping binary, Card struct<number string>>"]
    schema = of("null", CARD, ping)
    assert read(columns, (schema, ("Ping", {})), (schema, ("Card", {"number": "1"}))) == [
        {"Ping": b""}, {"Card": {"number": "1"}},
    ]  # fmt: skip
    optional = of("null", ping)
    decoder = AvroDecoder(program(optional), POOL)
    values = pa.array([b"\0", b"\2", b"\2x"], pa.binary())
    decoded = decoder.decode(values)
    assert pa.record_batch(decoded).to_pylist() == [{"body": None}, {"body": b""}]
    assert [each.reason for each in decoded.bad] == ["TrailingBytes"]
    kept = program_of(columns_of(program(optional)))
    assert grown(program(optional), kept) == program(optional)
    resolve(program(optional), kept)
    with pytest.raises(SchemaError, match="does not fit"):
        resolve(program(optional), program(of("null", "string")))


def test_records_without_fields_fill_the_columns_with_nulls() -> None:
    nothing = compile_avro('{"type": "record", "name": "Ev", "fields": []}', fieldless=True)
    columns = program({**of("int"), "fields": [{"name": "a", "type": ["null", "int"]}]})
    assert grown(columns, nothing) == columns
    decoder = AvroDecoder(columns, POOL, written=resolve(nothing, columns))
    decoded = decoder.decode(pa.array([b"", b"x"], pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [{"a": None}]
    assert [each.reason for each in decoded.bad] == ["TrailingBytes"]


def test_a_default_of_a_record_without_fields() -> None:
    field = {"name": "ping", "type": {"type": "record", "name": "Ping", "fields": []}, "default": {}}
    given = {"type": "record", "name": "Ev", "fields": [{"name": "id", "type": "int"}, field]}
    columns = program(given)
    written_ = program({**given, "fields": given["fields"][:1]})
    decoded = AvroDecoder(columns, POOL, written=resolve(written_, columns)).decode(pa.array([b"\2"], pa.binary()))
    assert pa.record_batch(decoded).to_pylist() == [{"id": 1, "ping": b""}]


def test_a_name_that_another_branch_has_supersedes_files() -> None:
    held = columns_of(grown(program(of(CARD, TRANSFER)), program(of(CARD, rec("a.Cash", "x")))))
    ours = columns_of(grown(program(of(CARD, TRANSFER)), program(of(CARD, rec("b.Cash", "x")))))
    with pytest.raises(SchemaError, match="another branch has the column Cash"):
        added_types(held, ours, landing=True)
    assert [each.name for each in added_types(held, ours)[0].children] == ["Card", "Transfer", "Cash", "b_Cash"]
    with pytest.raises(SchemaError, match="the branch has the column member0, not Card"):
        added_types(
            columns_of(numbered(program(of(CARD, TRANSFER)))), columns_of(program(of(CARD, TRANSFER))), landing=True
        )


def test_columns_by_the_names_of_a_dataset() -> None:
    named = named_as(columns_of(program(of(TRANSFER, CARD, CASH))), OLD)
    assert [each.name for each in named[0].children] == ["member0", "member1", "Cash"]
    assert columns_of(program(of(CARD, TRANSFER))) == named_as(columns_of(program(of(CARD, TRANSFER))), ())


def test_no_record_is_read_into_a_struct_without_its_fields() -> None:
    def inner(*fields: str) -> Schema:
        return {"type": "record", "name": "T", "fields": [{"name": "f", "type": rec("R", *fields)}]}

    with pytest.raises(SchemaError, match=r"^f: none of the fields of the record has a column"):
        resolve(program(inner("a", "b")), program(inner("c")))
    resolve(program(inner("a", "b")), program(inner("b", "c")))


@pytest.mark.parametrize(
    "value", [[["a", "+s", True, [], ["x"], 5]], [["a", "l", True, [], "x"]], [["a", "l", True, [], [5]]]]
)
def test_what_is_no_branch(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a column"):
        columns_from_json(value)


def test_branches_of_random_schemas_land_under_their_names() -> None:
    chance = random.Random(30)
    pool = [rec(f"R{i}", *(chance.sample("abc", 2))) for i in range(5)] + ["int", "string", "long"]
    for _ in range(60):
        schemas = [of(*chance.sample(pool, chance.randint(2, 5))) for _ in range(4)]
        held: tuple[Column, ...] = ()
        union = program(schemas[0])
        for schema in schemas:
            union = grown(union, program(schema))
            held = columns_of(union)
            if chance.random() < 0.5:  # a new process
                union = adopted(program(schemas[0]), program_of(columns_from_json(columns_to_json(held))))
        for schema in schemas:
            for branch in schema["fields"][0]["type"]:
                if branch == "int":
                    continue  # fastavro writes a long where it can
                name = branch if isinstance(branch, str) else branch["name"]
                value = {"string": "x", "long": 1 << 40}.get(name) or (
                    name,
                    {f["name"]: f"{name}" for f in branch["fields"]},
                )
                (row,) = read(union, (schema, value))
                assert [*row] == [name]
