"""The configuration: what is read, what it means, and what stands where nothing is said."""

import datetime as dt
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fastwire.grammar import NamePattern
from fastwire.position import Position
from fastwire.pulsar.grammar import GRAMMAR as PULSAR
from fastwire.pulsar.names.topic import parse_service_url
from fastwire_daemon.config import (
    HttpAddress,
    Start,
    available_memory,
    cores,
    json_schema,
    load_config,
    parse_config,
    parse_start,
)
from fastwire_daemon.config.brokers.access import AuthConfig, OAuth2Config, TlsConfig
from fastwire_daemon.config.model import DaemonConfig, PipelineConfig, RollConfig, SinkConfig
from fastwire_daemon.config.values import fields as fields_module
from fastwire_daemon.systems.kafka.config import KafkaAuthConfig, KafkaSourceConfig
from fastwire_daemon.systems.pulsar.config import EncryptionConfig, PulsarSourceConfig
from tests.support.config_file import COLUMNS, MINIMAL, one, problem, problems, sink, source

# -- what is read ----------------------------------------------------------------------------------------------------


def test_a_minimal_file_and_its_defaults() -> None:
    config = parse_config(MINIMAL, {})
    assert config.daemon.memory == available_memory() // 4
    assert config.daemon.http == HttpAddress("127.0.0.1", 8650)
    assert config.daemon.drain_timeout == 30.0
    assert list(config.pipelines) == ["orders"]
    orders = config.pipelines["orders"]
    assert isinstance(orders.source, PulsarSourceConfig)
    assert orders.source.url == parse_service_url("pulsar://127.0.0.1:6650")
    assert orders.source.topics == ("persistent://public/default/orders",)
    assert orders.source.subscription == "fastwire-orders"
    assert orders.source.subscription_type == "failover"
    assert orders.source.start.kind == "earliest"
    assert orders.source.auth.token is None
    assert orders.source.auth.token_file is None
    assert not orders.source.auth.given
    assert orders.source.tls.verify is True
    assert orders.source.cluster_name == "127.0.0.1:6650"
    assert orders.source.incarnation == 0
    assert orders.source.on_corrupt == "dead_letter"
    assert orders.sink.type == "parquet"
    assert orders.sink.is_dataset
    assert orders.sink.path == Path("/data/orders")
    assert orders.sink.compression == "zstd:1"
    assert orders.sink.columns is None
    assert orders.sink.split == orders.sink.partition_by.level == "none"
    assert (orders.sink.roll.bytes, orders.sink.roll.rows) == (128 * 2**20, 5_000_000)
    assert (orders.sink.roll.age, orders.sink.roll.idle) == (60.0, 10.0)
    assert orders.sink.writers == min(2, cores())
    assert orders.sink.create is False


def test_every_key() -> None:
    config = parse_config(
        """
        [daemon]
        memory = "1GiB"
        http = "unix:/run/fastwire/http.sock"
        drain_timeout = "1m30s"

        [pipelines.orders.source]
        url = "pulsar+ssl://a,b:7000;[::1]"
        topics = ["orders", "t/n/refunds"]
        group = "g"
        subscription_type = "key_shared"
        start = { "orders-partition-0" = "12:34", "persistent://t/n/refunds" = "-1:-1" }
        auth = { token_file = "/etc/fastwire/token" }
        tls = { ca = "ca.pem", cert = "cert.pem", key = "key.pem", verify = false }
        cluster = "eu"
        incarnation = 3
        on_corrupt = "stop"

        [pipelines.orders.sink]
        type = "jsonl"
        path = "data"
        compression = "gzip:9"
        columns = ["value", "key"]
        split = "partition"
        partition_by = "hour"
        roll = { bytes = "1MB", rows = 7, age = "2h", idle = "500ms" }
        writers = 3
        create = true
        """,
        {},
    )
    assert config.daemon.memory == 2**30
    assert config.daemon.http == HttpAddress(path="/run/fastwire/http.sock")
    assert config.daemon.drain_timeout == 90.0
    got = config.pipelines["orders"].source
    assert isinstance(got, PulsarSourceConfig)
    assert got.url == parse_service_url("pulsar+ssl://a:6651,b:7000,[::1]:6651")
    assert got.topics == ("persistent://public/default/orders", "persistent://t/n/refunds")
    assert (got.subscription, got.subscription_type) == ("g", "key_shared")
    assert got.start.kind == "positions"
    assert got.start.positions == {
        "persistent://public/default/orders-partition-0": Position(12, 34),
        "persistent://t/n/refunds": Position(-1, -1),
    }
    assert got.auth.token_file == Path("/etc/fastwire/token")
    assert (got.tls.ca, got.tls.cert, got.tls.key) == (Path("ca.pem"), Path("cert.pem"), Path("key.pem"))
    assert got.tls.verify is False
    assert (got.cluster_name, got.incarnation) == ("eu", 3)
    assert got.on_corrupt == "stop"
    out = config.pipelines["orders"].sink
    assert (out.type, out.path, out.compression) == ("jsonl", Path("data"), "gzip:9")
    assert out.columns == ("value", "key")
    assert (out.split, out.partition_by.level, out.writers, out.create) == ("partition", "hour", 3, True)
    assert (out.roll.bytes, out.roll.rows, out.roll.age, out.roll.idle) == (1_000_000, 7, 7200.0, 0.5)


def test_what_a_subscription_says_of_itself() -> None:
    config = parse_config(
        """
        [pipelines.orders.source]
        url = "pulsar://a"
        topics = ["t"]
        group = "g"
        start = "latest"
        consumer_name = "landing-1"
        priority_level = 2
        consumer_properties = { team = "data" }
        subscription_properties = { owner = "me", cost = "12" }
        replicate_subscription_state = true
        read_compacted = true
        [pipelines.orders.sink]
        type = "discard"
        """,
        {},
    )
    got = config.pipelines["orders"].source
    assert isinstance(got, PulsarSourceConfig)
    assert (got.consumer_name, got.priority_level, got.consumer_properties) == ("landing-1", 2, {"team": "data"})
    assert got.subscription_properties == {"owner": "me", "cost": "12"}
    assert got.replicate_subscription_state and got.read_compacted


def test_kafkas_own_keys() -> None:
    config = parse_config(
        """
        [pipelines.orders.source]
        url = "kafka://a,b:7000"
        topics_pattern = "orders-.*"
        group = "g"
        start = "latest"
        isolation = "read_uncommitted"
        group_protocol = "classic"
        group_instance_id = "one"
        assignor = "range"
        session_timeout = "6s"
        metadata_max_age = "500ms"
        on_truncation = "continue"
        [pipelines.orders.sink]
        type = "discard"
        """,
        {},
    )
    got = config.pipelines["orders"].source
    assert isinstance(got, KafkaSourceConfig)
    assert isinstance(got.topics_pattern, NamePattern)
    assert got.topics_pattern.matches("orders-eu") and not got.topics_pattern.matches("x-orders-eu")
    assert got.topics == ()
    assert (got.isolation, got.group_protocol, got.assignor) == ("read_uncommitted", "classic", "range")
    assert (got.group_instance_id, got.session_timeout, got.metadata_max_age) == ("one", 6.0, 0.5)
    assert got.on_truncation == "continue"


def test_models_are_frozen() -> None:
    config = parse_config(MINIMAL, {})
    with pytest.raises(ValueError, match="frozen"):
        config.daemon.memory = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(file.name for file in files("fastwire_daemon.conf").iterdir()))
def test_the_samples_are_good(name: str) -> None:
    if name.endswith(".toml"):
        text = (files("fastwire_daemon.conf") / name).read_text()
        environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "/run/x")
        assert parse_config(text, environ).pipelines


def test_a_config_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(MINIMAL)
    assert load_config(path, {}).path == path
    assert parse_config(MINIMAL, {}).path is None


@pytest.mark.parametrize(
    ("memory", "writers"), [("128MiB", 1), ("255MiB", 1), ("256MiB", min(2, cores())), ("1GiB", min(2, cores()))]
)
def test_writers_follow_memory(memory: str, writers: int) -> None:
    assert parse_config(f'daemon.memory = "{memory}"\n' + MINIMAL, {}).pipelines["orders"].sink.writers == writers


@pytest.mark.parametrize(
    ("sink_type", "compression"), [("parquet", "zstd:1"), ("arrow", "zstd:1"), ("jsonl", "none"), ("stdout", None)]
)
def test_compression_follows_the_type(sink_type: str, compression: str | None) -> None:
    path = "" if sink_type == "stdout" else "'/data'"
    made = one(sink(type=f"'{sink_type}'", path=path)).sink
    assert made.compression == compression
    assert made.is_dataset == (sink_type != "stdout")


def test_compressions_are_those_of_the_encoders() -> None:
    from fastwire_daemon.encoders.arrow import ArrowEncoder
    from fastwire_daemon.encoders.base import Encoder, parse_compression
    from fastwire_daemon.encoders.jsonl import JsonlEncoder
    from fastwire_daemon.encoders.parquet import ParquetEncoder

    encoders: dict[str, type[Encoder]] = {
        "parquet": ParquetEncoder,
        "arrow": ArrowEncoder,
        "jsonl": JsonlEncoder,
        "delta": ParquetEncoder,
        "iceberg": ParquetEncoder,
    }
    assert set(fields_module._CODECS) == set(encoders)
    for name, encoder in encoders.items():
        assert list(fields_module._CODECS[name]) == list(encoder.compressions)
        default = fields_module.default_compression(name)
        assert parse_compression(default, encoder.compressions) == parse_compression(None, encoder.compressions)
        for codec, span in fields_module._CODECS[name].items():
            levels = [""] if span is None else ["", f":{span[0]}", f":{span[1]}"]
            for level in levels:
                parse_compression(codec + level, encoder.compressions)
            for level in [":1"] if span is None else [f":{span[0] - 1}", f":{span[1] + 1}"]:
                with pytest.raises(ValueError):
                    parse_compression(codec + level, encoder.compressions)


def test_plain_sinks_have_one_writer() -> None:
    for sink_type in ("stdout", "discard"):
        assert one(sink(type=f"'{sink_type}'", path="")).sink.writers == 1


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ('"2025-01-31T00:00:00Z"', dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
        ('"2025-01-31t02:00:00.250+02:00"', dt.datetime(2025, 1, 31, 0, 0, 0, 250_000, tzinfo=dt.UTC)),
        ("2025-01-31T00:00:00Z", dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
        ("2025-01-31 01:00:00+01:00", dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
    ],
)
def test_start_at_a_time(text: str, moment: dt.datetime) -> None:
    start = one(source(start=text)).source.start
    assert (start.kind, start.time) == ("time", moment)
    assert start.time.utcoffset() == dt.timedelta(0)


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59Z", "1960-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "-60y"]
)
def test_a_start_before_1970_is_earliest(text: str) -> None:
    """Brokers count from 1970, and negative numbers mean something else to some: -1 is latest to Kafka."""
    if text == "-60y":
        text = f"-{60 * 366}d"
    assert parse_start(text) == Start("earliest")
    assert one(source(start=f'"{text}"')).source.start == Start("earliest")


@pytest.mark.parametrize("url", ["pulsar://h:6650", "kafka://h:9092"])
def test_a_start_that_is_not_yet_is_refused(url: str) -> None:
    found = "\n".join(problems(source(url=f'"{url}"', start='"2099-01-01T00:00:00Z"')))
    assert '"2099-01-01T00:00:00Z" lies in the future' in found
    assert parse_start((dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).isoformat()).kind == "time"


def test_start_has_a_text() -> None:
    assert str(parse_start("latest")) == "latest"
    assert str(parse_start("2025-01-31T02:00:00+02:00")) == "2025-01-31T00:00:00Z"
    assert str(parse_start({"a-partition-0": "1:2", "a-partition-1": "1:2"}, PULSAR)) == "positions of 2 partitions"


def test_encryption() -> None:
    keys = '{ private_keys = { "orders-key" = "/k.pem" }, on_failure = "consume" }'
    found = one(source(encryption=keys)).source.encryption
    assert (found.private_keys, found.on_failure) == ({"orders-key": Path("/k.pem")}, "consume")
    assert one(source()).source.encryption.on_failure == "fail"
    wrong = '{ private_key = {}, private_keys = { "k" = 5 }, on_failure = "ignore" }'
    found_problems = "\n".join(problems(source(encryption=wrong)))
    assert 'source.encryption.private_key: unknown key, did you mean "private_keys"?' in found_problems
    assert "source.encryption.private_keys.k" in found_problems
    assert 'must be "fail", "discard" or "consume"' in found_problems


# -- ${…} ------------------------------------------------------------------------------------------------------------


def test_environment_and_files_go_into_strings(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("from-file\n")
    text = source(
        url="'pulsar://${HOST}:${PORT:-7000}'",
        subscription="'${EMPTY:-default}-$${plain}-$x-${file:" + str(tmp_path / "name") + "}'",
        incarnation="'${N}'",
    )
    got = one(text, {"HOST": "broker", "EMPTY": "", "N": "4"}).source
    assert str(got.url) == "pulsar://broker:7000"
    assert got.subscription == "default-${plain}-$x-from-file"
    assert got.incarnation == 4


def test_text_cannot_become_structure() -> None:
    """The file is parsed first: a variable cannot smuggle in keys."""
    assert one(source(subscription="'${X}'"), {"X": 'a"\nstart = "latest'}).source.start.kind == "earliest"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NO_SUCH}", 'environment variable NO_SUCH is not set (to give a default, write "${NO_SUCH:-default}")'),
        ("${file:/no/such}", "cannot read /no/such: No such file or directory"),
        ("${}", '"${}" is not one of ${NAME}, ${NAME:-default}, ${file:/path}'),
        ("${1A}", '"${1A}" is not one of ${NAME}, ${NAME:-default}, ${file:/path}'),
        ("${A", '"${" without a "}" after it: write "$${" for a plain "${"'),
    ],
)
def test_bad_placeholders(text: str, message: str) -> None:
    assert problem(source(subscription=f"'{text}'")) == f"f.toml:4: pipelines.orders.source.subscription: {message}"


# -- machine, schema -------------------------------------------------------------------------------------------------


def _group(root: Path, lines: str, limits: Mapping[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in limits.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize(
    ("lines", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1048576\n"}, 2**20),
        ("0::/a/b\n", {"a/b/memory.max": "4096\n", "a/memory.max": "1048576\n"}, 4096),
        ("0::/outside/of/container\n", {"memory.max": "8192\n"}, 8192),
        ("4:memory,x:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000\n"}, 5000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_of_the_control_group(
    tmp_path: Path, lines: str, limits: Mapping[str, str], expected: int | None
) -> None:
    _group(tmp_path, lines, limits)
    machine = available_memory(tmp_path / "nothing")
    assert available_memory(tmp_path) == (expected if expected is not None else machine)


def test_the_schema_knows_every_key() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    for name, model in _models().items():
        keys = set(definitions[name]["properties"]) - {"group"}
        assert keys == set(model.model_fields) - {"options", "connection"}, name
    for name in ("KafkaSourceConfig", "PulsarSourceConfig"):
        assert set(definitions[name]["required"]) == {"url", "start"}
        assert definitions[name]["allOf"] == [
            {"oneOf": [{"required": ["subscription"]}, {"required": ["group"]}]},
            {"oneOf": [{"required": ["topics"]}, {"required": ["topics_pattern"]}]},
        ]
    assert definitions["SinkConfig"]["properties"]["columns"]["anyOf"][0]["items"]["enum"] == COLUMNS
    for name in _models():
        described = [key for key, value in definitions[name]["properties"].items() if "description" in value]
        assert described or name == "PipelineConfig"


def _models() -> dict[str, Any]:
    models = (
        DaemonConfig, PipelineConfig, KafkaSourceConfig, PulsarSourceConfig, AuthConfig, KafkaAuthConfig, OAuth2Config,
        TlsConfig, EncryptionConfig, SinkConfig, RollConfig,
    )  # fmt: skip
    return {model.__name__: model for model in models}
