"""The command line as a stranger meets it: what is printed where, and the four exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastwire import __version__
from fastwire.errors import FastwireError
from fastwire_daemon import cli, connect, service
from fastwire_daemon.checks import CheckResult
from fastwire_daemon.errors import DatasetMismatchError
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
    for command in ("run", "check", "verify", "dev-broker", "unit", "schema"):
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
        (
            ["dev-broker", "rabbit"],
            'Invalid value for SYSTEM: there is no embedded broker for "rabbit": there is pulsar',
        ),
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
    assert f"  auth     FAILED: token_file: cannot read {tmp_path}/token: No such file or directory\n" in out
    assert out.endswith("\n1 of 4 checks failed\n")


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


def test_dev_broker_serves_until_it_is_stopped() -> None:
    program = subprocess.Popen(
        [*_program(), "dev-broker", "pulsar", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    match = re.fullmatch(r"listening at pulsar://127\.0\.0\.1:(\d+)\n", line)
    assert match, line + (program.stderr.read() if program.stderr else "")
    with socket.create_connection(("127.0.0.1", int(match[1])), timeout=5):
        taken = subprocess.run(
            [*_program(), "dev-broker", "pulsar", "--port", match[1]], capture_output=True, text=True, check=False
        )
    assert (taken.returncode, taken.stdout) == (1, "")
    assert taken.stderr == f"cannot listen at 127.0.0.1:{match[1]}: the address is taken\n"
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=20)
    assert (program.returncode, out, err) == (0, "", "")
