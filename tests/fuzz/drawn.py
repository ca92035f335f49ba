"""Schemas with values for fuzzers, drawn by hypothesis: the same ones for the same number."""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.hunt import Case

_EXAMPLES = 8  # the first ones of hypothesis are the simplest
_A_SEED = 16  # schemas of a seed


@cache
def drawn(make: Any, number: int) -> Any:
    """Return one value of the strategy that ``make`` returns."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(make())
    def keep(value: Any) -> None:
        found.append(value)

    keep()
    return found[-1]


def numbers_of(seed: int) -> Iterator[tuple[int, Random]]:
    """The numbers of the schemas of a seed in turn, without end, and the dice of all that is made for them."""
    chance = Random(seed)
    while True:
        for number in range(_A_SEED):
            yield seed * _A_SEED + number, chance


def case_of(number: int, data: bytes) -> Case:
    """Return a case: the number of its schema, and bytes."""
    return [f"schema={number}", *(f"{byte:02x}" for byte in data)]


def parted(words: Case) -> tuple[int, bytes]:
    """Return the parts of a case, which may have been made smaller."""
    numbers = [int(word.partition("=")[2]) for word in words if "=" in word]
    return sum(numbers[:1]), bytes.fromhex("".join(word for word in words if "=" not in word))


def spoilt(data: bytes, chance: Random, pieces: Sequence[bytes]) -> bytes:
    """Return ``data`` with up to three changes, some of which insert one of the ``pieces``."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(found) + 1)
        kind = chance.randrange(5)
        if kind <= 2:
            found[place : place + chance.choice((0, 0, 1, 4))] = chance.choice(pieces)
        elif kind == 3:
            other = chance.randrange(len(found) + 1)
            found[place:place] = found[other : other + chance.randint(1, 12)]
        else:
            del found[place : place + chance.choice((1, 1, 3, 1000))]
    return bytes(found)
