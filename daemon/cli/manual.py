"""The manual page fastwire-consume(1), made from the help of the commands."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from typer.core import TyperGroup

from fastwire import __version__

from .exits import EXITS

_ENVIRONMENT = {
    "FASTWIRE_TOKEN": "Token for the brokers, for commands that take a URL.",
    "FASTWIRE_PASSWORD": "Password of --user.",
    "AWS_ACCESS_KEY_ID": "With others of its kind, access to an object store that the configuration does not give.",
}


def manual_page(group: Any) -> str:
    """Return the page in roff. ``group`` is the context of the command line, as a command gets it for its parent."""
    return "".join(f"{line}\n" for line in _lines(group))


class Description(NamedTuple):
    """The help of a command: its name, usage, paragraphs without line breaks, and options with their meanings."""

    name: str
    usage: str
    paragraphs: list[str]
    options: list[tuple[str, str]]


def described(group: Any) -> Iterator[Description]:
    """Yield the help of each command of ``group``, the context of the command line."""
    for each in group.command.commands.values():
        context = each.context_class(each, parent=group, info_name=each.name)
        records = [
            parameter.get_help_record(context)
            for parameter in each.get_params(context)
            if "--help" not in parameter.opts
        ]
        yield Description(
            each.name or "",
            " ".join([each.name or "", *each.collect_usage_pieces(context)]),
            [" ".join(paragraph.split()) for paragraph in (each.help or "").split("\n\n")],
            [record for record in records if record is not None],
        )


def _lines(group: Any) -> Iterator[str]:
    name, commands = "fastwire-consume", group.command
    assert isinstance(commands, TyperGroup)
    yield f'.TH FASTWIRE-CONSUME 1 "" "fastwire {__version__}" "fastwire"'
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_text(_first(commands.help)[:1].lower() + _first(commands.help)[1:].rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_text(name)}"
    yield "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    yield ".SH COMMANDS"
    for each in described(group):
        yield f'.SS "{_text(each.usage)}"'
        for number, paragraph in enumerate(each.paragraphs):
            if number:
                yield ".PP"
            yield _text(paragraph)
        for option in each.options:
            yield from _item(*option)
    yield ".SH EXIT STATUS"
    for code, meaning in EXITS.items():
        yield from _item(str(code), meaning)
    yield ".SH ENVIRONMENT"
    for variable, meaning in _ENVIRONMENT.items():
        yield from _item(variable, meaning)
    yield ".SH SEE ALSO"
    yield _text("The documentation of fastwire: configuration.md has all keys, running.md signals and probes.")


def _item(label: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(label)}"
    yield _text(text) or "\\&"


def _first(text: str | None) -> str:
    return (text or "").partition("\n\n")[0]


def _text(text: str) -> str:
    """Return text for roff, on one line: nothing in it is a request or an escape."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq")
    return f"\\&{line}" if line.startswith(".") else line
