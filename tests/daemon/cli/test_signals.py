"""Signals in the first moments of a process, before it has imported what handles them, and in its last ones."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from tests.daemon.cli.program import GOOD

# The command line, with signals that arrive when a module is looked for the first time.
PROGRAM = """
import importlib.abc, os, signal, sys
import fastwire_consume

class Look(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        for number in at.pop(name, ()):
            {action}
            os.kill(os.getpid(), number)

at = {at!r}
sys.meta_path.insert(0, Look())
fastwire_consume.main()
"""
FIRST, MIDDLE, LAST = "fastwire_daemon", "typer", "fastwire_daemon.service.service"
ROOT = Path(__file__).parents[3]


def called(at: dict[str, list[int]], *arguments: str | Path, action: str = "pass") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(at={name: [*map(int, numbers)] for name, numbers in at.items()}, action=action)
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.fixture
def config(tmp_path: Path, kafka: KafkaDevBroker) -> Path:
    """A pipeline of 40 records."""
    file = tmp_path / "c.toml"
    file.write_text(
        f"""\
[daemon]
http = ""
[pipelines.p.source]
url = "{kafka.url}"
topics = ["orders"]
group = "g"
start = "earliest"
[pipelines.p.sink]
type = "parquet"
path = "{tmp_path / "data"}"
"""
    )
    return file


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", [FIRST, MIDDLE, LAST])
def test_a_signal_to_stop_ends_a_run_before_it_starts(config: Path, module: str, number: int) -> None:
    done = called({module: [number]}, "run", config)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and '"stopping"' in done.stderr
    assert not config.with_name("data").exists()


def test_a_second_one_aborts(config: Path) -> None:
    done = called({FIRST: [signal.SIGTERM], MIDDLE: [signal.SIGTERM]}, "run", config)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("module", [FIRST, MIDDLE, LAST])
def test_sighup_and_sigusr1_end_no_run(config: Path, module: str) -> None:
    done = called({module: [signal.SIGHUP, signal.SIGUSR1]}, "run", config, "--until-end")
    assert done.returncode == 0, done.stderr
    assert '"level":"debug","event"' in done.stderr or '"event":"the level of the log changes"' in done.stderr
    assert '"rows":40' in done.stderr or '"rows":20' in done.stderr


def test_a_configuration_that_changed_before_the_handler_was_there_is_taken_over(config: Path) -> None:
    """SIGHUP comes when the file was read and the service not yet imported; the new file has no pipeline that runs."""
    change = f"open({str(config)!r}, 'a').write('roll = {{ age = {chr(34)}1s{chr(34)} }}\\n')"
    done = called({LAST: [signal.SIGHUP]}, "run", config, "--until-end", action=change)
    assert done.returncode == 0, done.stderr
    assert '"event":"configuration reloaded"' in done.stderr


@pytest.mark.parametrize(
    "arguments", [["check", "x"], ["tail", "kafka://127.0.0.1:1", "t"], ["verify", "x"], ["status", "x"], ["--help"]]
)
@pytest.mark.parametrize("module", [FIRST, MIDDLE])
def test_ctrl_c_before_a_command_starts_shows_no_traceback(arguments: list[str], module: str) -> None:
    done = called({module: [signal.SIGINT]}, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("module", ["pydantic", "fastwire_daemon.runtime.errors"])
def test_ctrl_c_while_a_command_imports_shows_no_traceback(tmp_path: Path, module: str) -> None:
    """The second module is imported to explain an error."""
    file = tmp_path / "c.toml"
    file.write_text(GOOD.format(path=tmp_path, token=tmp_path) if module == "pydantic" else "oops [")
    done = called({module: [signal.SIGINT]}, "check", file)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_at_the_very_end_keeps_the_exit_code(tmp_path: Path, number: int) -> None:
    """A file that is no configuration ends a run with 78; the signal comes while the interpreter ends."""
    (tmp_path / "c.toml").write_text("oops [")
    program = f"import atexit, os\natexit.register(lambda: os.kill(os.getpid(), {int(number)}))\n"
    command = [sys.executable, "-c", program + PROGRAM.format(at={}, action="pass"), "run", str(tmp_path / "c.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == 78, done.stderr
    assert "Traceback" not in done.stderr
