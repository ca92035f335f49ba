"""From a configuration to a sink, built in or of somebody else's."""

import json
from base64 import b64encode
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.base import Sink
from fastwire_daemon.sinks.dataset import DatasetSink, file_extension
from fastwire_daemon.sinks.decodedstdout import DecodedStdoutSink
from fastwire_daemon.sinks.discard import DiscardSink
from fastwire_daemon.sinks.registry import build_sink, decoder_of, load_encoder, value_decoder
from fastwire_daemon.sinks.stdout import StdoutSink
from tests.support.protobuf import FileProto, field
from tests.support.schema_registry import serving


def pipeline(sink: str, subscription: str = "failover") -> Any:
    text = f"""
        [pipelines.p.source]
        url = "pulsar://127.0.0.1:6650"
        topics = ["persistent://public/default/orders"]
        subscription = "s"
        subscription_type = "{subscription}"
        start = "earliest"
        [pipelines.p.sink]
        {sink}
    """
    return parse_config(text).pipelines["p"]


@pytest.mark.parametrize(
    ("kind", "extension"),
    [("parquet", "parquet"), ("arrow", "arrow"), ("jsonl", "jsonl"), ('jsonl"\ncompression = "zstd', "jsonl.zst")],
)
def test_a_dataset_from_a_configuration(kind: str, extension: str, tmp_path: Path) -> None:
    table = f'type = "{kind}"\npath = "{tmp_path}/d"\ncolumns = ["offset", "value"]\nsplit = "topic"\nwriters = 2'
    sink = build_sink(pipeline(table), memory=1 << 28)
    assert isinstance(sink, DatasetSink)
    sink.open()
    sink.create_dataset()
    sink.close()
    description = json.loads((tmp_path / "d" / "_fastwire" / "dataset.json").read_text())
    assert description["extension"] == extension
    assert description["columns"] == ["value", "offset"]
    assert description["split"] == "topic"
    assert description["cluster"] == "127.0.0.1:6650"


def test_plain_sinks_from_a_configuration() -> None:
    assert isinstance(build_sink(pipeline('type = "stdout"'), memory=1 << 28), StdoutSink)
    assert isinstance(build_sink(pipeline('type = "discard"'), memory=1 << 28), DiscardSink)
    decode = '[pipelines.p.decode]\nformat = "avro"\nschema = "docs/orders.avsc"'
    assert isinstance(build_sink(pipeline(f'type = "stdout"\n{decode}'), memory=1 << 28), DecodedStdoutSink)


@pytest.mark.parametrize(
    ("named", "columns"),
    [({}, ["id int64", "place struct<city string not null>"]), ({"message": "shop.Place"}, ["city string"])],
    ids=["its only one", "a named one"],
)
def test_the_columns_of_a_registry_are_those_of_the_configured_message(
    named: dict[str, str], columns: list[str]
) -> None:
    made = FileProto(name="shop.proto", package="shop", syntax="proto3")
    made.message_type.add(name="Order").field.extend([field("id", 1, "int64"), field("place", 2, "shop.Place")])
    made.message_type.add(name="Place").field.append(field("city", 1, "string"))
    with serving() as registry:
        registry.newest("orders-value", 1, "", schemaType="PROTOBUF")
        body = {"schemaType": "PROTOBUF", "schema": b64encode(made.SerializeToString()).decode()}
        registry.answers["/schemas/ids/1?format=serialized"] = (200, json.dumps(body).encode())
        decoder = decoder_of(parse_decode({"format": "protobuf", "registry": {"url": registry.url}, **named}), "kafka")
        decoder.begin("orders")
    assert [str(each) for each in decoder.types] == columns


def test_a_query_has_the_types_of_decoded_keys(tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('"long"')
    decode = f"""
        [pipelines.p.decode]
        format = "avro"
        schema = "docs/orders.avsc"
        columns = ["*", "_key"]
        keys = {{ format = "avro", schema = "{tmp_path}/key.avsc" }}
        transform = "SELECT id, _key, _key + 1 AS next FROM batch"
    """
    decoder = value_decoder(pipeline(f'type = "parquet"\npath = "{tmp_path}/d"\n{decode}'))
    assert decoder is not None
    assert [str(column) for column in decoder.types[1:]] == ["_key int64", "next int64"]


class PluginSink(DiscardSink):
    """As somebody else might write it."""

    def __init__(self, *, bucket: str, writers: int = 1) -> None:
        super().__init__()
        self.bucket = bucket
        self.writers = writers


def not_a_sink() -> object:
    return object()


class FancyEncoder(ParquetEncoder):
    """An encoder of another distribution."""


class NotAnEncoder:
    extension = "csv"


PLUGINS = {
    "fastwire.sinks": {"mine": "PluginSink", "odd": "not_a_sink", "gone": "Missing"},
    "fastwire.encoders": {"fancy": "FancyEncoder", "csv": "NotAnEncoder"},
}


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*, group: str) -> list[EntryPoint]:
        return [EntryPoint(name, f"{__name__}:{target}", group) for name, target in PLUGINS.get(group, {}).items()]

    monkeypatch.setattr("importlib.metadata.entry_points", found)


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_gets_the_keys_of_its_table() -> None:
    sink = build_sink(pipeline('type = "mine"\nbucket = "b"\nwriters = 3'), memory=1 << 28)
    assert isinstance(sink, Sink)
    assert type(sink).__name__ == "PluginSink"
    assert (sink.bucket, sink.writers) == ("b", 3)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            'type = "mine"\nbucket = "b"\nbuckets = 2',
            "sink: the sink mine does not accept the keys of its table: got an unexpected keyword argument 'buckets'",
        ),
        ('type = "odd"', "sink.type: odd returns object, which is not a sink (open, write, commit, close)"),
        (
            'type = "gone"',
            (
                f"sink.type: the plug-in gone ({__name__}:Missing) cannot be loaded: "
                f"module '{__name__}' has no attribute 'Missing'"
            ),
        ),
        (
            'type = "csv"\npath = "/tmp/x"',
            'sink.type: "csv" is not an encoder: it lacks compressions, write, flush, finish',
        ),
        (
            'type = "fancy"\npath = "/tmp/x"\ncompression = "rar"',
            "sink.compression: unknown compression 'rar'; this encoder takes zstd, lz4, snappy, gzip, none",
        ),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_explained(table: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_sink(pipeline(table), memory=1 << 28)
    assert str(caught.value) == message


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_that_wants_more_than_its_table_holds() -> None:
    said = r"^sink: the sink mine does not accept the keys of its table: missing a required .*argument: 'bucket'$"
    with pytest.raises(ConfigError, match=said):  # in the words of this Python
        build_sink(pipeline('type = "mine"'), memory=1 << 28)


@pytest.mark.usefixtures("plugins")
def test_an_encoder_of_somebody_else_s_makes_a_dataset(tmp_path: Path) -> None:
    assert load_encoder("fancy").__name__ == "FancyEncoder"
    sink = build_sink(pipeline(f'type = "fancy"\npath = "{tmp_path}/d"'), memory=1 << 28)
    assert isinstance(sink, DatasetSink)
    sink.close()


def test_extensions() -> None:
    assert file_extension(ParquetEncoder, None) == "parquet"
    assert file_extension(JsonlEncoder, "gzip:9") == "jsonl.gz"
    with pytest.raises(ValueError, match="unknown compression 'lz4'"):
        file_extension(JsonlEncoder, "lz4")
