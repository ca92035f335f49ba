"""Names of datasets by topic, and the keys of a sink that has a dataset for each."""

from pathlib import Path

import pytest

from fastwire_daemon.config import ConfigError, PipelineConfig, parse_config
from fastwire_daemon.config.sinks.topicplaces import (
    config_of_every_topic,
    config_of_topic,
    dataset_name,
    name_key,
    place_pattern,
)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("shop.orders", "shop.orders"),
        ("Shop-Orders_2", "Shop-Orders_2"),
        ("persistent://shop/eu/orders", "shop.eu.orders"),
        ("persistent://shop/eu/größe 1", "shop.eu.gr__e_1"),
        ("__consumer_offsets", "topic__consumer_offsets"),
        (".hidden", "topic.hidden"),
        ("../../etc", "topic......etc"),
        ("-", "topic-"),
        ("a" * 130, "a" * 103 + "-d4da2d4b3a0f2c55"),
        ("of the table", "orders"),
    ],
)
def test_a_name_is_readable_and_safe(topic: str, name: str) -> None:
    made = dataset_name(topic, {"of the table": "orders"})
    if len(topic) > 120:
        assert made[:104] == name[:104] and len(made) == 120
        assert made != dataset_name(f"{topic}b", {})
    else:
        assert made == name


def test_names_that_would_meet_have_one_key() -> None:
    keys = {name_key(dataset_name(topic, {})) for topic in ("a.b", "a_b", "A-b", "A.B", "persistent://a/b")}
    assert keys == {"a_b"}
    assert name_key("ab") != "a_b"


def configured(sink: str, source: str = 'url = "kafka://a:9092"\ntopics_pattern = ".*"\n') -> PipelineConfig:
    text = f'[pipelines.p.source]\n{source}start = "earliest"\ngroup = "g"\n[pipelines.p.sink]\n{sink}'
    return parse_config(text).pipelines["p"]


def test_a_table_a_topic_by_the_schemas_of_a_registry(tmp_path: Path) -> None:
    """The whole configuration for a company's topics, with keys by a file for each of them beside it."""
    (tmp_path / "shop.a.avsc").write_text('"long"')
    keys = f'keys = {{ format = "avro", schema = "{tmp_path}/{{topic}}.avsc" }}\ncolumns = ["*", "_key"]\n'
    for more in ("", keys):
        decode = f'format = "avro"\nregistry = {{ url = "http://registry:8081" }}\n{more}[pipelines.p.sink]\n'
        text = f"""
            [pipelines.p.source]
            url = "kafka://broker:9092"
            topics_pattern = "shop\\\\..*"
            group = "lake"
            start = "earliest"
            [pipelines.p.decode]
            {decode}
            type = "iceberg"
            path = "s3://lake/{{topic}}"
            table = "raw.{{topic}}"
            catalog = {{ type = "rest", uri = "http://catalog" }}
        """
        config = parse_config(text).pipelines["p"]
        one = config_of_topic(config, "shop.a")
        assert one.decode is not None
        assert (str(one.sink.path), one.sink.table, one.decode.registered) == ("s3://lake/shop.a", "raw.shop_a", True)
        assert config_of_every_topic(config).decode is not None
        assert (one.decode.keys is None) == (not more)


def test_the_configuration_of_one_topic() -> None:
    config = configured(
        'type = "iceberg"\npath = "s3://lake/{topic}/v1"\ntable = "raw.{topic}"\n'
        'catalog = { type = "rest", uri = "http://c" }\nnames = { "shop.x" = "Orders.1" }\n'
    )
    assert config.sink.by_topic
    one, other = config_of_topic(config, "shop.x"), config_of_topic(config, "9.lives")
    assert (str(one.sink.path), one.sink.table) == ("s3://lake/Orders.1/v1", "raw.orders_1")
    assert (str(other.sink.path), other.sink.table) == ("s3://lake/9.lives/v1", "raw.t_9_lives")
    assert not one.sink.by_topic
    assert one.source.cluster_name == "a:9092"
    assert config_of_topic(config, "x", "c2").source.cluster_name == "c2"
    for cluster in (None, "c2"):
        chosen = config_of_topic(config, "x", cluster).source.chosen
        assert (chosen.names, chosen.pattern) == (("x",), None)  # from which columns are inferred


def test_topics_of_names_are_written_as_the_system_does() -> None:
    source = 'url = "pulsar://a:6650"\ntopics_pattern = "public/default/.*"\nsubscription = "s"\n'
    text = f'[pipelines.p.source]\n{source}start = "earliest"\n[pipelines.p.sink]\n'
    config = parse_config(f'{text}type = "parquet"\npath = "/lake/{{topic}}"\nnames = {{ orders = "o" }}\n').pipelines[
        "p"
    ]
    assert config.sink.names == {"persistent://public/default/orders": "o"}


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ('type = "parquet"\npath = "/lake"\nnames = { a = "b" }\n', 'sink.names: is for a path with "{topic}"'),
        ('type = "parquet"\npath = "/lake/{topic}"\nsplit = "topic"\n', 'sink.split: "topic" adds nothing'),
        ('type = "parquet"\npath = "/lake/{topic}"\nnames = { a = "../b" }\n', "sink.names.a: must be a name"),
        ('type = "parquet"\npath = "/lake/{topic}"\nnames = { a = "x.y", b = "X_y" }\n', "also the name of a"),
        (
            (
                'type = "iceberg"\npath = "/lake/{topic}"\ntable = "raw.all"\n'
                'catalog = { type = "rest", uri = "http://c" }\n'
            ),
            'sink.table: must have "{topic}"',
        ),
        (
            'type = "iceberg"\npath = "/lake"\ntable = "raw.{topic}"\ncatalog = { type = "rest", uri = "http://c" }\n',
            'sink.table: has "{topic}", so path must have it',
        ),
        ('type = "stdout"\npath = "/lake/{topic}"\n', "sink.path: is for files"),
    ],
)
def test_keys_that_do_not_fit(sink: str, problem: str) -> None:
    with pytest.raises(ConfigError) as failed:
        configured(sink)
    assert problem in str(failed.value)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("/lake/orders", "a dataset of pipeline p"),
        ("/lake/orders/deep", "a dataset of pipeline p"),
        ("/lake", None),
        ("/elsewhere", None),
    ],
)
def test_the_place_of_another_pipeline(inner: str, message: str | None) -> None:
    text = ""
    for name, path in (("p", "/lake/{topic}"), ("q", inner)):
        text += (
            f'[pipelines.{name}.source]\nurl = "kafka://{name}:9092"\ntopics = ["t"]\nstart = "earliest"\ngroup = "g"\n'
        )
        text += f'[pipelines.{name}.sink]\ntype = "parquet"\npath = "{path}"\n'
    if message is None and inner != "/lake":
        parse_config(text)
        return
    with pytest.raises(ConfigError, match=message or "lies within"):
        parse_config(text)


def test_places_of_all_datasets() -> None:
    pattern = place_pattern(Path("/lake/raw-{topic}/v1"))
    found = pattern.fullmatch("/lake/raw-shop.orders/v1")
    assert found is not None and found[1] == "shop.orders"
    assert pattern.fullmatch("/lake/raw-a/b/v1") is None


def decoding(decode: str, path: str = "/lake/{topic}") -> PipelineConfig:
    sink = f'type = "parquet"\npath = "{path}"\nnames = {{ "shop.orders" = "orders" }}\n'
    sink = sink if "{topic}" in path else f'type = "parquet"\npath = "{path}"\n'
    return configured(f'{sink}[pipelines.p.decode]\nformat = "avro"\n{decode}')


def test_schema_files_by_topic(tmp_path: Path) -> None:
    text = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
    (tmp_path / "orders.avsc").write_text(text)
    keys = f'keys = {{ format = "avro", schema = "{tmp_path}/{{topic}}.avsc" }}\n'
    config = decoding(f'schema = "{tmp_path}/{{topic}}.avsc"\ncolumns = ["id", "_key"]\n{keys}')
    own = config_of_topic(config, "shop.orders")
    assert own.decode is not None and own.decode.keys is not None
    assert own.decode.definition == own.decode.keys.definition == tmp_path / "orders.avsc"
    with pytest.raises(ConfigError) as failed:
        config_of_topic(config, "users")
    assert [problem.key for problem in failed.value.problems] == ["decode.keys.schema", "decode.schema"]
    config = decoding(f'schema = "{tmp_path}/{{topic}}.avsc"\ncolumns = ["id", "name"]\n')
    with pytest.raises(ConfigError, match=r'decode\.columns: "name" is neither a field'):
        config_of_topic(config, "shop.orders")


def test_a_schema_by_topic_needs_a_dataset_by_topic() -> None:
    keys = 'keys = { format = "avro", schema = "/s/{topic}.avsc" }\n'
    with pytest.raises(ConfigError) as failed:
        decoding(f'schema = "/s/{{topic}}.avsc"\ncolumns = ["*", "_key"]\n{keys}', "/lake")
    assert [(problem.key, "so sink.path must have it" in problem.message) for problem in failed.value.problems] == [
        ("pipelines.p.decode.schema", True),
        ("pipelines.p.decode.keys.schema", True),
    ]


def test_keys_that_need_inferred_columns_are_refused_beside_schemas_by_topic() -> None:
    keys = 'format = "json"\nschema = "/s/{topic}.avsc"\n'
    sink = 'type = "parquet"\npath = "/lake/{topic}"\n[pipelines.p.decode]\n'
    with pytest.raises(ConfigError, match=r"decode\.maps: is for schema"):
        configured(f'{sink}{keys}maps = ["stock"]')
    inferred = 'format = "json"\nschema = "infer"\ntransform = "SELECT 1 AS one"\ncolumns = ["*", "_key"]\n'
    with pytest.raises(ConfigError, match=r"decode\.transform"):
        configured(f"{sink}{inferred}[pipelines.p.decode.keys]\n{keys}")
