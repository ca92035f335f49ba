"""Fuzzed conversations of any system: a client's state machines on one side, a broker that acts by chance on the other.

A case is the list of words that the client was led by, so that it can be run again without the broker, made smaller and
kept. The client checks its own invariants after each word.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

from tests.fuzz.hunt import Case, Subject, main


class FuzzedClient(Protocol):
    """State machines that are led by words, and check what must hold whatever a broker says."""

    reached: Counter[str]

    def step(self, word: str) -> None: ...
    def finish(self) -> None: ...


class Leader(Protocol):
    """Chooses the next word of a conversation."""

    def word(self) -> str: ...


BLOCK = 400
C = TypeVar("C", bound=FuzzedClient)


class Conversations(Generic[C]):
    """The conversations of one system, numbered: a seed gives the same ones each time.

    ``module`` is what its ``__main__`` is called, ``suffix`` that of its files in the corpus, ``steps`` the length of a
    conversation. ``outcomes`` are those that a block has to reach now and then, or it is not worth its time.
    """

    def __init__(
        self,
        module: str,
        suffix: str,
        steps: int,
        client: Callable[[], C],
        leader: Callable[[C, Callable[[], float]], Leader],
        outcomes: Iterable[str],
    ) -> None:
        self._module = module
        self._suffix = suffix
        self._steps = steps
        self._client = client
        self._leader = leader
        self._outcomes = frozenset(outcomes)

    def _lead(self, seed: int, number: int) -> tuple[Case, C, Exception | None]:
        """The words of one conversation, the client behind them, and the finding, if there is one."""
        chance = random.Random(f"{seed}:{number}").random
        client = self._client()
        leader = self._leader(client, chance)
        words: Case = []
        try:
            for _ in range(self._steps):
                words.append(leader.word())
                client.step(words[-1])
            client.finish()
        except Exception as exc:  # a finding
            return words, client, exc
        return words, client, None

    def cases(self, seed: int) -> Iterator[Case]:
        """The words of all conversations of a seed."""
        return (self._lead(seed, number)[0] for number in count())

    def run_block(self, seed: int, first: int, count: int) -> Counter[str]:
        """Lead conversations ``first`` to ``first + count``; returns how often each outcome was reached."""
        reached: Counter[str] = Counter()
        for number in range(first, first + count):
            _, client, finding = self._lead(seed, number)
            if finding is not None:
                raise finding
            reached += client.reached
        return reached

    def not_reached(self, conversations: int) -> frozenset[str]:
        """The outcomes to which none of the first ``conversations`` of seed 0 leads."""
        return self._outcomes - (+self.run_block(0, 0, conversations)).keys()

    def run_case(self, words: Case) -> None:
        """Lead one conversation by its words."""
        client = self._client()
        for word in words:
            client.step(word)
        client.finish()

    def main(self, described: str | None) -> int:
        """Hunt for findings, as the command line says; returns the exit code."""
        return main(Subject(self._module, self._suffix, BLOCK, self.run_block, self.cases, self.run_case), described)
