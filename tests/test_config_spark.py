"""``[spark.NAME]``: what is accepted, what it becomes, and every mistake with its key and place."""

from pathlib import Path

import pytest

from fastwire_daemon.config import Config, ConfigError, json_schema, parse_config

LEAST = """\
[spark.orders]
source = { dataset = "/data/orders" }
output = { path = "/lake/orders", quarantine = "/lake/bad", checkpoint = "/lake/_chk" }
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {}, name="f.toml")
    return [str(problem) for problem in caught.value.problems]


def problem(text: str) -> str:
    (only,) = problems(text)
    return only


def parsed(text: str) -> Config:
    return parse_config(text, {})


def test_the_least_that_a_job_needs() -> None:
    config = parsed(LEAST)
    assert config.pipelines == {}
    job = config.spark["orders"]
    assert (job.decode.format, job.dedupe, job.trigger) == ("none", None, None)
    assert (job.output.format, job.output.partition_by, job.output.compression) == ("dataset", (), "zstd:1")
    assert job.source.dataset == Path("/data/orders")


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
quarantine = "/lake/b/bad"
checkpoint = "/data/b"
format = "spark-parquet"
compression = "zstd:3"

[spark.c]
source = { dataset = "/data/c" }
decode = { message = "x", schema = "y", ids = [1] }
dedupe = { key = ["a", "a"] }
output = { path = "/lake/b", quarantine = "/lake/c_bad", checkpoint = "/lake/c_chk", compression = "zip" }
"""
    assert problems(text) == [
        'f.toml:1: spark."a b": a name holds letters, digits and _ . - only',
        'f.toml:1: spark."a b".output: is required: { path = "…", quarantine = "…", checkpoint = "…" }',
        'f.toml:2: spark."a b".source.dataset: is required: the folder of a dataset that the daemon lands',
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
        "f.toml:8: spark.b.decode.ids: is required: the ids that the registry has given to this schema, such as [7]",
        "f.toml:9: spark.b.dedupe.key: names no column",
        'f.toml:9: spark.b.dedupe.watermark: must be a time such as "30s", not "soon"',
        'f.toml:10: spark.b.trigger: must be "available-now" or a time such as "30s", not a number',
        'f.toml:14: spark.b.output.partition_by[1]: "date" stands here twice',
        (
            'f.toml:14: spark.b.output.partition_by[2]: "a=b" cannot name a folder: letters, digits and _ only, '
            "a letter first"
        ),
        "f.toml:15: spark.b.output.quarantine: lies inside of output.path, or around it",
        "f.toml:16: spark.b.output.checkpoint: is the folder of source.dataset, too",
        'f.toml:18: spark.b.output.compression: Spark\'s writer takes no level: write "zstd"',
        (
            'f.toml:22: spark.c.decode.schema: is for values that are decoded: format = "json", "avro" or "protobuf" '
            "is missing"
        ),
        "f.toml:22: spark.c.decode.message: is for protobuf only",
        'f.toml:22: spark.c.decode.ids: is for framing = "confluent" only',
        'f.toml:23: spark.c.dedupe.key[1]: "a" stands here twice',
        'f.toml:23: spark.c.dedupe.watermark: is required: how late the second copy may come, such as "1 hour"',
        'f.toml:24: spark.c.output.compression: parquet has no compression "zip", did you mean "gzip"?',
        "f.toml:24: spark.c.output.path: is the folder of output.path of job b, too",
    ]


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_values_that_are_decoded_need_a_schema(form: str) -> None:
    assert any("decode.schema: is required" in each for each in problems(LEAST + f'decode = {{ format = "{form}" }}\n'))


def test_the_schema_of_a_job_is_printed() -> None:
    schema = json_schema()
    assert schema["anyOf"] == [{"required": ["pipelines"]}, {"required": ["spark"]}]
    assert "schema" in schema["$defs"]["SparkDecode"]["properties"]
    assert schema["$defs"]["SparkConfig"]["required"] == ["source", "output"]
