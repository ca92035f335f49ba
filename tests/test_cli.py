"""The command line as a stranger meets it: what is printed where, and the four exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastwire import __version__
from fastwire.errors import FastwireError
from fastwire.position import Log
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.payload import Record, encode_single_entry
from fastwire_daemon import cli, connect, service
from fastwire_daemon.checks import CheckResult
from fastwire_daemon.config import SourceConfig
from fastwire_daemon.dataset.verify import LogReport, Problem, VerifyReport
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.errors import DatasetMismatchError
from fastwire_daemon.load import Load, fill
from fastwire_daemon.sources.base import SourceFailed
from fastwire_daemon.systemd import unit

GOOD = """\
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["orders", "refunds"]
subscription = "fastwire-orders"
start = "earliest"
[pipelines.orders.sink]
type = "parquet"
path = "{path}"

[pipelines.look.source]
url = "pulsar+ssl://127.0.0.1"
topics = ["events"]
subscription = "fastwire-look"
start = "latest"
auth = {{ token_file = "{token}" }}
[pipelines.look.sink]
type = "stdout"
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Call ``main`` as the console script does; returns exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fastwire-consume", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    monkeypatch.setenv("COLUMNS", "200")
    return call


@pytest.fixture
def good(tmp_path: Path) -> Path:
    token = tmp_path / "token"
    token.write_text("hunter2\n")
    file = tmp_path / "good.toml"
    file.write_text(GOOD.format(path=tmp_path / "data", token=token))
    return file


def _program() -> Sequence[str]:
    return sys.executable, "-c", "from fastwire_daemon.cli import main; main()"


# -- the frame -------------------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"fastwire-consume {__version__}\n", "")


def test_help_names_every_command(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for command in ("run", "check", "verify", "tail", "produce", "dev-broker", "demo", "unit", "schema"):
        assert re.search(rf"^  {command} +[A-Z]", out, re.MULTILINE), command
        code, out_of_command, _ = run(command, "-h")
        assert code == 0
        assert f"fastwire-consume {command} " in out_of_command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: fastwire-consume"),
        (["fly"], "No such command 'fly'"),
        (["run"], "Missing argument 'CONFIG'"),
        (["run", "x", "--max-records", "0"], "Invalid value for '--max-records'"),
        (["run", "x", "--no-such"], "No such option: --no-such"),
        (["verify"], "Missing argument 'PATH'"),
        (["tail", "pulsar://h"], "Missing argument 'TOPIC'"),
        (["tail", "tank://h", "t"], "Invalid value for URL: tank:// is not supported by this version"),
        (["tail", "pulsar://h", "a/b"], "Invalid value for TOPIC: topic 'a/b': a short name is"),
        (["tail", "pulsar://h", "t", "--from", "soon"], 'Invalid value for --from: must be "earliest" (everything'),
        (["tail", "pulsar://h", "t", "--from", "99999999999999999999:1"], "Invalid value for --from: "),
        (["tail", "pulsar://h", "t", "--format", "xml"], "Invalid value for '--format'"),
        (["tail", "pulsar://h", "t", "--ca", "x"], "Invalid value for URL: needs an encrypted connection"),
        (["tail", "pulsar+ssl://h", "t", "--key", "x"], "Invalid value for --key: is the key of a certificate"),
        (["demo", "--broker", "none"], "Invalid value for '--broker'"),
        (
            ["demo", "--system", "kafka", "--broker", "real"],
            "Invalid value for --broker: of Kafka there is the embedded",
        ),
        (["dev-broker", "rabbit"], "'rabbit' is not one of 'pulsar', 'kafka'"),
        (["dev-broker", "pulsar", "--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_usage_is_2(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert message in out + err


def test_help_is_quick_to_load() -> None:
    """Nobody waits for libraries that the command does not need."""
    heavy = ["pyarrow", "pydantic", "aiohttp", "uvloop", "prometheus_client", "google.protobuf", "rich.console"]
    code = (
        "import sys\nfrom fastwire_daemon.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_check_does_not_load_pyarrow(good: Path) -> None:
    code = (
        "import sys\nfrom fastwire_daemon.cli import app\n"
        f"try:\n    app(['check', {str(good)!r}])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyarrow', 'aiohttp', 'uvloop') if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = subprocess.Popen([*_program(), "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait() == 1


# -- run -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What run_service was asked to do; it answers with ``code``."""
    calls: list[dict[str, Any]] = []

    def run_service(config: Any, **options: Any) -> int:
        calls.append({"config": config, **options})
        return 0

    monkeypatch.setattr(service, "run_service", run_service)
    monkeypatch.setattr("fastwire_daemon.logs.configure", lambda **options: calls.append(options))
    return calls


def test_run_passes_its_options_on(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    assert run("run", good, "--pipeline", "look", "-p", "orders", "--until-end", "--max-records", "7") == (0, "", "")
    logging, call = asked
    assert logging == {"level": "info"}
    assert call.pop("config").path == good
    assert call == {"pipelines": ["look", "orders"], "until_end": True, "max_records": 7}


def test_run_without_options(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    assert run("run", good, "-v")[0] == 0
    logging, call = asked
    assert logging == {"level": "debug"}
    del call["config"]
    assert call in ({"pipelines": None, "until_end": False, "max_records": None},)


def test_run_knows_its_pipelines(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    code, _, err = run("run", good, "--pipeline", "order")
    assert code == 2
    assert err.endswith('Invalid value for --pipeline: no pipeline is called "order", did you mean "orders"?\n')
    code, _, err = run("run", good, "--pipeline", "xyz")
    assert err.endswith('no pipeline is called "xyz": there are orders, look\n')
    assert not asked


@pytest.mark.parametrize("code", [0, 1, 78])
def test_the_exit_code_of_the_service_is_ours(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(service, "run_service", lambda config, **options: code)
    assert run("run", good)[0] == code


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_bad_configuration_is_78(run: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[daemon]\nmemry = "1GiB"\nhttp = 5\n[pipelines]\n')
    assert run(command, file) == (
        78,
        "",
        (
            f'{file}:2: daemon.memry: unknown key, did you mean "memory"?\n'
            f'{file}:3: daemon.http: must be a string such as "127.0.0.1:8650", not a number\n'
            f"{file}:4: pipelines: is required: at least one [pipelines.NAME.source] with its [pipelines.NAME.sink]\n"
            "3 mistakes in the configuration\n"
        ),
    )
    file.write_text("a =")
    code, out, err = run(command, file)
    assert (code, out) == (78, "")
    assert err == f"{file}:1: is not TOML: Invalid value\n"
    missing = tmp_path / "no.toml"
    assert run(command, missing) == (
        78,
        "",
        f"{missing}: cannot read the configuration: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("failure", "code", "text"),
    [
        (FastwireError("no broker"), 1, "no broker\n"),
        (SourceFailed("the topic is gone"), 1, "the topic is gone\n"),
        (SourceFailed("no such listener", configuration=True), 78, "no such listener\n"),
        (DatasetMismatchError("/data has other columns"), 78, "/data has other columns\n"),
        (PermissionError(13, "Permission denied", "/data"), 1, "/data: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_are_told_without_a_traceback(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: int, text: str
) -> None:
    def fail(config: Any, **options: Any) -> int:
        raise failure

    monkeypatch.setattr(service, "run_service", fail)
    assert run("run", good) == (code, "", text)


def test_a_fault_of_ours_shows_its_traceback(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: Any, **options: Any) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(service, "run_service", fail)
    code, out, err = run("run", good)
    assert (code, out) == (1, "")
    line = json.loads(err)
    assert (line["level"], line["event"]) == ("error", "failed by a fault of this program")
    assert line["error"] == "ZeroDivisionError: division by zero"
    assert "test_cli.py" in line["traceback"]


# -- check -----------------------------------------------------------------------------------------------------------


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
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s of rest
  promise  exactly once: files and positions are one commit
look
  from     persistent://public/default/events
           at pulsar+ssl://127.0.0.1:6651, subscription fastwire-look (failover)
           start latest, where nothing has landed yet
  into     stdout, 1 writer
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s of rest
  promise  at least once: stdout has no log, what was not acknowledged comes again after a crash
  auth     token found
  tls      the broker must be vouched for by the system
the configuration is good (--connect asks the brokers, too)
"""
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("sink", "promise"),
    [
        ('type = "arrow"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "jsonl"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "discard"', "none: discard acknowledges records and throws them away"),
    ],
)
def test_promises(run: Run, tmp_path: Path, sink: str, promise: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD.partition("[pipelines.orders.sink]")[0] + f"[pipelines.orders.sink]\n{sink}\n")
    code, out, _ = run("check", file)
    assert code == 0
    assert f"\n  promise  {promise}\n" in out


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
        ("pulsar://h", "FAILED: the password holds a colon, at which a Pulsar broker takes user and password apart"),
        ("kafka://h", "user u, password found"),
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
    assert "  tls      encrypted, but verify = false: anybody could be the broker\n" in out


def test_check_connect_asks_brokers_and_folders(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_connections(config: Any) -> list[CheckResult]:
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
    monkeypatch.setattr(connect, "check_connections", lambda config: [])
    assert run("check", good, "--connect")[1].endswith("\nall is well\n")


def test_check_connect_finds_a_folder_that_cannot_hold_a_dataset(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "check_connections", lambda config: [])
    good.write_text(good.read_text().replace(f'"{tmp_path}/data"', '"/proc/data"'))
    code, out, _ = run("check", good, "--connect")
    assert code == 1
    assert "  folder   FAILED: make a folder: /proc: " in out


# -- verify ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> VerifyReport:
    """What ``verify`` finds from now on."""
    found = VerifyReport("/data", strict=False, system="pulsar", entries=12, files=3, rows=123_456, nbytes=7_890_123)
    log = Log("pulsar", "here", "persistent://public/default/orders", "0", "0")
    found.logs = [LogReport(log, "-1:-1", "12:34", rows=123_456)]
    found.proven, found.trusted = ["the log is whole: entries 1 to 12"], ["that a reader was given all"]

    def answer(path: Path, strict: bool) -> VerifyReport:
        found.path, found.strict = str(path), strict
        return found

    monkeypatch.setattr("fastwire_daemon.dataset.verify.verify", answer)
    return found


def test_verify_says_what_is_proven(run: Run, report: VerifyReport) -> None:
    assert run("verify", "/data") == (
        0,
        """\
/data: sound
  123,456 rows in 3 files, 7.9 MB, 12 log entries of pulsar
landed
  persistent://public/default/orders 0: -1:-1 to 12:34, 123,456 rows
proven
  the log is whole: entries 1 to 12
on the broker's word
  that a reader was given all
""",
        "",
    )
    assert not report.strict


def test_verify_says_what_is_wrong(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    report.proven = report.trusted = []
    report.diverted_entries, report.diverted_rows, report.filtered = 2, 5, 7
    report.pending, report.removed = ["a"], ["b", "c"]
    code, out, err = run("verify", "/data", "--strict")
    assert (code, err) == (1, "")
    assert report.strict
    assert (
        out
        == """\
/data: 1 problem
  123,456 rows in 3 files, 7.9 MB, 12 log entries of pulsar
  2 entries (5 rows) could not be decoded: diverted
  7 rows were filtered on purpose
  committed and about to appear: 1 files
  taken away since: 2 files
landed
  persistent://public/default/orders 0: -1:-1 to 12:34, 123,456 rows
problems
  stray: x.parquet: no log entry names this file
"""
    )
    report.problems *= 25
    out = run("verify", "/data")[1]
    assert out.startswith("/data: 25 problems\n")
    assert out.endswith("file\n  … and 5 more\n")


def test_verify_as_json(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    code, out, err = run("verify", "/data", "--json")
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert json.loads(out) == report.to_json()


def test_verify_where_nothing_is(run: Run, tmp_path: Path) -> None:
    code, out, err = run("verify", tmp_path)
    assert (code, err) == (1, "")
    assert out == f"{tmp_path}: 1 problem\nproblems\n  no-dataset: _fastwire/dataset.json: there is no dataset here\n"


# -- with a broker ---------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    """An embedded broker with 40 records in the two partitions of ``orders``."""
    with running(PulsarDevBroker()) as broker:
        broker.create_topic("orders", 2)
        fill(broker.append, "orders", Load(records=40, partitions=2, batch=5), lambda: 1_700_000_000_000)
        yield broker


def numbers(lines: str) -> list[int]:
    return [json.loads(line)["number"] for line in lines.splitlines()]


def test_tail_shows_records_and_leaves_no_trace(run: Run, broker: PulsarDevBroker) -> None:
    url = (broker.url, "orders", "--from", "earliest", "--until-end")
    code, out, err = run("tail", *url, "--format", "raw")
    assert (code, err) == (0, "")
    assert sorted(numbers(out)) == list(range(40))
    code, out, _ = run("tail", *url, "--format", "jsonl", "-n", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 3
    assert {row["topic"] for row in rows} == {"persistent://public/default/orders"}
    code, out, _ = run("tail", *url, "-n", "1")
    assert json.loads(out)["batchIndex"] == 0  # no terminal
    code, out, _ = run("tail", *url, "-n", "1", "--format", "pretty")
    assert re.match(r"2023-11-14T22:13:20\S*Z  public/default/orders-[01] \d+:0:0  key=\S+\n    \{.*\}\n$", out)
    assert broker.subscriptions("orders-partition-0") == []
    assert broker.violations == []


def test_tail_lays_out_what_is_json_and_shows_times(run: Run, broker: PulsarDevBroker) -> None:
    broker.create_topic("wide")
    now_ms = int(time.time() * 1000)
    json_ = b'{"a": [1, "%s"], "b": "\\u001b"}' % (b"x" * 100)
    for value, ago_s in ((b"old", 600), (json_, 60), (b"[" + b"y" * 200, 30)):
        record = Record(value=value, event_time=1_700_000_000_000, properties=[("p", "q")])
        when = now_ms - ago_s * 1000
        broker.append("wide", [encode_single_entry(record, producer_name="p", sequence_id=ago_s, publish_time=when)])
    code, out, _ = run("tail", broker.url, "wide", "--from", "-5m", "--until-end", "--format", "pretty")
    assert code == 0
    lines = out.splitlines()
    laid_out = ["{", '"a": [', "1,", f'"{"x" * 100}"', "],", '"b": "\\u001b"', "}"]
    assert [line.strip() for line in lines[1:-2]] == laid_out
    assert lines[-1] == "    [" + "y" * 200  # no JSON
    assert all(line.endswith("  p=q  event=2023-11-14T22:13:20.000000Z") for line in (lines[0], lines[-2]))
    assert run("tail", broker.url, "wide", "--from", "-5x")[0] == 2


def test_tail_shows_each_schema_before_its_records(run: Run, broker: PulsarDevBroker) -> None:
    topic = "persistent://public/default/typed"
    broker.create_topic(topic)
    pair = b'\0\0\0\3"a"\0\0\0\5{\x1b\n 1'
    schemas = [
        pb.Schema(name="Order", type=pb.Schema.Json, schema_data=b'{"type": "record"}'),
        pb.Schema(name="Order", type=pb.Schema.Json, schema_data=b"\xff"),
    ]
    versions = [broker.register_schema(topic, each) for each in schemas] + [b"\7", b""]
    properties = [pb.KeyValue(key="key.schema.type", value="STRING")]
    other = pb.Schema(name="", type=pb.Schema.KEY_VALUE, schema_data=pair, properties=properties)
    broker.create_topic("pairs")
    broken = pb.Schema(name="", type=pb.Schema.KEY_VALUE, schema_data=pair[:-1])
    pairs = [broker.register_schema("pairs", each) for each in (other, broken)]
    for name, given in ((topic, [*versions, *versions]), ("pairs", pairs)):
        for number, version in enumerate(given):
            metadata = pb.MessageMetadata(schema_version=version) if version else None
            record = Record(value=b"%d" % number)
            entry = encode_single_entry(
                record, producer_name="p", sequence_id=number, publish_time=1, metadata=metadata
            )
            broker.append(name, [entry])
    reading = ("--from", "earliest", "--until-end", "--schemas", "--format", "raw")
    code, out, err = run("tail", broker.url, "typed", *reading)
    assert (code, out.split()) == (0, [str(number) for number in range(8)])
    assert err.splitlines() == [
        "schema 0 of public/default/typed: JSON Order",
        '    {"type": "record"}',
        "schema 1 of public/default/typed: JSON Order",
        "    0xff",
        "schema 0x07 of public/default/typed: the broker does not know it",
    ]
    code, _, err = run("tail", broker.url, "pairs", *reading)
    assert (code, err.splitlines()) == (
        0,
        [
            "schema 0 of public/default/pairs: KEY_VALUE",
            '    key STRING "a"',
            "    value BYTES {\\x1b\\n 1",
            "schema 1 of public/default/pairs: KEY_VALUE",
            "    cannot be read: schema of the value at byte 7: needs 5 bytes, 4 are left",
        ],
    )
    assert broker.violations == []


def test_tail_from_a_position(run: Run, broker: PulsarDevBroker) -> None:
    ledger, entry, _ = broker.positions("orders-partition-1")[1]
    url = (broker.url, "orders-partition-1", "--from", f"{ledger}:{entry}", "--until-end", "--format", "raw")
    code, out, _ = run("tail", *url)
    assert code == 0
    assert numbers(out) == list(range(21, 40, 2))


def test_tail_of_a_pattern(run: Run, broker: PulsarDevBroker) -> None:
    broker.create_topic("orders-eu", 1)
    fill(broker.append, "orders-eu", Load(records=7, partitions=1, batch=5), lambda: 1_700_000_000_000)
    options = ("--pattern", "--from", "earliest", "--until-end", "--format", "jsonl")
    code, out, err = run("tail", broker.url, "orders.*", *options)
    assert (code, err) == (0, "")
    topics = [json.loads(line)["topic"].rpartition("/")[2] for line in out.splitlines()]
    assert (topics.count("orders"), topics.count("orders-eu")) == (40, 7)
    assert run("tail", broker.url, "nothing.*", *options)[:2] == (0, "")
    code, _, err = run("tail", broker.url, "(", *options)
    assert code == 2
    assert "TOPIC" in err and "not a regular expression" in err
    assert broker.violations == []


def test_check_of_a_pattern(run: Run, broker: PulsarDevBroker, tmp_path: Path) -> None:
    config = tmp_path / "pattern.toml"
    config.write_text(
        f"""
        [pipelines.it.source]
        url = "{broker.url}"
        topics_pattern = "orders.*"
        subscription = "s"
        start = "latest"
        [pipelines.it.sink]
        type = "discard"
        """
    )
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    assert "  from     all topics that match persistent://public/default/orders.*, also those that come later\n" in out
    assert "  topic    persistent://public/default/orders: 2 partitions\n" in out
    config.write_text(config.read_text().replace("orders.*", "invoices.*"))
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    assert "  topic    none matches persistent://public/default/invoices.* yet\n" in out


def test_tail_where_no_broker_is(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        code, out, err = run("tail", f"pulsar://127.0.0.1:{port}", "orders")
    assert (code, out) == (1, "")
    assert err == f"cannot connect to 127.0.0.1:{port}: Connection refused\n"


def test_tail_takes_its_token_from_file_or_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SourceConfig] = []

    async def tail(source: SourceConfig, **options: Any) -> int:
        asked.append(source)
        return 0

    monkeypatch.setattr("fastwire_daemon.tail.tail", tail)
    monkeypatch.setenv("FASTWIRE_TOKEN", "hunter2")
    assert run("tail", "pulsar+ssl://h", "t", "--insecure")[0] == 0
    assert run("tail", "pulsar://h", "t", "--token-file", tmp_path / "token")[0] == 0
    assert asked[0].auth.token is not None and asked[0].auth.token.get_secret_value() == "hunter2"
    assert asked[0].tls.verify is False
    assert (asked[1].auth.token, asked[1].auth.token_file) == (None, tmp_path / "token")
    monkeypatch.setenv("FASTWIRE_TOKEN", "hünter2")
    code, out, err = run("tail", "pulsar://h", "t")
    assert code == 2
    assert err.endswith("Invalid value for FASTWIRE_TOKEN: holds characters that no token has\n")
    assert "hünter2" not in out + err


def test_tail_takes_every_way_of_saying_who_one_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SourceConfig] = []

    async def tail(source: SourceConfig, **options: Any) -> int:
        asked.append(source)
        return 0

    monkeypatch.setattr("fastwire_daemon.tail.tail", tail)
    monkeypatch.delenv("FASTWIRE_TOKEN", raising=False)
    monkeypatch.setenv("FASTWIRE_PASSWORD", "hunter2")
    start = ("tail", "pulsar+ssl://h", "t")
    assert run(*start, "--user", "me")[0] == 0
    assert run(*start, "--user", "me", "--password-file", tmp_path / "p")[0] == 0
    issuer = ("--oauth2-issuer", "https://i", "--oauth2-audience", "urn:a", "--oauth2-scope", "s")
    assert run(*start, "--oauth2-key-file", tmp_path / "k", *issuer)[0] == 0
    assert run(*start, "--ca", "a", "--cert", "b", "--key", "c", "--server-name", "d")[0] == 0
    first, second, third, fourth = asked
    assert first.auth.password is not None and first.auth.password.get_secret_value() == "hunter2"
    assert (second.auth.user, second.auth.password, second.auth.password_file) == ("me", None, tmp_path / "p")
    oauth2 = third.auth.oauth2
    assert oauth2 is not None
    assert (oauth2.key_file, oauth2.issuer_url, oauth2.audience, oauth2.scope) == (
        tmp_path / "k",
        "https://i",
        "urn:a",
        "s",
    )
    assert not fourth.auth.given
    assert [str(value) for value in (fourth.tls.ca, fourth.tls.cert, fourth.tls.key)] == ["a", "b", "c"]
    assert fourth.tls.server_name == "d"
    for options, words in (
        (("--token-file", "x", "--user", "me"), "for --user: token_file stands here too"),
        (("--password-file", "x"), "for --password-file: is of no use without user"),
        (("--oauth2-issuer", "http://i", "--oauth2-key-file", "x"), "for --oauth2-issuer: must be https://"),
        (("--oauth2-audience", "x"), "for --oauth2-key-file: is required without key_file"),
    ):
        code, _, err = run(*start, *options)
        assert code == 2
        assert words in err, err


def test_run_check_and_verify_on_a_broker(broker: PulsarDevBroker, tmp_path: Path) -> None:
    """As a user types them: every process of its own, and what each says."""
    config = tmp_path / "orders.toml"
    text = (
        GOOD.partition("[pipelines.look")[0]
        .format(path=tmp_path / "data", token="")
        .replace('"orders", "refunds"', '"orders"')
    )
    config.write_text('daemon.http = ""\n' + text.replace("pulsar://127.0.0.1:6650", broker.url))

    def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*_program(), *map(str, arguments)], capture_output=True, text=True, check=False)

    checked = command("check", config, "--connect")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"  broker   {broker.url} answers and lets us in\n" in checked.stdout
    assert "  topic    persistent://public/default/orders: 2 partitions\n" in checked.stdout
    assert checked.stdout.endswith("\nall is well\n")
    assert broker.subscriptions("orders-partition-0") == []

    ran = command("run", config, "--until-end")
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert sum(line["rows"] for line in lines if line["event"] == "committed") == 40
    assert [broker.backlog(f"orders-partition-{index}", "fastwire-orders") for index in (0, 1)] == [0, 0]

    verified = command("verify", tmp_path / "data", "--json")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert json.loads(verified.stdout)["counted_rows"] == 40
    assert broker.violations == []


def test_a_taken_http_address_is_1(broker: PulsarDevBroker, good: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        good.write_text(f'daemon.http = "127.0.0.1:{port}"\n' + good.read_text())
        ran = subprocess.run([*_program(), "run", good], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f'daemon.http = "127.0.0.1:{port}" is taken by another process: choose another address, or "" for no '
        f"HTTP server\n"
    )


# -- the rest --------------------------------------------------------------------------------------------------------


def test_unit(run: Run) -> None:
    for arguments, hardened in (([], False), (["--hardened"], True)):
        code, out, err = run("unit", *arguments)
        assert (code, err) == (0, "")
        assert out == unit(hardened)


def test_the_unit_names_a_program_that_is_there() -> None:
    match = re.search(r"^ExecStart=(\S+) run ", unit(False), re.MULTILINE)
    assert match is not None
    assert os.access(match[1], os.X_OK)


def test_schema(run: Run) -> None:
    code, out, err = run("schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["title"] == "fastwire configuration"


@pytest.mark.parametrize("system", ["pulsar", "kafka"])
def test_dev_broker_serves_until_it_is_stopped(system: str) -> None:
    program = subprocess.Popen(
        [*_program(), "dev-broker", system, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    match = re.fullmatch(rf"listening at {system}://127\.0\.0\.1:(\d+)\n", line)
    assert match, line + (program.stderr.read() if program.stderr else "")
    with socket.create_connection(("127.0.0.1", int(match[1])), timeout=5):
        taken = subprocess.run(
            [*_program(), "dev-broker", system, "--port", match[1]], capture_output=True, text=True, check=False
        )
    assert (taken.returncode, taken.stdout) == (1, "")
    assert taken.stderr == f"cannot listen at 127.0.0.1:{match[1]}: the address is taken\n"
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=20)
    assert (program.returncode, out, err) == (0, "", "")
