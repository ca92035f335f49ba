"""Commands on a terminal, with text of strangers that would act on it."""

import ast
import os
import pty
from pathlib import Path

import pytest

import fastwire_daemon.cli
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.sinks.stdout import StdoutSink
from tests.daemon.cli.program import Run
from tests.support.answering import answering

EVIL = '\x1b]0;owned\x07\x1b[2J\x9b1;1Hroot password:\r\n{"level":"error","event":"forged"}\u202e'
SHOWN = repr(EVIL)[1:-1]


def refusal() -> bytes:
    """The answer of a Pulsar broker to a login that it refuses."""
    command = pb.BaseCommand()
    command.type = pb.BaseCommand.ERROR
    command.error.request_id = 0
    command.error.error = pb.AuthenticationError
    command.error.message = EVIL
    body = command.SerializeToString()
    return (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("arguments", [["tail"], ["produce", "--load", "1"], ["check", "--connect"]])
def test_an_error_of_a_broker(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    command, *options = arguments
    with answering(refusal()) as port:
        url = f"pulsar://127.0.0.1:{port}"
        source = f'[pipelines.p.source]\nurl = "{url}"\ntopics = ["t"]\ngroup = "g"\nstart = "latest"\n'
        (tmp_path / "c.toml").write_text(source + '[pipelines.p.sink]\ntype = "discard"\n')
        places = [tmp_path / "c.toml"] if command == "check" else [url, "t"]
        code, out, err = run(command, *places, *options)
    assert code == 1
    assert SHOWN in out + err
    assert all(line.isprintable() for line in (out + err).split("\n"))


def test_names_in_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    from fastwire_daemon.cli.printed import show_report

    show_report(VerifyReport(path=f"/d/{EVIL}", strict=False, unproven=[EVIL]))
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 2
    assert all(line.isprintable() for line in out.split("\n"))


def test_the_stdout_sink_on_a_terminal_and_elsewhere() -> None:
    text = '{"value":"\x9b2J\u202e"}\n'.encode()
    seen = {}
    for name, (reading, writing) in {"terminal": pty.openpty(), "pipe": os.pipe()}.items():
        StdoutSink(writing).put(text)
        seen[name] = os.read(reading, 1000).replace(b"\r\n", b"\n")
        os.close(reading)
        os.close(writing)
    assert seen == {"terminal": b'{"value":"\\u009b2J\\u202e"}\n', "pipe": text}


# What prints without `say`: JSON, text of this program alone, and records as they are.
OWN_TEXT = {"say.py", "app.py", "tail/tail.py", "check/command.py", "commands/completion.py", "commands/dev_broker.py"}
OWN_TEXT |= {"commands/man.py", "commands/unit.py"}


def test_commands_print_by_one_way() -> None:
    """JSON escapes what acts on a terminal."""
    root = Path(fastwire_daemon.cli.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        name = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("typer.echo", "print", "click.echo"):
                continue
            text = ast.unparse(node.args[0])
            if name not in OWN_TEXT and not text.startswith(("json.dumps(", "dead_letter_line(")):
                found.append(f"{name}:{node.lineno}: {text}")
    assert found == []
