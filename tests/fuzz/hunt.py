"""Looking for cases that fail, however hard: each block in a process of its own, what is found made small and kept.

A case is a list of words: bytes in hexadecimal, or steps. Cases are numbered: a seed gives the same ones each time.
Where a block fails or dies, halves of it are tried until one case is left, which is made as small as it gets and
written to ``corpus/``. What lies there is a test from then on.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(os.environ.get("FASTWIRE_FUZZ_CORPUS", Path(__file__).parent / "corpus"))
SEEDS = 1_000_000  # blocks that a run may have before it comes to those of the next one

Case = list[str]


@dataclass(frozen=True)
class Subject:
    """The target of a fuzzer. ``block`` runs part of a seed: a number of cases from the given one on."""

    module: str  # what its ``__main__`` is called
    suffix: str  # of its files in the corpus
    size: int  # cases in a block
    block: Callable[[int, int, int], object]
    cases: Callable[[int], Iterator[Case]]
    run: Callable[[Case], object]


def counting(
    cases: Callable[[int], Iterator[Case]], run: Callable[[Case], Counter[str]]
) -> Callable[[int, int, int], Counter[str]]:
    """Return the ``block`` of a target whose ``run`` counts what came of a case."""

    def block(seed: int, first: int, count: int) -> Counter[str]:
        reached: Counter[str] = Counter()
        for words in islice(cases(seed), first, first + count):
            reached += run(words)
        return reached

    return block


def found(suffix: str) -> Sequence[Any]:
    """The names of what was found before, as values for a test; one that is skipped if that is nothing."""
    nothing = pytest.param("", marks=pytest.mark.skip(f"fuzzing has found no *.{suffix} yet"))
    return sorted(path.name for path in CORPUS.glob(f"*.{suffix}")) or [nothing]


def kept(name: str) -> Case:
    """The words of a file of the corpus, without remarks."""
    lines = (CORPUS / name).read_text(encoding="ascii").splitlines()
    return " ".join(line.partition("#")[0] for line in lines).split()


def _fails(subject: Subject, *arguments: object, case: Case | None = None) -> str | None:
    """Return the failure of a separate process; None if there is none."""
    command = [sys.executable, "-m", subject.module, *map(str, arguments)]
    words = None if case is None else "\n".join(case)
    done = subprocess.run(command, input=words, capture_output=True, text=True, check=False)
    return f"({done.returncode})\n{done.stderr[-3000:]}" if done.returncode else None


def _minimise(subject: Subject, case: Case) -> Case:
    """Drop what the failure does not need."""
    size = max(len(case) // 2, 1)
    while size:
        at = 0
        while at < len(case):
            without = case[:at] + case[at + size :]
            if without and _fails(subject, "--case", case=without) is not None:
                case = without
            else:
                at += size
        size //= 2
    return case


def _hunt(subject: Subject, seed: int) -> bool:
    """Run one block; on failure find the case and write it down."""
    first, count = 0, subject.size
    complaint = _fails(subject, "--block", seed, first, count)
    if complaint is None:
        return True
    print(f"block {seed} fails {complaint}", flush=True)
    while count > 1:
        half = count // 2
        if _fails(subject, "--block", seed, first, half) is not None:
            count = half
        elif _fails(subject, "--block", seed, first + half, count - half) is not None:
            first, count = first + half, count - half
        else:
            print(f"it needs all of {first} to {first + count}", flush=True)
            return False
    (case,) = (one for number, one in zip(range(first + 1), subject.cases(seed), strict=False) if number == first)
    small = _minimise(subject, case)
    text = "\n".join(small)
    path = CORPUS / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.{subject.suffix}"
    path.write_text(f"# block {seed}\n{text}\n")
    print(f"{path}: {len(small)} words", flush=True)
    return False


def main(subject: Subject, described: str | None) -> int:
    """Run the command line of ``python -m``."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--block", type=int, nargs=3, help="run a part of a block: seed, first, count")
    parser.add_argument("--case", action="store_true", help="run one case, from standard input")
    asked = parser.parse_args()
    if asked.case:
        subject.run(sys.stdin.read().split())
        return 0
    if asked.block is not None:
        subject.block(*asked.block)
        return 0
    end = time.monotonic() + asked.seconds
    blocks = bad = 0
    while time.monotonic() < end:
        bad += not _hunt(subject, asked.seed * SEEDS + blocks)
        blocks += 1
    print(f"{subject.module}: seed {asked.seed}, {blocks * subject.size:,} cases, {bad} blocks with a failure")
    return 1 if bad else 0
