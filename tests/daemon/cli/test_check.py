"""``check``: what a configuration will do, and with ``--connect`` whether it can."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fastwire.position import Log, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.cli.check import catalog as look
from fastwire_daemon.cli.check import connect
from fastwire_daemon.cli.check.checks import CheckResult, refusals
from fastwire_daemon.config import load_config
from fastwire_daemon.dataset.place import storage_at, table_in
from fastwire_daemon.dataset.tableformat import TableLateError, TableStoppedError
from fastwire_daemon.dataset.tables import iceberg
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from fastwire_daemon.runtime.errors import DatasetError
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.registry import build_sink, dataset_options
from tests.daemon.cli.orders import AnyBroker, shown_name
from tests.daemon.cli.program import GOOD, Run

FOREIGN = {
    "version": 1, "upto": 0, "types": {}, "strict": [], "partitions": [], "trouble": "another's", "location": "/x",
}  # fmt: skip


def test_check_says_what_will_happen(run: Run, good: Path, tmp_path: Path) -> None:
    good.write_text(good.read_text().replace('type = "parquet"', 'type = "parquet"\nwriters = 1'))
    code, out, err = run("check", good)
    assert (code, err) == (0, "")
    assert (
        out
        == f"""\
orders
  from     persistent://public/default/orders
  from     persistent://public/default/refunds
           at pulsar://127.0.0.1:6650, subscription fastwire-orders (failover)
           start earliest, where nothing has landed yet
  into     parquet in {tmp_path}/data, zstd:1, 1 writer
           all columns, one folder
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s idle
  promise  exactly once: files and positions are one commit
look
  from     persistent://public/default/events
           at pulsar+ssl://127.0.0.1:6651, subscription fastwire-look (failover)
           start latest, where nothing has landed yet
  into     stdout, 1 writer
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s idle
  promise  at least once: stdout has no log, so unacknowledged records are delivered again after a crash
  auth     token found
  tls      the broker's certificate is verified with the CAs of the system
the configuration is valid (--connect also checks the brokers)
"""
    )
    assert not (tmp_path / "data").exists()


def test_check_says_how_a_table_is_made_and_kept(run: Run, good: Path, tmp_path: Path) -> None:
    good.write_text(
        good.read_text().replace('type = "parquet"', 'type = "delta"\nsplit = "topic"\npartition_by = "day"')
    )
    code, out, _ = run("check", good)
    assert code == 0
    assert "  promise  exactly once: files and positions are one commit, and the table gets each file once\n" in out
    assert "  table    in the format of Delta, partitioned by t, dt\n" in out
    assert "  upkeep   the table needs OPTIMIZE and then VACUUM now and then" in out
    writer = DatasetWriter(tmp_path / "data", dataset_options(load_config(good).pipelines["orders"]))
    writer.open()
    log = Log("pulsar", writer.cluster, "persistent://public/default/orders", "0")
    writer.commit([], [Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0)])
    writer.close()
    assert "  table    it has the files of the log entries up to 0\n" in run("check", good)[1]
    write_deltalake(tmp_path / "data", pa.table({"a": [1]}))
    code, out, _ = run("check", good)
    assert code == 1
    assert "  table    FAILED: the Delta table at" in out and "was not made by fastwire, or replaced" in out


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "  table    the catalog answers, and has no table shop.orders yet\n"),
        (
            TableStoppedError("no entry: 403"),
            "  table    FAILED: the Iceberg table shop.orders: no entry: 403. Records",
        ),
        (FOREIGN, "  table    FAILED: the Iceberg table shop.orders exists, and the dataset does not"),
    ],
)
def test_the_catalog_of_a_table_that_does_not_exist_yet_is_asked(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, told: str
) -> None:
    class Catalog:
        def ask(self, request: dict[str, Any], until: float, earlier_until: float) -> Any:
            assert request["do"] == "look" and request["table"]["uri"] == "http://127.0.0.1:1"
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(iceberg, "Client", lambda worker: Catalog())
    monkeypatch.setattr(connect, "check_connections", lambda config, every: [])
    table = 'type = "iceberg"\ncatalog = { type = "rest", uri = "http://127.0.0.1:1" }\ntable = "shop.orders"'
    good.write_text(good.read_text().replace('type = "parquet"', table))
    code, out, _ = run("check", good, "--connect")
    assert told in out
    assert code == (1 if "FAILED" in told else 0)
    good.write_text(
        good.read_text().replace('type = "rest", uri = "http://127.0.0.1:1"', 'type = "sql", uri = "sqlite:///c"')
    )
    assert "catalog answers" not in run("check", good, "--connect")[1], "it would be created"


class SlowCatalog:
    """A catalog whose answer to each look is late by these seconds, and then is that there is no table."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.asked = 0

    def ask(self, request: dict[str, Any], until: float, earlier_until: float) -> Any:
        self.asked += 1
        if self.seconds:
            assert until - time.monotonic() < 10, "a person waits"
            late = self.seconds.pop(0)
            raise TableLateError("its catalog has not answered yet", late)
        return None


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        ((), ""),
        ((2, 4), ""),
        ((2, 4, 30), "the Iceberg table shop.orders: its catalog has not answered within 30 s"),
        ((40,), "the Iceberg table shop.orders: its catalog has not answered within 30 s"),
    ],
)
def test_a_silent_catalog_is_named_and_given_up(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], why: str, *, exists: bool
) -> None:
    monkeypatch.setattr(connect, "check_connections", lambda config, every: [])
    monkeypatch.setattr(look, "_waited_for", set())
    monkeypatch.setattr(look, "_given_up", {})
    uri = "http://catalog.example:8181"
    table = f'type = "iceberg"\ncatalog = {{ type = "rest", uri = "{uri}" }}\ntable = "shop.orders"'
    good.write_text(good.read_text().replace('type = "parquet"', table))
    if exists:
        monkeypatch.setattr(iceberg, "Client", lambda worker: SlowCatalog())
        make_dataset(good)
    catalog = SlowCatalog(*seconds)
    monkeypatch.setattr(iceberg, "Client", lambda worker: catalog)
    assert refusals(load_config(good), ["orders"]) == [] and catalog.asked == 0, "landing does not depend on it"
    code, out, err = run("check", good, "--connect")
    assert ("  table    FAILED: " in out) == bool(why) and why in out
    assert code == (1 if why else 0)
    told = f"waiting at most 30 s for the catalog of the table shop.orders (rest, {uri})"
    assert err.splitlines() == ([told] if len(seconds) > 1 else [])


def test_a_silent_catalog_is_given_up_for_all_of_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(look, "_waited_for", set())
    monkeypatch.setattr(look, "_given_up", {})
    silent, answering = SlowCatalog(2, 40), SlowCatalog()
    options = {"type": "rest", "uri": "http://silent.example"}
    others = {"type": "rest", "uri": "http://answering.example"}
    monkeypatch.setattr(iceberg, "Client", lambda worker: silent)
    storage = storage_at("/nowhere")
    for number in range(3):
        table = table_in(storage, "iceberg", "", {**options, "table": f"shop.t{number}"}, hasty=True)
        why = f"the Iceberg table shop.t{number}: its catalog has not answered within 30 s"
        with pytest.raises(TableLateError, match=re.escape(why)):
            look.look_within(table, options)
    assert silent.asked == 2
    told = "waiting at most 30 s for the catalog of the table shop.t0 (rest, http://silent.example)"
    assert capsys.readouterr().err.splitlines() == [told]
    monkeypatch.setattr(iceberg, "Client", lambda worker: answering)
    table = table_in(storage, "iceberg", "", {**others, "table": "shop.t3"}, hasty=True)
    assert look.look_within(table, others) is None and answering.asked == 1


def test_check_refuses_columns_that_a_table_cannot_have(run: Run, good: Path, tmp_path: Path) -> None:
    time = {"type": "int", "logicalType": "time-millis"}
    fields = [{"name": name, "type": type_} for name, type_ in (("at", time), ("ID", "int"), ("id", "int"))]
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    decode = f'[pipelines.orders.decode]\nformat = "avro"\nschema = "{tmp_path}/order.avsc"\n'
    good.write_text(good.read_text().replace('type = "parquet"', 'type = "delta"') + decode)
    code, out, _ = run("check", good)
    assert code == 78
    assert "  table    FAILED: a table of Delta cannot have these columns: tables have no type for at time[ms]" in out
    assert '"id" and "ID" differ by case only' in out


def test_check_says_which_columns_land_in_which_folders(run: Run, good: Path) -> None:
    keys = 'type = "parquet"\ncolumns = ["value", "key"]\nsplit = "topic"\npartition_by = "hour"'
    good.write_text(good.read_text().replace('type = "parquet"', keys))
    code, out, _ = run("check", good)
    assert code == 0
    assert "           columns value, key, folders of their own for each topic and each hour (UTC)\n" in out


def test_check_says_the_folder_of_a_topic_whose_name_is_too_long_for_one(run: Run, good: Path) -> None:
    long = "persistent://public/default/" + "n" * 230
    text = good.read_text().replace('"orders"', f'"{long}"')
    good.write_text(text.replace('type = "parquet"', 'type = "parquet"\nsplit = "topic"'))
    code, out, _ = run("check", good)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("  folder ")]
    assert line.startswith("  folder   t=persistent%3A%2F%2Fpublic%2Fdefault%2Fnnn") and line.endswith(
        "its name is too long"
    )


def test_check_says_all_unusable_keys_on_one_line(run: Run, good: Path, tmp_path: Path) -> None:
    keys = f'encryption = {{ private_keys = {{ a = "{tmp_path}/a", b = "{tmp_path}/b" }} }}'
    good.write_text(good.read_text().replace('start = "earliest"', f'start = "earliest"\n{keys}'))
    code, out, _ = run("check", good)
    assert code == 1
    (line,) = [line for line in out.splitlines() if "encryption" in line]
    failed = [
        f"encryption.private_keys.{name}: cannot read {tmp_path}/{name}: No such file or directory" for name in "ab"
    ]
    assert line == f"  encryption FAILED: {'; '.join(failed)}"


@pytest.mark.parametrize(
    ("sink", "promise"),
    [
        ('type = "arrow"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "jsonl"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "discard"', "none: discard acknowledges records and drops them"),
    ],
)
def test_promises(run: Run, tmp_path: Path, sink: str, promise: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD.partition("[pipelines.orders.sink]")[0] + f"[pipelines.orders.sink]\n{sink}\n")
    code, out, _ = run("check", file)
    assert code == 0
    assert f"\n  promise  {promise}\n" in out


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("auto", "group fastwire-orders (protocol auto)"),
        ("none", "all partitions alone, offsets kept as group fastwire-orders"),
    ],
)
def test_check_speaks_of_groups_where_kafka_is(run: Run, good: Path, protocol: str, said: str) -> None:
    text = good.read_text().partition("[pipelines.look")[0]
    text = text.replace("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:9092").replace("subscription = ", "group = ")
    good.write_text(text.replace("[pipelines.orders.sink]", f'group_protocol = "{protocol}"\n[pipelines.orders.sink]'))
    code, out, err = run("check", good)
    assert (code, err) == (0, "")
    assert f"           at kafka://127.0.0.1:9092, {said}\n" in out


def test_check_looks_for_the_token(run: Run, good: Path, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    code, out, err = run("check", good)
    assert (code, err) == (1, "")
    assert f"  auth     FAILED: cannot read the token file {tmp_path}/token: No such file or directory\n" in out
    assert out.endswith("\n1 of 4 checks failed\n")


def test_check_knows_what_pulsar_makes_of_a_colon(run: Run, good: Path, tmp_path: Path) -> None:
    """A broker of Pulsar's takes user:password apart there; one of Kafka's is given both."""
    (tmp_path / "password").write_text("a:b\n")
    for url, said in (
        (
            "pulsar://h",
            "FAILED: the password contains a colon, which the broker takes for the end of the user name",
        ),
        ("kafka://h", "user u, password found, by SCRAM-SHA-512"),
    ):
        good.write_text(
            f"""\
[pipelines.p.source]
url = "{url}"
topics = ["t"]
group = "g"
start = "earliest"
auth = {{ user = "u", password_file = "{tmp_path}/password" }}
[pipelines.p.sink]
type = "discard"
"""
        )
        assert f"  auth     {said}\n" in run("check", good)[1]


def test_check_looks_at_certificates(run: Run, good: Path, tmp_path: Path) -> None:
    text = good.read_text()
    good.write_text(text.replace("[pipelines.look.sink]", f'tls.ca = "{tmp_path}/ca.pem"\n[pipelines.look.sink]'))
    code, out, _ = run("check", good)
    assert code == 1
    assert f"  tls      FAILED: ca: cannot use {tmp_path}/ca.pem: No such file or directory\n" in out
    good.write_text(text.replace("[pipelines.look.sink]", "tls.verify = false\n[pipelines.look.sink]"))
    code, out, _ = run("check", good)
    assert code == 0
    assert "  tls      encrypted, but verify = false: the broker is not authenticated\n" in out


def test_check_connect_asks_brokers_and_folders(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_connections(config: Any, *, every: bool) -> list[CheckResult]:
        return [
            CheckResult("orders", "broker", True, "pulsar://127.0.0.1:6650 answers"),
            CheckResult("look", "broker", False, "127.0.0.1:6651 refuses connections"),
        ]

    monkeypatch.setattr(connect, "check_connections", check_connections)
    code, out, err = run("check", good, "--connect")
    assert (code, err) == (1, "")
    assert f"  folder   {tmp_path}/data can hold a dataset\n" in out
    assert "  broker   pulsar://127.0.0.1:6650 answers\n" in out
    assert "  broker   FAILED: 127.0.0.1:6651 refuses connections\n" in out
    assert out.endswith("\n1 of 7 checks failed\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.toml", "token"]
    monkeypatch.setattr(connect, "check_connections", lambda config, **options: [])
    assert run("check", good, "--connect")[1].endswith("\nall checks passed\n")


def test_check_connect_finds_a_folder_that_cannot_hold_a_dataset(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "check_connections", lambda config, **options: [])
    good.write_text(good.read_text().replace(f'"{tmp_path}/data"', '"/proc/data"'))
    code, out, _ = run("check", good, "--connect")
    assert code == 1
    assert "  folder   FAILED: make a folder: /proc: " in out


def test_check_of_a_pattern(run: Run, any_broker: AnyBroker, tmp_path: Path) -> None:
    config = tmp_path / "pattern.toml"
    config.write_text(
        f"""
        [pipelines.it.source]
        url = "{any_broker.url}"
        topics_pattern = "orders.*"
        subscription = "s"
        start = "latest"
        [pipelines.it.sink]
        type = "discard"
        """
    )
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    pattern, topic = (shown_name(any_broker, name) for name in ("orders.*", "orders"))
    assert f"  from     all topics that match {pattern}, also those that come later\n" in out
    assert f"  topic    {topic}: 2 partitions\n" in out
    config.write_text(config.read_text().replace("orders.*", "invoices.*"))
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    assert f"  topic    no topic matches {shown_name(any_broker, 'invoices.*')} yet\n" in out


def test_check_does_not_load_pyarrow(good: Path) -> None:
    code = (
        "import sys\nfrom fastwire_daemon.cli.app import app\n"
        f"try:\n    app(['check', {str(good)!r}])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyarrow', 'aiohttp', 'uvloop') if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_check_names_a_partition_without_a_leader(run: Run, tmp_path: Path) -> None:
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 3)
        broker.move_leader("orders", 1, node=-1)
        config = tmp_path / "leaderless.toml"
        config.write_text(
            f"""
            [pipelines.it.source]
            url = "{broker.url}"
            topics = ["orders"]
            subscription = "s"
            start = "latest"
            [pipelines.it.sink]
            type = "discard"
            """
        )
        code, out, _ = run("check", config, "--connect")
        assert code == 1
        assert "  topic    orders: 3 partitions\n" in out
        why = "orders partition 1: LEADER_NOT_AVAILABLE (no broker leads it now)"
        assert [line for line in out.splitlines() if "FAILED" in line] == [f"  partition FAILED: {why}"]
        broker.move_leader("orders", 1, node=0)
        code, out, _ = run("check", config, "--connect")
        assert (code, out.splitlines()[-1]) == (0, "all checks passed")


@pytest.mark.parametrize(
    ("harm", "said", "expected"),
    [
        (('"split": "none"', '"split": "topic"'), "was created with other settings", 78),
        (('"127.0.0.1:6650"', '"elsewhere:6650"'), "holds records of the cluster at elsewhere:6650", 78),
        (('"format": 1', '"format": 2'), "has format 2; this version of fastwire knows 1", 78),
        (('"format": 1', ""), "dataset.json is damaged", 1),
        (("", ""), "is continued; it was created 20", 0),
    ],
)
def test_check_reads_the_dataset_that_is_there(
    run: Run, good: Path, tmp_path: Path, harm: tuple[str, str], said: str, expected: int
) -> None:
    sink = build_sink(load_config(good).pipelines["orders"], memory=64 << 20)
    assert isinstance(sink, DatasetSink)
    sink.open()
    sink.create_dataset()
    sink.close()
    description = tmp_path / "data/_fastwire/dataset.json"
    description.write_text(description.read_text().replace(*harm))
    files = sorted(tmp_path.rglob("*"))
    code, out, err = run("check", good)
    (line,) = [line for line in out.splitlines() if line.startswith("  dataset")]
    assert (code, err) == (expected, "") and said in line
    assert sorted(tmp_path.rglob("*")) == files
    if expected:
        with pytest.raises(DatasetError) as caught:
            build_sink(load_config(good).pipelines["orders"], memory=64 << 20).open()
        assert line == f"  dataset  FAILED: {caught.value}"


@pytest.mark.parametrize(("named", "said"), [(1, True), (2, False)])
def test_check_connect_tells_of_partitions_without_a_start(
    run: Run, tmp_path: Path, kafka: KafkaDevBroker, named: int, said: bool
) -> None:
    file = tmp_path / "c.toml"
    start = ", ".join(f'"orders-{number}" = "1"' for number in range(named))
    file.write_text(
        f'[pipelines.p.source]\nurl = "{kafka.url}"\ntopics = ["orders"]\nsubscription = "g"\nstart = {{ {start} }}\n'
        '[pipelines.p.sink]\ntype = "discard"\n'
    )
    code, out, _ = run("check", file, "--connect")
    assert code == 0
    line = "  start    names 1 of the 2 partitions of orders; the others stop if nothing of them has landed\n"
    assert (line in out) is said


FIELD = {"name": "id", "type": "int"}


@pytest.mark.parametrize(
    ("fields", "sink", "said"),
    [
        ([FIELD, {"name": "hh", "type": "int"}], 'partition_by = "hour"', '"hh" names the folders hh=…, too'),
        ([FIELD, {"name": "T", "type": "int"}], 'split = "topic"', '"T" names the folders t=…, too'),
        ([FIELD, {"name": "ID", "type": "int"}], "", '"ID" and "id" differ by case only'),
        (
            [{"name": "s", "type": {"type": "record", "name": "S", "fields": [FIELD, {"name": "Id", "type": "int"}]}}],
            "",
            '"s.Id" and "s.id" differ by case only',
        ),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_names_that_readers_take_for_others_are_refused(
    run: Run, tmp_path: Path, form: str, fields: list[dict[str, Any]], sink: str, said: str
) -> None:
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    config = tmp_path / "config.toml"
    source = 'url = "kafka://127.0.0.1:1"\ntopics = ["t"]\ngroup = "g"\nstart = "earliest"'
    config.write_text(
        f'daemon.http = ""\n[pipelines.x.source]\n{source}\n'
        f'[pipelines.x.decode]\nformat = "json"\nschema = "{tmp_path}/s.avsc"\n'
        f'[pipelines.x.sink]\ntype = "{form}"\npath = "{tmp_path}/data"\n{sink}\n'
    )
    code, out, err = run("check", config)
    if form == "delta" and sink:  # the folders are columns of the table
        said = "is twice there" if "hh" in said else "differ by case only"
    for command in ("check", "run"):
        code, out, err = run(command, config)
        assert code == 78 and said in out + err
    assert not (tmp_path / "data").exists()


def make_dataset(config: Path) -> None:
    """Make the dataset of the pipeline ``orders``."""
    sink = build_sink(load_config(config).pipelines["orders"], memory=64 << 20)
    assert isinstance(sink, DatasetSink)
    sink.open()
    sink.create_dataset()
    sink.close()


@pytest.mark.parametrize(("first", "second"), [("outer", "outer/deep/inner"), ("outer/deep/inner", "outer")])
def test_check_tells_of_a_dataset_of_another_file_above_or_below(
    run: Run, good: Path, tmp_path: Path, first: str, second: str
) -> None:
    text = good.read_text()
    good.write_text(text.replace("/data", f"/{first}"))
    make_dataset(good)
    other = tmp_path / "other.toml"
    other.write_text(text.replace("/data", f"/{second}"))
    code, out, _ = run("check", other)
    assert code == 78 and f"{tmp_path / first} is a dataset, too" in out
    [refusal] = refusals(load_config(other), ["orders"])  # a reload compares before it drains anything
    assert f"{tmp_path / first} is a dataset, too" in refusal
    make_dataset(other)  # by a daemon of today, which starts
    for file, there in ((other, first), (good, second)):
        code, out, _ = run("check", file)
        assert code == 0 and "is continued" in out and f"{tmp_path / there} is a dataset, too" in out


def test_check_takes_no_dataset_beside_for_one_within(run: Run, good: Path, tmp_path: Path) -> None:
    text = good.read_text()
    good.write_text(text.replace("/data", "/all/one"))
    make_dataset(good)
    good.write_text(text.replace("/data", "/all/two"))
    code, out, _ = run("check", good)
    assert code == 0 and "a dataset, too" not in out
