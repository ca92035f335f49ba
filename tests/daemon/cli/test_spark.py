"""``fastwire-consume spark`` and ``check`` of jobs, without Spark: what is said before it would start."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.runtime.errors import ConfigurationRefused
from fastwire_daemon.spark.job import run as job_module
from tests.daemon.cli.program import Run
from tests.support.s3_server import new_bucket, s3_server

JOB = """\
[spark.orders]
source = {{ dataset = "{folder}/landed" }}
decode = {{ format = "json", schema = "{folder}/orders.ddl" }}
dedupe = {{ key = ["order_id"], watermark = "1 hour" }}
output = {{ path = "{folder}/table", partition_by = ["date"], dead_letters = "{folder}/bad", checkpoint = "{folder}/c"}}
trigger = "30s"
"""
PIPELINE = """\
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["orders"]
subscription = "s"
start = "latest"
[pipelines.orders.sink]
type = "discard"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "orders.ddl").write_text("order_id BIGINT")
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(folder=tmp_path))
    return path


def test_check_says_what_a_job_does(run: Run, config: Path, tmp_path: Path) -> None:
    code, out, err = run("check", config)
    assert (code, err) == (0, "")
    assert (
        out
        == f"""\
spark.orders
  from     {tmp_path}/landed, json values
  once     by order_id, within 1h of the first
  into     {tmp_path}/table/date=… (parquet), dead letters into {tmp_path}/bad
  runs     every 30s
  promise  exactly once: rows and the positions of the batch are one commit
  schema   {tmp_path}/orders.ddl
the configuration is valid (--connect also checks the brokers)
"""
    )
    assert not (tmp_path / "table").exists()


def test_check_says_what_a_job_over_brokers_does(run: Run, tmp_path: Path) -> None:
    config, token = tmp_path / "job.toml", tmp_path / "token"
    config.write_text(
        f"""\
[spark.orders]
source = {{ url = "pulsar://127.0.0.1:1", topics = ["orders"], auth = {{ token_file = "{token}" }} }}
output = {{ path = "{tmp_path}/table", dead_letters = "{tmp_path}/bad", checkpoint = "{tmp_path}/c" }}
"""
    )
    code, out, _ = run("check", config)
    assert code == 1
    assert f"  auth     FAILED: cannot read the token file {token}: No such file or directory" in out
    token.write_text("abc")
    code, out, _ = run("check", config)
    assert code == 0
    assert (
        out
        == f"""\
spark.orders
  from     persistent://public/default/orders
           at pulsar://127.0.0.1:1, no subscription, none values
           start earliest, where the checkpoint is new
           the brokers do not know the job's progress: only retention keeps unread records
  into     {tmp_path}/table (parquet), dead letters into {tmp_path}/bad
  runs     when started, until all is read
  promise  exactly once: rows and the positions of the batch are one commit
  auth     token found
the configuration is valid (--connect also checks the brokers)
"""
    )
    code, out, _ = run("check", config, "--connect")
    assert code == 1
    assert "  broker   FAILED: " in out


def test_check_of_a_pattern_over_kafka(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    with running(KafkaDevBroker()) as broker:
        for topic, partitions in (("orders-1", 2), ("orders-2", 1), ("my-orders-1", 1)):
            broker.create_topic(topic, partitions)
        config.write_text(
            f"""\
[spark.orders]
source = {{ url = "{broker.url}", topics_pattern = "orders-.*" }}
output = {{ path = "{tmp_path}/table", dead_letters = "{tmp_path}/bad", checkpoint = "{tmp_path}/c" }}
"""
        )
        _, out, _ = run("check", config, "--connect")
        assert "  from     all topics that match orders-.*, also those that come later\n" in out
        found = [line for line in out.splitlines() if line.startswith("  topic ")]
        assert found == ["  topic    orders-1: 2 partitions", "  topic    orders-2: 1 partition"]
        config.write_text(config.read_text().replace("orders-.*", "bills.*"))
        assert "  topic    no topic matches bills.* yet\n" in run("check", config, "--connect")[1]
        assert broker.violations == []


@pytest.mark.parametrize(("content", "said"), [(None, "No such file or directory"), (b"", "is empty")])
def test_check_looks_at_the_schema(
    run: Run,
    config: Path,
    tmp_path: Path,
    content: bytes | None,
    said: str,
) -> None:
    schema = tmp_path / "orders.ddl"
    schema.unlink() if content is None else schema.write_bytes(content)
    code, out, _ = run("check", config)
    assert code == 1
    assert f"  schema   FAILED: {schema}" in out
    assert said in out


def test_check_of_the_machine(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.cli.check.checks.find_spec", lambda name: None)
    code, out, _ = run("check", config, "--connect")
    assert code == 1
    assert "  spark    FAILED: missing: pyspark, pandas" in out
    assert out.count("can hold a dataset") == 2


def test_run_needs_a_pipeline(run: Run, config: Path) -> None:
    said = "is required: at least one; use `fastwire-consume spark` to run jobs on Spark"
    assert run("run", config) == (78, "", f"{config}: pipelines: {said}\n")


def test_spark_needs_a_job(run: Run, config: Path) -> None:
    config.write_text(PIPELINE)
    assert run("spark", config) == (78, "", f"{config}: spark: is required: at least one table [spark.NAME]\n")


def test_jobs_by_name(run: Run, config: Path) -> None:
    assert run("spark", config, "--job", "order") == (78, "", f"{config}: spark.order: there is no such job\n")


def test_settings_are_pairs(run: Run, config: Path) -> None:
    code, _, err = run("spark", config, "--conf", "spark.sql.shuffle.partitions")
    assert code == 2
    assert "is not KEY=VALUE" in err


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({"SPARK_REMOTE": "sc://127.0.0.1:15002"}, ()),
        ({"SPARK_API_MODE": "Connect"}, ()),
        ({}, ("--master", "sc://127.0.0.1:15002")),
        ({}, ("--conf", "spark.remote=sc://127.0.0.1:15002")),
        ({}, ("--conf", "spark.api.mode=connect")),
    ],
)
def test_spark_connect_is_refused(
    run: Run,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    arguments: tuple[str, ...],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = run("spark", config, *arguments)
    assert (code, out) == (78, "")
    assert err.startswith("jobs do not run over Spark Connect: ")


def test_spark_that_is_missing_is_named(
    run: Run,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ["pyspark", "pyspark.sql", *(name for name in sys.modules if name.startswith("pyspark."))]:
        monkeypatch.setitem(sys.modules, name, None)
    code, out, err = run("spark", config)
    assert (code, out) == (78, "")
    assert err.startswith("PySpark cannot be used: ")
    assert err.endswith("Install it: pip install '.[spark]'\n")


def test_java_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationRefused, match="Java is missing: Spark 4 needs Java 17 or later"):
        job_module._new_session({}, None)


class Session:
    """As much of a session as the command touches."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.stopped = False

    def setLogLevel(self, level: str) -> None:  # noqa: N802 - Spark's name
        self.level = level

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize("code", [0, 1])
def test_what_is_passed_on(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    session, asked = Session(), dict[str, Any]()

    def open_session(settings: dict[str, str], master: str | None) -> Session:
        asked.update(settings=settings, master=master)
        return session

    monkeypatch.setattr(job_module, "open_session", open_session)
    monkeypatch.setattr(job_module, "run_jobs", lambda session, config, names: asked.update(names=names) or code)
    assert run("spark", config, "--conf", "a.b=c=d", "--master", "local[1]")[0] == code
    assert asked == {"settings": {"a.b": "c=d"}, "master": "local[1]", "names": ["orders"]}
    assert session.stopped
    assert session.level == "OFF"


def test_commands_find_the_object_store_of_a_job(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as settings:
        for name in ("access_key_id", "secret_access_key"):
            monkeypatch.setenv(f"AWS_{name}".upper(), settings[name])
        url = new_bucket(settings, tmp_path.name).url
        store = f'path = "{url}", store = {{ endpoint = "{settings["endpoint"]}", allow_http = true, region = "r" }}'
        config.write_text(config.read_text().replace(f'path = "{tmp_path}/table"', store))
        _, out, _ = run("check", config, "--connect")
        assert f"  store    {url} can hold a dataset\n" in out
        assert f"  folder   {tmp_path}/bad can hold a dataset\n" in out
        assert url in run("verify", url, "--config", config)[1]
        assert (
            "no pipeline and no job writes to s3://other/orders"
            in run("verify", "s3://other/orders", "--config", config)[2]
        )
