"""Rules for all commands, and the commands that need no configuration."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fastwire import __version__
from fastwire.systems import SYSTEMS
from fastwire_daemon.config import TopicChoice, parse_connection
from fastwire_daemon.service.systemd import unit
from fastwire_daemon.systems.registry import system_named
from tests.daemon.cli.program import PROGRAM, Run


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"fastwire-consume {__version__}\n", "")


def test_help_names_every_command(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert re.search(r"^  [a-z].*\.\.\.$", out, re.MULTILINE) is None, "the first sentence of a command is too long"
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
        (["tail", "rabbit://h", "t"], 'Invalid value for URL: "rabbit://" is not a known kind of broker'),
        (["tail", "pulsar://h", "a/b"], "Invalid value for TOPIC: topic 'a/b': a short name is"),
        (["tail", "pulsar://h", "t", "--from", "soon"], 'Invalid value for --from: must be "earliest" (everything'),
        (["tail", "pulsar://h", "t", "--from", "99999999999999999999:1"], "Invalid value for --from: "),
        (["tail", "pulsar://h", "t", "--rack", "a"], "Invalid value for --rack: is not supported for pulsar"),
        (["tail", "pulsar://h", "t", "--format", "xml"], "Invalid value for '--format'"),
        (
            ["tail", "toy://h", "t", "--ca", "x", "--cert", "y"],
            "Invalid value for --ca and --cert: is not supported for toy",
        ),
        (["tail", "pulsar://h", "t", "--ca", "x"], "Invalid value for --ca: needs an encrypted connection"),
        (["tail", "pulsar+ssl://h", "t", "--key", "x"], "Invalid value for --key: is the key of a certificate"),
        (["demo", "--broker", "none"], "Invalid value for '--broker'"),
        (
            ["demo", "--system", "kafka", "--broker", "real"],
            "Invalid value for --broker: Kafka has only the embedded",
        ),
        (["dev-broker", "rabbit"], "'rabbit' is not one of 'pulsar', 'kafka'"),
        (["dev-broker", "pulsar", "--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_usage_is_2(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert message in out + err


@pytest.mark.parametrize(
    "command", [("verify",), ("dead",), ("expire", "--older", "1d"), ("erase", "--where", "key = 'a'")]
)
def test_a_file_is_no_dataset(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "landing.toml"
    file.touch()
    told = f"PATH: {file} is a file: give the folder of a dataset, as in sink.path\n"
    assert run(*command, file) == (78, "", told)


def test_help_is_quick_to_load() -> None:
    """A command does not import libraries that it does not need."""
    heavy = ["pyarrow", "pydantic", "aiohttp", "uvloop", "prometheus_client", "google.protobuf", "rich.console"]
    code = (
        "import sys\nfrom fastwire_daemon.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = subprocess.Popen([*PROGRAM, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait() == 1


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


@pytest.mark.parametrize("system", SYSTEMS)
def test_dev_broker_creates_topics(system: str) -> None:
    arguments = [*PROGRAM, "dev-broker", system, "--port", "0", "--topic", "orders", "--topic", "refunds"]
    with subprocess.Popen([*arguments, "--partitions", "4"], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        url = program.stdout.readline().split()[-1]
        for topic in ("orders", "refunds"):
            _, partitions = asyncio.run(describe(url, topic))
            assert partitions == 4
        program.terminate()


async def describe(url: str, topic: str) -> tuple[str, int]:
    connection = parse_connection({"url": url})
    ((name, partitions),), _ = await system_named(connection.system).describe(connection, TopicChoice((topic,)))
    return name, partitions


@pytest.mark.parametrize("system", SYSTEMS)
def test_dev_broker_serves_until_it_is_stopped(system: str) -> None:
    program = subprocess.Popen(
        [*PROGRAM, "dev-broker", system, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    match = re.fullmatch(rf"listening at {system}://127\.0\.0\.1:(\d+)\n", line)
    assert match, line + (program.stderr.read() if program.stderr else "")
    with socket.create_connection(("127.0.0.1", int(match[1])), timeout=60):
        taken = subprocess.run(
            [*PROGRAM, "dev-broker", system, "--port", match[1]], capture_output=True, text=True, check=False
        )
    assert (taken.returncode, taken.stdout) == (1, "")
    assert taken.stderr == f"cannot listen at 127.0.0.1:{match[1]}: the address is already in use\n"
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "", "")
