"""Mutated answers of any system against its scanner: rows, dead letters, damaged batches or ProtocolError."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Protocol

from fastwire.errors import ProtocolError
from fastwire.wire.pool import Pool
from tests.fuzz.hunt import Case, Subject, counting, main

BLOCK = 2000
MOST_MEMORY = 96 << 20


class Reading(Protocol):
    """A scanner and all that came out of it."""

    rows: list[dict[str, Any]]
    spans: list[Any]
    dead_letters: list[Any]
    corrupt: list[Any]

    def read(self, data: bytes, cuts: Iterable[int] = ()) -> object: ...


class Answers:
    """The answers of one system, numbered: ``frames`` yields those of a seed, without end.

    ``reading`` makes a scanner over a pool, given what it does with damage; ``place`` returns the place of a row in its
    partition, which grows.
    """

    def __init__(
        self,
        module: str,
        suffix: str,
        frames: Callable[[int], Iterator[bytes]],
        reading: Callable[[Pool, str], Reading],
        place: Callable[[dict[str, Any]], Any] = itemgetter("offset"),
    ) -> None:
        self._module = module
        self._suffix = suffix
        self._frames = frames
        self._reading = reading
        self._place = place

    def cases(self, seed: int) -> Iterator[Case]:
        """The words of all answers of a seed."""
        return ([f"{byte:02x}" for byte in frame] for frame in self._frames(seed))

    def run_case(self, words: Case) -> Counter[str]:
        """Scan one answer, as a whole and cut in two."""
        frame = bytes.fromhex("".join(words))
        reached: Counter[str] = Counter()
        for cuts, on_corrupt in (((), "dead_letter"), ((len(frame) // 2,), "stop")):
            pool = Pool(1 << 28)
            reading = self._reading(pool, on_corrupt)
            try:
                reading.read(frame, cuts)
            except ProtocolError:
                reached["protocol error"] += 1
            else:
                places: dict[tuple[str, int], list[Any]] = {}
                for row in reading.rows:
                    places.setdefault((row["topic"], row["partition"]), []).append(self._place(row))
                assert all(found == sorted(set(found)) for found in places.values())
                assert sum(span.rows for span in reading.spans) == len(reading.rows)
                reached["rows"] += bool(reading.rows)
                reached["dead letters"] += bool(reading.dead_letters)
                reached["damaged batches"] += bool(reading.corrupt)
            assert pool.peak <= MOST_MEMORY, f"{pool.peak} bytes were out at once"
        return reached

    def run_block(self, seed: int, first: int, count: int) -> Counter[str]:
        """Run cases ``first`` to ``first + count``; returns how often what came of them."""
        return counting(self.cases, self.run_case)(seed, first, count)

    def main(self, described: str | None) -> int:
        """Hunt for findings, as the command line says; returns the exit code."""
        return main(Subject(self._module, self._suffix, BLOCK, self.run_block, self.cases, self.run_case), described)
