"""Completion in shells, and the manual page: both are made from the commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from fastwire_daemon.cli.app import app
from fastwire_daemon.cli.exits import EXITS
from fastwire_daemon.cli.manual import manual_page
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.cli.program import Run

COMMANDS = set(vars(typer.main.get_command(app))["commands"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which ``fastwire-consume`` is this tree's, and its script for bash."""
    program = tmp_path_factory.mktemp("bin") / "fastwire-consume"
    program.write_text(f"#!{sys.executable}\nfrom fastwire_daemon.cli.app import main\nmain()\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    (program.parent / "for-bash").write_text(shell(path, "fastwire-consume", "completion", "bash"))
    return path


def shell(path: str, *command: str) -> str:
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_bash(path: str, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    script = """
        . for-bash  # which bash looks for on PATH
        function=$(complete -p fastwire-consume | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_LINE="fastwire-consume $*" COMP_POINT=$(( ${#COMP_LINE} ))
        $function fastwire-consume
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    return shell(path, "bash", "--norc", "-c", script, "bash", *words).split()


def offered(path: str, *words: str) -> list[str]:
    """The same of a topic: a broker has two seconds to answer, which a busy machine may need to ask it."""
    return next(filter(None, (in_bash(path, *words) for _ in range(10))), [])


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_choices_and_pipelines(path: str, tmp_path: Path) -> None:
    assert set(in_bash(path, "")) == COMMANDS
    assert in_bash(path, "stat") == ["status"]
    assert in_bash(path, "verify", "--st") == ["--strict"]
    assert in_bash(path, "run", "x.toml", "--log-level", "w") == ["warning"]
    file = tmp_path / "two.toml"
    file.write_text("[pipelines.orders]\n[pipelines.others]\n[pipelines.refunds]\n")
    assert in_bash(path, "run", str(file), "--pipeline", "o") == ["orders", "others"]
    assert in_bash(path, "run", str(file), "--until-end", "-p", "r") == ["refunds"]
    for none in ("no-such-file", str(tmp_path)):
        assert in_bash(path, "run", none, "-p", "o") == []


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_other_shells_read_their_script(run: Run, name: str, path: str, tmp_path: Path) -> None:
    code, script, err = run("completion", name)
    assert (code, err) == (0, "") and "fastwire-consume" in script and f"complete_{name}" in script
    if shutil.which(name) is not None:
        file = tmp_path / "script"
        file.write_text(script)
        shell(path, name, "-n", str(file))


@pytest.mark.parametrize(("name", "words"), [("zsh", "_TYPER_COMPLETE_ARGS"), ("fish", "_TYPER_COMPLETE_ARGS")])
def test_the_program_answers_other_shells(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setenv("_FASTWIRE_CONSUME_COMPLETE", f"complete_{name}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv(words, "fastwire-consume expi")
    code, out, _ = run()
    assert code == 0 and "expire" in out and "verify" not in out


def test_an_unknown_shell_is_refused(run: Run) -> None:
    assert run("completion", "tcsh")[0] == 2


def test_the_manual_has_every_command_option_and_exit_code(run: Run) -> None:
    code, page, err = run("man")
    assert (code, err) == (0, "")
    group = typer.main.get_command(app)
    for name, command in vars(group)["commands"].items():
        section = page.partition(f'.SS "{name.replace("-", chr(92) + "-")} ')[2].partition("\n.S")[0]
        assert section, name
        for parameter in command.params:
            if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
                assert parameter.opts[-1].replace("-", "\\-") in section, f"{name} {parameter.opts}"
    for exit_code, meaning in EXITS.items():
        assert f".B {exit_code}\n{meaning}\n" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_manual_is_sound_roff(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "fastwire-consume.1"
    file.write_text(run("man")[1])
    done = subprocess.run(["groff", "-man", "-ww", "-z", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_text_is_never_a_request() -> None:
    small = typer.Typer(rich_markup_mode=None)

    @small.command()
    def odd(path: str = typer.Option("C:\\temp", help=".SH 'quoted' \"twice\" \\fBbold")) -> None:
        """.so /etc/passwd"""

    @small.callback(help="Odd.")
    def common() -> None:
        pass

    group = typer.main.get_command(small)
    page = manual_page(group.make_context("odd", ["odd"], resilient_parsing=True))
    assert "\n\\&.so /etc/passwd\n" in page
    assert "\n\\&.SH \\(aqquoted\\(aq \\(dqtwice\\(dq \\efBbold" in page and "C:\\etemp" in page


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("system", ["pulsar", "kafka", "tank"])  # TubeMQ tells none
def test_bash_completes_the_topics_of_a_broker(path: str, system: str) -> None:
    with running(dev_broker(system)) as broker:
        for topic in ("orders", "others.of-today", "refunds"):
            broker.create_topic(topic, 2)
        assert offered(path, "tail", broker.url, "-n", "3", "o") == ["orders", "others.of-today"]
        assert offered(path, "produce", broker.url, "re") == ["refunds"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_topics_of_other_namespaces_and_nothing_for_a_bad_url(path: str) -> None:
    with running(PulsarDevBroker()) as broker:
        broker.create_topic("persistent://public/other/orders")
        broker.create_topic("refunds")
        # Readline replaces only the text behind the colon.
        assert offered(path, "tail", broker.url, "persistent://public/other/") == ["//public/other/orders"]
        assert offered(path, "tail", broker.url, "persistent://public/default/r") == ["//public/default/refunds"]
        assert in_bash(path, "tail", broker.url, "persistent://x") == []
    for none in (broker.url, "rabbit://127.0.0.1:1", "x", "pulsar://"):  # the broker has ended
        assert in_bash(path, "tail", none, "o") == []
