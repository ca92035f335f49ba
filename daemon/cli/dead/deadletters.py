"""Dead letters for people and programs: lines, sums by reason and partition, and a folder of files."""

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...runtime.amounts import counted
from ..options import argument
from ..say import say

if TYPE_CHECKING:
    from ...dataset.deadletters.reader import KeptDeadLetter

_SHOWN_BYTES = 48
_INDEX = "dead-letters.jsonl"


def _facts(letter: "KeptDeadLetter") -> dict[str, Any]:
    names = ("entry", "number", "at", "topic", "partition", "position", "reason", "rows")
    return {name: getattr(letter, name) for name in names} | {"bytes": len(letter.payload), "replayed": letter.replayed}


def dead_letter_line(letter: "KeptDeadLetter") -> str:
    """Return a dead letter as a JSON object, with its raw bytes."""
    return json.dumps({**_facts(letter), "payload": b64encode(letter.payload).decode()})


def show_dead_letter(letter: "KeptDeadLetter") -> None:
    """Print a dead letter with its first bytes, as text if they are."""
    head = letter.payload[:_SHOWN_BYTES]
    try:
        text = head.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text and text.isprintable() else head.hex(" ")
    more = " …" if len(letter.payload) > _SHOWN_BYTES else ""
    say(
        f"{letter.entry}-{letter.number}  {letter.topic} [{letter.partition}] {letter.position}  "
        f"{letter.reason}  {len(letter.payload)} bytes: {shown}{more}"
    )


class DeadLetterReasons:
    """Numbers of dead letters and rows, and the first and last positions, by reason and partition."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._replayed = 0

    def add(self, letter: "KeptDeadLetter") -> None:
        """Count a dead letter."""
        key = (letter.kind, letter.topic, letter.partition)
        sums = self._found.setdefault(
            key,
            {"dead_letters": 0, "rows": 0, "first": letter.position, "last": letter.position, "example": letter.reason},
        )
        sums["dead_letters"] += 1
        self._replayed += letter.replayed
        sums["rows"] += letter.rows
        sums["last"] = letter.position

    def show(self, *, as_json: bool) -> None:
        """Print the sums."""
        dead_letters, rows = (sum(each[name] for each in self._found.values()) for name in ("dead_letters", "rows"))
        if as_json:
            parts = [
                {"reason": kind, "topic": topic, "partition": partition, **sums}
                for (kind, topic, partition), sums in sorted(self._found.items())
            ]
            typer.echo(
                json.dumps(
                    {
                        "path": self._path,
                        "dead_letters": dead_letters,
                        "rows": rows,
                        "replayed": self._replayed,
                        "found": parts,
                    }
                )
            )
            return

        replayed = f", {self._replayed:,} of them written back to a topic" if self._replayed else ""
        say(f"{self._path}: {counted(dead_letters, 'dead letter')}, {counted(rows, 'row')}{replayed}")
        for (kind, topic, partition), sums in sorted(self._found.items()):
            place = sums["first"] if sums["dead_letters"] == 1 else f"{sums['first']} to {sums['last']}"
            say(f"  {sums['dead_letters']:>9,}  {kind}  {topic} [{partition}] {place}")
            say(f"             {sums['example']}")


class DeadLetterFolder:
    """A new folder with one file for each dead letter, and a file of JSON lines about them."""

    def __init__(self, path: Path) -> None:
        with argument("--write"):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ValueError(f"{path} is not an empty folder")
            path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._index = (path / _INDEX).open("x", encoding="utf-8")

    def add(self, letter: "KeptDeadLetter") -> None:
        """Write the raw bytes of a dead letter."""
        name = f"{letter.entry:012d}-{letter.number}.bin"
        (self._path / name).write_bytes(letter.payload)
        self._index.write(json.dumps({"file": name, **_facts(letter)}) + "\n")

    def close(self) -> None:
        """End the file about the dead letters."""
        self._index.close()
