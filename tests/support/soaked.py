"""Parts of a soak, and one summary of them that adds up.

    make soak PART=2/4                       # on as many machines as there are parts
    python -m tests.support.soaked [--write] FILE…

Each part leaves ``build/soak/2-of-4.json``; the whole is part 1 of 1. The command adds parts of one commit up and
prints the summary; it fails if one is missing, stands twice, is of another commit than the tree, lacks a test (a choice
by ``-k``, an end before all had run), or has a test that has not passed. ``--write`` puts the summary into
``docs/soak.md``, and its first line into ``docs/figures.md``.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Environment variables that make a soak shorter or longer; the summary names those that were set.
SETTINGS = ("FASTWIRE_SOAK_SHARE",)

_PARENTHESES = re.compile(r" \([^()]*\)")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "soak.md"
FIGURES = ROOT / "docs" / "figures.md"
BEGIN, END = "<!-- soak: python -m tests.support.soaked -->", "<!-- end of soak -->"


@dataclass(frozen=True)
class Part:
    """Part ``number`` of ``parts``, from 1."""

    number: int = 1
    parts: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Parse ``2/4``; the whole for an empty text. Raises ValueError."""
        if not text:
            return cls()
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f'PART="{text}" is no part, such as 2/4')
        return cls(int(match[1]), int(match[2]))

    def of(self, names: Iterable[str]) -> set[str]:
        """Choose from the names of all tests. The cases of a test go to different parts: they take the same time."""
        return set(sorted(names)[self.number - 1 :: self.parts])

    @property
    def file(self) -> Path:
        """The file in which the part leaves what it has done."""
        return FOLDER / f"{self.number}-of-{self.parts}.json"


@dataclass(frozen=True)
class Soaked:
    """The work of a part, or of all parts together.

    By test function: ``outcomes``, and ``took``, seconds with fixtures. ``done`` are lines of the tests; ``settings``
    those of ``SETTINGS`` that were set.
    """

    commit: str
    part: Part
    tests: tuple[str, ...]
    outcomes: dict[str, dict[str, int]]
    seconds: float
    done: tuple[str, ...]
    reasons: dict[str, int]
    took: dict[str, float]
    settings: dict[str, str]

    def write(self) -> None:
        """Leave it in the file of its part."""
        self.part.file.parent.mkdir(parents=True, exist_ok=True)
        value = {**self.__dict__, "part": [self.part.number, self.part.parts]}
        self.part.file.write_text(json.dumps(value, indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Soaked":
        """Read what ``write`` has left."""
        value: dict[str, Any] = json.loads(file.read_text())
        return cls(
            value["commit"],
            Part(*value["part"]),
            tuple(value["tests"]),
            value["outcomes"],
            value["seconds"],
            tuple(value["done"]),
            value["reasons"],
            value["took"],
            value["settings"],
        )

    @property
    def counts(self) -> Counter[str]:
        """The number of tests by outcome."""
        return sum((Counter(each) for each in self.outcomes.values()), Counter[str]())

    @property
    def headline(self) -> str:
        """The commit, the number of tests by outcome, and how long they took."""
        counts = self.counts
        total = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))
        return f"Commit `{self.commit[:12]}`: {total}, in {self.seconds / 60:.0f} minutes."

    def page(self) -> str:
        """The summary in Markdown. Details in parentheses are left out."""
        lines = [
            self.headline,
            *(f"{name} was {value}." for name, value in sorted(self.settings.items())),
            "",
            "| tests | cases | minutes |",
            "|---|---|---|",
        ]
        for name, outcomes in sorted(self.outcomes.items()):
            said = ", ".join(f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))
            lines.append(f"| `{name.removeprefix('tests/')}` | {said} | {self.took[name] / 60:.1f} |")
        if self.done:
            lines += ["", "What they did:", "", *(f"* {_PARENTHESES.sub('', each)}" for each in sorted(self.done))]
        if self.reasons:
            lines += ["", "Skipped:", "", *(f"* {times}: {reason}" for reason, times in sorted(self.reasons.items()))]
        return "\n".join(lines)


def commit() -> str:
    """The commit of the tree, with a + if it is changed; empty outside of a clone."""
    said = subprocess.run(
        ("git", "describe", "--always", "--abbrev=40", "--match=", "--dirty=+"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip()


def settings() -> dict[str, str]:
    """Those of ``SETTINGS`` that the environment has."""
    return {name: os.environ[name] for name in SETTINGS if name in os.environ}


def _tests() -> set[str]:
    """The names of all tests of a soak of this tree."""
    environment = {name: value for name, value in os.environ.items() if name != "FASTWIRE_SOAK_PART"}
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "soak",
        "-n",
        "0",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
    )
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return {line for line in said.stdout.splitlines() if "::" in line}


def added_up(soaked: Sequence[Soaked], tree: str, wanted: Iterable[str]) -> Soaked:
    """Add all parts of one soak up: all tests ``wanted`` of commit ``tree``. Raises ValueError for less than that."""
    commits = {each.commit for each in soaked}
    if len(commits) != 1:
        raise ValueError(f"the parts are of {len(commits)} commits: {', '.join(sorted(commits))}")
    if commits != {tree} or tree.endswith("+"):
        raise ValueError(
            f"the parts are of {commits.pop()} and the tree is {tree}: take the tree of that commit, clean"
        )
    if len({tuple(sorted(each.settings.items())) for each in soaked}) != 1:
        raise ValueError(f"the parts have different settings ({', '.join(SETTINGS)})")
    counts = {each.part.parts for each in soaked}
    if len(counts) != 1:
        raise ValueError("the parts belong to different divisions")
    numbers = set(range(1, counts.pop() + 1))
    found = [each.part.number for each in soaked]
    if missing := numbers - set(found):
        raise ValueError(f"parts are missing: {', '.join(map(str, sorted(missing)))} of {len(numbers)}")
    tests = [test for each in soaked for test in each.tests]
    if len(found) != len(numbers) or len(tests) != len(set(tests)):
        raise ValueError("a part stands there twice")
    if lacking := sorted(set(wanted) - set(tests)):
        raise ValueError(f"{len(lacking)} tests have not run, the first of them is {lacking[0]}")
    outcomes: dict[str, Counter[str]] = {}
    took: Counter[str] = Counter()
    for each in soaked:
        took.update(each.took)
        for name, times in each.outcomes.items():
            outcomes.setdefault(name, Counter()).update(times)
    return Soaked(
        commits.pop(),
        Part(),
        tuple(tests),
        {name: dict(times) for name, times in outcomes.items()},
        sum(each.seconds for each in soaked),
        tuple(line for each in soaked for line in each.done),
        dict(sum((Counter(each.reasons) for each in soaked), Counter[str]())),
        dict(took),
        soaked[0].settings,
    )


def main(arguments: Sequence[str]) -> int:
    """Add the files up, print the summary; return the exit code."""
    files = [Path(each) for each in arguments if each != "--write"] or sorted(FOLDER.glob("*.json"))
    if not files:
        print(f"there is no part in {FOLDER}: make soak", file=sys.stderr)
        return 2
    try:
        whole = added_up([Soaked.read(file) for file in files], commit(), _tests())
    except ValueError as exc:
        print(exc, file=sys.stderr)
        return 2
    print(whole.page())
    if "--write" in arguments:
        for page, text in ((PAGE, whole.page()), (FIGURES, whole.headline)):
            before, _, rest = page.read_text().partition(BEGIN)
            page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0 if set(whole.counts) <= {"passed", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
