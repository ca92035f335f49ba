"""``[spark.NAME]``: what is accepted, what it becomes, and every mistake with its key and place."""

from pathlib import Path

import pytest

from fastwire.grammar import NamePattern
from fastwire.systems import SYSTEMS
from fastwire_daemon.config import (
    Config,
    Secured,
    SparkBrokers,
    SparkDataset,
    SubscribedBrokers,
    json_schema,
    parse_config,
)
from fastwire_daemon.config.brokers.sparksource import brokers_model
from fastwire_daemon.config.sinks.catalog import catalog_of
from fastwire_daemon.config.sinks.store import StoreUrl
from tests.support.config_file import problems

LEAST = """\
[spark.orders]
source = { dataset = "/data/orders" }
output = { path = "/lake/orders", dead_letters = "/lake/bad", checkpoint = "/lake/_chk" }
"""


def parsed(text: str) -> Config:
    return parse_config(text, {})


def test_the_least_that_a_job_needs() -> None:
    config = parsed(LEAST)
    assert config.pipelines == {}
    job = config.spark["orders"]
    assert (job.decode.format, job.dedupe, job.trigger) == ("none", None, None)
    assert (job.output.format, job.output.partition_by, job.output.compression) == ("parquet", (), "zstd:1")
    assert isinstance(job.source, SparkDataset)
    assert (job.source.dataset, job.source.max_files) == (Path("/data/orders"), 100)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1 hour", 3600.0), ("90 seconds", 90.0), ("2 days", 172_800.0), ("1h30m", 5400.0)]
)
def test_times_as_here_and_as_spark_has_them(text: str, seconds: float) -> None:
    job = parsed(LEAST + f'dedupe = {{ key = ["id"], watermark = "{text}" }}\ntrigger = "30s"\n').spark["orders"]
    assert job.dedupe is not None
    assert (job.dedupe.watermark, job.trigger) == (seconds, 30.0)


def test_all_mistakes_at_once_each_with_its_place() -> None:
    text = """\
[spark."a b"]
source = { dataste = "/x", max_files = 0 }
decode = { format = "jsno" }
trigger = "availablenow"

[spark.b]
source = { dataset = "/data/b" }
decode = { format = "protobuf", framing = "confluent" }
dedupe = { key = [], watermark = "soon" }
trigger = 5

[spark.b.output]
path = "/lake/b"
partition_by = ["date", "date", "a=b"]
dead_letters = "/lake/b/bad"
checkpoint = "/data/b"
format = "spark-parquet"
compression = "zstd:3"

[spark.c]
source = { dataset = "/data/c" }
decode = { message = "x", schema = "y", ids = [1] }
dedupe = { key = ["a", "a"] }
output = { path = "/lake/b", dead_letters = "/lake/c_bad", checkpoint = "/lake/c_chk", compression = "zip" }
"""
    assert problems(text) == [
        'f.toml:1: spark."a b": a name consists of letters, digits and _ . - only',
        'f.toml:1: spark."a b".output: is required: { path = "…", dead_letters = "…", checkpoint = "…" }',
        'f.toml:2: spark."a b".source.dataset: is required: the folder of a landed dataset; or url, the brokers',
        'f.toml:2: spark."a b".source.max_files: must be at least 1, not 0',
        'f.toml:2: spark."a b".source.dataste: unknown key, did you mean "dataset"?',
        (
            'f.toml:3: spark."a b".decode.format: must be "json", "avro", "protobuf" or "none", not "jsno", '
            'did you mean "json"?'
        ),
        (
            'f.toml:4: spark."a b".trigger: must be "available-now" or a time such as "30s", not "availablenow", '
            'did you mean "available-now"?'
        ),
        "f.toml:8: spark.b.decode.schema: is required: a file by protoc --include_imports --descriptor_set_out=FILE",
        "f.toml:8: spark.b.decode.message: is required: the full name of the message, such as shop.Order",
        "f.toml:8: spark.b.decode.ids: is required: the ids of this schema in the registry, such as [7]",
        "f.toml:9: spark.b.dedupe.key: names no column",
        'f.toml:9: spark.b.dedupe.watermark: must be a time such as "30s", not "soon"',
        'f.toml:10: spark.b.trigger: must be "available-now" or a time such as "30s", not a number',
        'f.toml:14: spark.b.output.partition_by[1]: "date" is repeated',
        (
            'f.toml:14: spark.b.output.partition_by[2]: "a=b" is not a valid folder name: use letters, digits '
            "and _ only, a letter first"
        ),
        "f.toml:15: spark.b.output.dead_letters: is inside output.path, or contains it",
        "f.toml:16: spark.b.output.checkpoint: is also the folder of source.dataset",
        (
            'f.toml:17: spark.b.output.format: "spark-parquet" is no longer supported: it duplicated or lost '
            'rows when its checkpoint was deleted. Use "parquet", with a new path and a new checkpoint: it has '
            "the same folders, without batch=…"
        ),
        ('f.toml:22: spark.c.decode.schema: is for decoded values: format = "json", "avro" or "protobuf" is missing'),
        "f.toml:22: spark.c.decode.message: is for protobuf only",
        'f.toml:22: spark.c.decode.ids: is for framing = "confluent" only',
        'f.toml:23: spark.c.dedupe.key[1]: "a" is repeated',
        'f.toml:23: spark.c.dedupe.watermark: is required: how late the second copy may come, such as "1 hour"',
        'f.toml:24: spark.c.output.compression: parquet has no compression "zip", did you mean "gzip"?',
        "f.toml:24: spark.c.output.path: is also the folder of output.path of job b",
    ]


def test_the_formats_of_a_table() -> None:
    """Iceberg needs a catalog and the name of the table, the other formats have neither; all mistakes at once."""

    def lake(form: str, more: str = "") -> str:
        return f'{DIRECT}format = "{form}"\n{more}'

    def told(form: str, more: str = "") -> list[str]:
        return [each.partition(": spark.orders.output.")[2] for each in problems(lake(form, more))]

    catalog = 'catalog = { type = "sql", uri = "sqlite:////catalog.db", password = "hidden" }\ntable = "shop.orders"'
    output = parsed(lake("iceberg", catalog)).spark["orders"].output
    assert (output.table_format, output.table) == ("iceberg", "shop.orders")
    assert catalog_of(output)["password"] == "hidden" and "hidden" not in repr(output)
    assert parsed(lake("delta")).spark["orders"].output.table_format == "delta"
    assert parsed(lake("parquet")).spark["orders"].output.table_format == ""
    assert told("iceberg") == [
        "catalog: is required: the catalog that has the table",
        'table: is required: the name of the table: "shop.orders"',
    ]
    assert told("delta", catalog) == ['catalog: is for format = "iceberg"', 'table: is for format = "iceberg"']
    assert told("iceberg", catalog.replace('"sql"', '"rest"').replace("shop.", "")) == [
        'catalog.password: is for type = "sql"',
        'table: must be a namespace and a name: "shop.orders"',
    ]
    assert told("detla") == [
        'format: must be "parquet", "delta" or "iceberg", not "detla", did you mean "delta"?',
    ]
    assert told("dataset") == [
        'format: "dataset" is called "parquet" now; the table and the checkpoint stay as they are',
    ]


DIRECT = """\
[spark.orders.source]
url = "pulsar+ssl://broker"
topics = ["orders"]
group = "spark"
start = "2026-01-02T03:00:00Z"
auth = { token_file = "token" }
tls = { verify = false }
encryption = { private_keys = { a = "/keys/a.pem" } }

[spark.orders.output]
path = "/lake/orders"
dead_letters = "/lake/bad"
checkpoint = "/lake/_chk"
"""


def brokers(config: Config) -> SparkBrokers:
    source = config.spark["orders"].source
    assert isinstance(source, SparkBrokers)
    return source


def test_brokers_as_a_source() -> None:
    config = parsed(DIRECT)
    source = brokers(config)
    assert (source.group, source.max_records) == ("spark", 5_000_000)
    assert (source.topics, source.on_data_loss) == (("persistent://public/default/orders",), "stop")
    assert source.access == {
        "auth.token_file": str(Path("token").absolute()),
        "tls.verify": "false",
        "encryption.private_keys": '{"a": "/keys/a.pem"}',
    }
    assert brokers(parsed(DIRECT.replace('start = "2026-01-02T03:00:00Z"\n', ""))).start.kind == "earliest"
    # `check --connect` asks its brokers as it asks those of a pipeline.
    assert config.sources == {"spark.orders": source}


def test_topics_by_a_pattern_in_the_words_of_their_system() -> None:
    def patterned(system: str, pattern: str) -> str:
        text = DIRECT.replace('topics = ["orders"]', f'topics_pattern = "{pattern}"')
        if system == "kafka":
            text = text.replace('encryption = { private_keys = { a = "/keys/a.pem" } }\n', "")
        return text.replace("tls = { verify = false }\n", "").replace("pulsar+ssl://", f"{system}://")

    source = brokers(parsed(patterned("pulsar", "shop/x/orders-.*")))
    assert str(source.topics_pattern) == "persistent://shop/x/orders-.*"
    source = brokers(parsed(patterned("kafka", "orders-.*")))
    assert isinstance(source.topics_pattern, NamePattern) and source.topics_pattern.matches("orders-1")
    assert source.model_dump(mode="json")["topics_pattern"] == "orders-.*"
    where = "f.toml:3: spark.orders.source.topics_pattern: "
    assert problems(patterned("kafka", "a("))[0].startswith(where + '"a(": not a regular expression: ')
    assert problems(patterned("kafka", "")) == [where + 'is empty; ".*" means all topics']
    assert problems(patterned("pulsar", "a/b"))[0].startswith(where + '"a/b": a pattern is TENANT/NAMESPACE/REGEX')
    both = DIRECT.replace("topics =", 'topics_pattern = "a"\ntopics =')
    assert problems(both) == [where + "topics is given too: use one of them"]


def test_the_table_may_be_in_an_object_store() -> None:
    text = LEAST.replace('path = "/lake/orders"', 'path = "s3://lake/orders/", store = { region = "eu-west-1", STORE }')
    output = parsed(text.replace(", STORE", "")).spark["orders"].output
    assert isinstance(output.path, StoreUrl) and output.path == "s3://lake/orders"
    assert output.store is not None and output.store.settings() == {"region": "eu-west-1"}
    where = "spark.orders.output."
    key = 'access_key_id = "me", secret_access_key = "secret"'
    (said,) = problems(text.replace("STORE", key))
    assert f"{where}store.secret_access_key: would be sent to all executors in clear text" in said
    (said,) = problems(text.replace("STORE", 'account_name = "lake"'))
    assert f"{where}store.account_name: is for az:// only" in said
    (said,) = problems(LEAST.replace('path = "/lake/orders"', 'path = "/lake/orders", store = { region = "r" }'))
    assert f"{where}store: is for object stores" in said
    (said,) = problems(LEAST.replace('dead_letters = "/lake/bad"', 'dead_letters = "s3://lake/bad"'))
    assert f"{where}dead_letters: " in said


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ('{ token = "abc" }', "auth.token: would be sent to all executors in clear text: use token_file"),
        ('{ token = "env:TOKEN" }', None),
        (
            '{ user = "u", password = "abc" }',
            "auth.password: would be sent to all executors in clear text: use password_file",
        ),
        (
            '{ oauth2 = { issuer_url = "https://i", client_id = "c", client_secret = "abc" } }',
            "auth.oauth2.client_secret: would be sent to all executors in clear text: use client_secret_file",
        ),
    ],
)
def test_secrets_are_files(auth: str, problem: str | None) -> None:
    text = DIRECT.replace('{ token_file = "token" }', auth)
    if problem is None:
        assert brokers(parsed(text)).access["auth.token"] == "env:TOKEN"
    else:
        assert problems(text) == [f"f.toml:6: spark.orders.source.{problem}"]


def test_all_mistakes_of_sources() -> None:
    text = """\
[spark.a]
source = { dataset = "/data/a", topics = ["t"], group = "g" }
[spark.b]
source = { url = "kafka://h", dataset = "/data/b", topics = ["a b"], subscription = "s", group = "s", listner = "x" }
[spark.c]
source = { url = "pulsar://h", start = { "t-partition-0" = "1:2" }, columns = ["key", "nokey"], rack = "x" }
decode = { format = "json", schema = "s" }
[spark.d]
source = { url = "kafka://h", topics = ["t"], auth = { user = "u" }, tls = {}, columns = ["ledger"] }
[spark.e]
source = {}
[spark.f]
source = { topics = ["t"], group = "g" }
"""
    text = "".join(
        line
        + (
            f'output = {{ path = "/{line[7]}1", dead_letters = "/{line[7]}2", checkpoint = "/{line[7]}3" }}\n'
            if line[0] == "["
            else ""
        )
        for line in text.splitlines(keepends=True)
    )
    assert [each.removeprefix("f.toml:") for each in problems(text)] == [
        "3: spark.a.source.group: is for reading from brokers: url is missing",
        "3: spark.a.source.topics: is for reading from brokers: url is missing",
        "6: spark.b.source.dataset: is for reading a landed dataset, but url is given: use one of them",
        "6: spark.b.source.group: is an alias of subscription, which is given too",
        "6: spark.b.source.topics[0]: topic 'a b': a name has up to 249 letters, digits and . _ - only",
        "6: spark.b.source.listner: unknown key",
        '9: spark.c.source.columns: lacks "value", which is decoded',
        "9: spark.c.source.rack: is not supported for pulsar: it is a key for kafka",
        (
            "9: spark.c.source.topics: is required: the names of the topics, such as "
            '["persistent://public/default/orders"], or topics_pattern'
        ),
        '9: spark.c.source.start: must be "earliest", "latest" or a time such as "2025-01-31T00:00:00Z" for a job',
        '9: spark.c.source.columns[1]: "nokey" is not a column, did you mean "key"?',
        "13: spark.d.source.tls: needs an encrypted connection: kafka+ssl:// in url",
        "13: spark.d.source.auth.user: needs password or password_file",
        '13: spark.d.source.columns[0]: records of kafka have no "ledger"',
        "16: spark.e.source.dataset: is required: the folder of a landed dataset; or url, the brokers",
        (
            '19: spark.f.source.url: is required: the broker, such as "pulsar://127.0.0.1:6650" or '
            '"kafka://127.0.0.1:9092" or "tank://127.0.0.1:11011" or "tubemq://127.0.0.1:8715"'
        ),
    ]


def test_a_system_that_jobs_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fastwire_daemon.systems.kafka.config.SPARK")
    text = LEAST.replace('dataset = "/data/orders"', 'url = "kafka://h", topics = ["t"]')
    why = "jobs do not read Kafka: land its records as a dataset, and read that"
    assert problems(text) == [f"f.toml:2: spark.orders.source.url: {why}"]


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_values_that_are_decoded_need_a_schema(form: str) -> None:
    assert any("decode.schema: is required" in each for each in problems(LEAST + f'decode = {{ format = "{form}" }}\n'))


def test_the_schema_of_a_job_is_printed() -> None:
    schema = json_schema()
    assert schema["anyOf"] == [{"required": ["pipelines"]}, {"required": ["spark"]}]
    assert "schema" in schema["$defs"]["SparkDecode"]["properties"]
    assert schema["$defs"]["SparkConfig"]["required"] == ["source", "output"]
    sources = [
        each["$ref"].rpartition("/")[2] for each in schema["$defs"]["SparkConfig"]["properties"]["source"]["anyOf"]
    ]
    assert sources == ["SparkDataset", *(brokers_model(system).__name__ for system in SYSTEMS)]
    assert schema["$defs"]["SparkDataset"]["required"] == ["dataset"]
    for system, model in zip(SYSTEMS, sources[1:], strict=True):
        properties = schema["$defs"][model]["properties"]
        assert {"url", "topics", "max_records"} <= properties.keys()
        assert ("auth" in properties) == issubclass(brokers_model(system), Secured)
        assert ("group" in properties) == issubclass(brokers_model(system), SubscribedBrokers)
        assert schema["$defs"][model]["required"] == ["url"]


def test_a_job_has_one_dataset() -> None:
    text = '[spark.j.source]\ndataset = "/lake/{topic}"\n[spark.j.output]\npath = "/out/{topic}"\n'
    found = [str(each) for each in problems(text) if "a job has one dataset" in str(each)]
    assert [key for each in found for key in ("source.dataset", "output.path") if f"spark.j.{key}:" in each] == [
        "source.dataset",
        "output.path",
    ]
