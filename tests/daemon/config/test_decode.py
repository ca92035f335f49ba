"""``[pipelines.NAME.decode]``: what is read, and mistakes with their key and line."""

import json
from pathlib import Path

import pytest

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.sinks.registry import decoder_of
from tests.support.config_file import MINIMAL, problems

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    return file


def decode(schema: Path, keys: str = "", base: str = MINIMAL) -> str:
    return f'{base}\n[pipelines.orders.decode]\nformat = "avro"\nschema = "{schema}"\n{keys}\n'


def test_a_schema_is_enough(schema: Path) -> None:
    found = parse_config(decode(schema), {}).pipelines["orders"].decode
    assert found is not None
    assert (found.definition, found.columns, found.on_error) == (schema, ("*",), "dead_letter")
    assert parse_config(MINIMAL, {}).pipelines["orders"].decode is None


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ('columns = ["*", "_ofset"]', 'decode.columns: "_ofset" is neither a field of the schema nor a column'),
        ('columns = ["id", "id"]', 'decode.columns: "id" is repeated'),
        ("columns = []", "decode.columns: names no column"),
        ('on_error = "drop"', 'decode.on_error: must be "dead_letter" or "stop"'),
        ('transform = "SELECT count(*) FROM batch"', 'decode.transform: "count_star" aggregates'),
        ('transform = "SELECT no FROM batch"', 'decode.transform: there is no column "no", did you mean "note"?'),
        ('transform = ""', "decode.transform: is empty"),
        ('colums = ["*"]', 'decode.colums: unknown key, did you mean "columns"?'),
    ],
)
def test_mistakes_have_their_key_and_line(schema: Path, keys: str, expected: str) -> None:
    text = decode(schema, keys)
    (only,) = problems(text)
    line = text.splitlines().index(keys) + 1
    assert only.startswith(f"f.toml:{line}: pipelines.orders.{expected}")


def test_a_schema_that_cannot_be_used(schema: Path) -> None:
    missing = schema.with_name("no.avsc")
    assert problems(decode(missing)) == [
        f"f.toml:13: pipelines.orders.decode.schema: cannot read {missing}: No such file or directory"
    ]
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "strin"}]}')
    assert problems(decode(schema)) == [
        f'f.toml:13: pipelines.orders.decode.schema: {schema}: a: "strin" is not a type'
    ]
    schema.write_bytes(b"\xff")
    assert problems(decode(schema)) == [f"f.toml:13: pipelines.orders.decode.schema: {schema} is not UTF-8 text"]
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    schema.write_text(json.dumps({**SCHEMA, "fields": [{"name": "at", "type": nanos}]}))
    assert problems(decode(schema)) == [
        "f.toml:13: pipelines.orders.decode.schema: at has nanoseconds, but parquet files keep microseconds"
    ]
    assert problems(decode(schema).replace(f'schema = "{schema}"\n', "")) == [
        "f.toml:11: pipelines.orders.decode.schema: is required: the file with the schema of the values"
    ]


def test_a_field_with_the_name_of_a_chosen_column_of_the_records(schema: Path) -> None:
    schema.write_text(json.dumps({**SCHEMA, "fields": [{"name": "_offset", "type": "int"}]}))
    (only,) = problems(decode(schema, 'columns = ["_offset"]'))
    assert only.endswith('"_offset" is a field of the schema and a column of the records: leave it out')


def test_a_type_that_json_has_no_single_form_of(schema: Path) -> None:
    text = decode(schema).replace('"avro"', '"json"')
    assert parse_config(text, {}).pipelines["orders"].decode is not None
    schema.write_text(json.dumps({**SCHEMA, "fields": [{"name": "a", "type": ["int", "string"]}]}))
    (only,) = problems(text)
    assert only.endswith(f"decode.schema: {schema}: a: a union of several types is not supported in JSON")


def test_json_has_no_registry(schema: Path) -> None:
    text = decode(schema, 'registry = { url = "https://registry.example.com" }').replace('"avro"', '"json"')
    (only,) = problems(text)
    assert 'decode.registry: with a URL is for format = "avro"' in only


def test_a_registry_needs_no_schema_file(schema: Path) -> None:
    text = decode(schema, 'registry = { url = "https://r.example" }').replace(f'schema = "{schema}"\n', "")
    found = parse_config(text, {}).pipelines["orders"].decode
    assert found is not None
    assert (found.registered, found.inferred, found.definition) == (True, True, None)
    for more, expected in (
        ('columns = ["id"]', 'decode.columns: must have "*" beside a registry without a schema file'),
        ('transform = "SELECT id FROM batch"', "decode.transform: needs columns that are known: a registry without"),
        ('columns = ["*", "_x"]', 'decode.columns: "_x" is not known before there are records'),
    ):
        (only,) = problems(text.replace("registry =", f"{more}\nregistry ="))
        assert expected in only
    _, last = problems(text.replace("registry =", 'schema = "infer"\nregistry ='))
    assert 'decode.registry: has the schemas of the values, so leave out schema = "infer"' in last
    with pytest.raises(ConfigError, match=r"decode\.schema: is required"):
        decoder_of(parse_decode({"format": "avro"}), "kafka")


def test_decoding_is_for_sinks_of_files(schema: Path) -> None:
    text = decode(schema).replace('type = "parquet"', 'type = "jsonl"')
    assert parse_config(text, {}).pipelines["orders"].decode is not None
    (only,) = problems(text.replace('type = "jsonl"', 'type = "discard"').replace('path = "/data/orders"\n', ""))
    assert only.endswith(
        "pipelines.orders.decode: is for the sinks parquet, arrow, jsonl, delta, iceberg, postgresql, stdout, not for "
        "discard"
    )


def test_columns_are_chosen_in_one_place(schema: Path) -> None:
    text = decode(schema).replace('path = "/data/orders"', 'path = "/data/orders"\ncolumns = ["key"]')
    (only,) = problems(text)
    assert "pipelines.orders.sink.columns: decode.columns chooses the columns" in only


def test_the_values_of_any_system(schema: Path) -> None:
    text = decode(schema).replace("pulsar://127.0.0.1:6650", "tubemq://127.0.0.1:8715")
    text = text.replace('"persistent://public/default/orders"', '"orders"').replace("subscription =", "group =")
    assert parse_config(text, {}).pipelines["orders"].decode is not None


def test_a_registry(schema: Path) -> None:
    keys = 'registry = { url = "https://r.example/api", auth = { user = "Ann", password = "p" } }'
    found = parse_config(decode(schema, keys), {}).pipelines["orders"].decode
    assert found is not None
    assert found.registry is not None
    assert not found.by_brokers
    assert (found.registry.url, found.registry.auth.user) == ("https://r.example/api", "Ann")


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("5", "registry: must be a table, not a number"),
        ('{ auth = { token = "t" } }', 'registry.url: is required: the registry, such as "https://registry.example'),
        ('"kafka"', 'registry: must be "pulsar", its brokers, or a registry such as { url ='),
        ('{ system = "pulsar", url = "https://a.example" }', "registry: has other keys beside system: the brokers"),
        ('{ url = "r.example" }', 'registry.url: must be a URL such as "https://registry.example.com"'),
        ('{ url = "https://a:b@r.example" }', 'registry.url: must be a URL such as "https://registry.example.com"'),
        (
            '{ url = "HTTP://r.example", auth = { token = "t" } }',
            "registry.url: must be https://: the credentials would cross the network unencrypted",
        ),
        ('{ url = "https://r.example", auth = { user = "a" } }', "registry.auth.user: needs password or password_file"),
        (
            '{ url = "http://r.example", tls = { ca = "/ca.pem" } }',
            "registry.tls: needs an encrypted connection: https:// in url",
        ),
        ('{ url = "https://r.example", tls = { key = "/k.pem" } }', "registry.tls.key: is the key of a certificate"),
    ],
)
def test_mistakes_of_a_registry(schema: Path, registry: str, expected: str) -> None:
    (only,) = problems(decode(schema, f"registry = {registry}"))
    assert only.partition(": ")[2].startswith(f"pipelines.orders.decode.{expected}")


@pytest.mark.parametrize("form", ["avro", "json"])
def test_brokers_may_have_the_schemas(schema: Path, form: str) -> None:
    text = decode(schema, 'registry = "pulsar"').replace('"avro"', f'"{form}"')
    found = parse_config(text, {}).pipelines["orders"].decode
    assert found is not None
    assert found.by_brokers


def test_brokers_that_have_no_schemas(schema: Path) -> None:
    base = MINIMAL.replace("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:9092").replace("subscription", "group")
    base = base.replace("persistent://public/default/", "")
    (only,) = problems(decode(schema, 'registry = "kafka"', base))
    assert "decode.registry: brokers of Kafka keep no schemas: name a registry by { url =" in only


def test_keys_have_a_schema_of_their_own(schema: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.avsc"
    key.write_text('"long"')
    keys = f'keys = {{ format = "avro", schema = "{key}" }}'
    found = parse_config(decode(schema, f'{keys}\ncolumns = ["*", "_key"]'), {}).pipelines["orders"].decode
    assert found is not None
    assert found.keys is not None
    assert (found.keys.format, found.keys.definition) == ("avro", key)
    (only,) = problems(decode(schema, keys))
    assert 'decode.keys: decodes the column _key: add "_key" to columns' in only
    (only,) = problems(decode(schema, f'{keys}\ncolumns = ["_key"]'.replace("avro", "json", 1)))
    assert f"decode.keys.schema: {key}: the schema is not a record" in only
    (only,) = problems(decode(schema, 'keys = { format = "avro" }\ncolumns = ["_key"]'))
    assert "decode.keys.schema: is required" in only


def test_credentials_may_stay_on_this_machine(schema: Path) -> None:
    parse_config(decode(schema, 'registry = { url = "http://127.0.0.1:8081", auth = { token = "t" } }'), {})


# --- folders by values

PLACES = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "country", "type": ["null", "string"]},
        {"name": "level", "type": "int"},
        {"name": "weight", "type": "double"},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "p", "type": "int"},
    ],
}


def by(schema: Path, value: str) -> str:
    schema.write_text(json.dumps(PLACES))
    return decode(schema, base=f"{MINIMAL}partition_by = {value}\n")


@pytest.mark.parametrize(
    ("value", "level", "columns"),
    [
        ('{ column = "country" }', "none", ("country",)),
        ('{ column = "seen", by = "hour" }', "hour(seen)", ()),
        (
            '[{ column = "born" }, { column = "born", by = "day" }, { column = "level" }]',
            "day(born)",
            ("born", "level"),
        ),
        ('"hour"', "hour", ()),
    ],
)
def test_columns_that_become_folders(schema: Path, value: str, level: str, columns: tuple[str, ...]) -> None:
    found = parse_config(by(schema, value), {}).pipelines["orders"].sink.partition_by
    assert (found.level, found.columns) == (level, columns)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{ column = "contry" }', 'there is no field "contry" in the schema, did you mean "country"?'),
        ('{ column = "weight" }', '"weight" cannot name folders: only texts, integers, booleans and dates can'),
        ('{ column = "seen" }', '"seen" is a timestamp: add by = "day" or by = "hour"'),
        ('{ column = "level", by = "day" }', '"level" is neither a timestamp nor a date, so it has no day'),
        ('{ column = "p" }', '"p" cannot name a folder: letters, digits and _ only, a letter first, and not one of t'),
        ('{ colum = "level" }', 'has an unknown key "colum", did you mean "column"?: there are column and by'),
        ('{ by = "day" }', "must have columns such as"),
        ('{ column = "seen", by = "week" }', 'by must be "day" or "hour"'),
        ('[{ column = "level" }, { column = "level" }]', '"level" is repeated'),
        ('[{ column = "seen", by = "day" }, { column = "born", by = "day" }]', "has more than one time"),
        ('["level"]', 'must have columns such as { column = "country" }, not a string'),
        ("[]", "names no column"),
        ('"weekly"', 'must be "none", "day", "hour" or a column such as { column = "country" }, not "weekly"'),
    ],
)
def test_columns_that_cannot_become_folders(schema: Path, value: str, expected: str) -> None:
    text = by(schema, value)
    (only,) = problems(text)
    line = text.splitlines().index(f"partition_by = {value}") + 1
    assert only.startswith(f"f.toml:{line}: pipelines.orders.sink.partition_by: {expected}")


def test_folders_by_values_need_decoded_values() -> None:
    (only,) = problems(f'{MINIMAL}partition_by = {{ column = "country" }}\n')
    assert only.endswith("takes columns of decoded values or of a transform: add the table decode to this pipeline")


def test_one_field_must_be_left_for_the_files(schema: Path) -> None:
    text = decode(schema, base=f'{MINIMAL}partition_by = [{{ column = "id" }}, {{ column = "note" }}]\n')
    (only,) = problems(text)
    assert only.endswith("sink.partition_by: has every field of the schema: none is left for the files")


def test_folders_of_a_transform_are_named_by_its_result(schema: Path) -> None:
    keys = 'transform = "SELECT id, upper(note) AS kind, make_timestamp(id) AS made FROM batch"'
    sink = 'partition_by = [{ column = "made", by = "hour" }, { column = "kind" }]'
    assert parse_config(decode(schema, keys, f"{MINIMAL}\n{sink}"), {}).pipelines["orders"].sink.partition_by
    assert problems(decode(schema, keys, f'{MINIMAL}\npartition_by = {{ column = "note" }}')) == [
        'f.toml:11: pipelines.orders.sink.partition_by: there is no column "note" in the transform'
    ]


def test_nanoseconds_of_a_transform_are_for_arrow_files(schema: Path) -> None:
    keys = 'transform = "SELECT id, CAST(note AS TIMESTAMP_NS) AS made FROM batch"'
    assert problems(decode(schema, keys)) == [
        "f.toml:14: pipelines.orders.decode.transform: made has nanoseconds, but parquet files keep microseconds"
    ]
    assert parse_config(decode(schema, keys, MINIMAL.replace("parquet", "arrow")), {})
