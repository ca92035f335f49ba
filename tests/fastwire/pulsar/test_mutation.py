"""A million mutated frames: nothing comes of them but ProtocolError, dead letters, cold entries and sound columns."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.pulsar import Target, compare, run_block, run_case, run_views, seeds

BLOCK = 50_000


def check_outcomes(target: Target, cases: int) -> None:
    """The cases are worth their time only while they get everywhere."""
    assert target.done == cases
    for outcome, count in target.outcomes.items():
        assert count > cases // 200, (outcome, target.outcomes)


@pytest.mark.parametrize("number", range(len(seeds())))
def test_the_seeds_are_sound(number: int) -> None:
    target = Target(validate_every=1)
    target.run(seeds()[number])
    target.finish()
    assert target.outcomes["protocol error"] == 0
    assert target.outcomes["dead letters"] == target.outcomes["rejected"]
    compare(seeds()[number])


def test_50_000_mutated_frames() -> None:
    check_outcomes(run_block(0, BLOCK, compare_every=25), BLOCK)


def test_mutated_batches_by_their_views() -> None:
    run_views(0, 20_000)


# Not unit tests: half a minute, for `make test` alone.
@pytest.mark.model
@pytest.mark.parametrize("seed", range(1, 20))
def test_a_million_mutated_frames(seed: int) -> None:
    check_outcomes(run_block(seed, BLOCK), BLOCK)


@pytest.mark.parametrize("name", found("hex"))
def test_what_fuzzing_has_found(name: str) -> None:
    run_case(kept(name))
