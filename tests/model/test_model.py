"""The commit protocol holds in every run that is tried, and each protocol with a rule missing does not."""

import random
from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from tests.model.explore import Found, Plan, pairs, plans, run_plan, walk
from tests.model.fanrun import FAN_SCENARIOS
from tests.model.run import SCENARIOS, STORE_SCENARIOS, Scenario
from tests.model.weakened import WEAKENED, Weakened
from tests.model.weakened_fanout import WEAKENED_FANOUT
from tests.model.weakened_store import WEAKENED_STORE
from tests.support.soaked import commit
from tests.support.soaklength import SHARE, part_of

WALKS = 150
PAIRS = 150
FAN_PAIRS = 20  # with several datasets a run takes longer
SEARCHED_PART = 4  # of all single faults every fourth; the long search has all of them
SOAK_WALKS = part_of(2_500)
FAN_SHARE = 10

each_scenario = pytest.mark.parametrize("scenario", [*SCENARIOS, *STORE_SCENARIOS], ids=lambda scenario: scenario.name)
# The systematic search of the others differs little and takes as long.
TRUE_LOCKS = [scenario for scenario in SCENARIOS if not scenario.locks_lie and not scenario.expires]
_EXPIRES = [scenario for scenario in (*SCENARIOS, *STORE_SCENARIOS) if scenario.expires and not scenario.locks_lie]
SEARCHED = [*TRUE_LOCKS[::2], *_EXPIRES, *STORE_SCENARIOS[:2]]


@pytest.mark.model
@pytest.mark.parametrize("scenario", SEARCHED, ids=lambda scenario: scenario.name)
def test_one_fault_anywhere(scenario: Scenario) -> None:
    single = list(plans(scenario))
    some = random.Random(scenario.name).sample(single, len(single) // SEARCHED_PART)
    assert next((found for plan in some if (found := run_plan(scenario, plan))), None) is None


@pytest.mark.model
@each_scenario
def test_two_processes_with_a_fault_each(scenario: Scenario) -> None:
    assert next((found for plan in pairs(scenario, PAIRS) if (found := run_plan(scenario, plan))), None) is None


@pytest.mark.model
@each_scenario
def test_random_walks(scenario: Scenario) -> None:
    assert next((found for seed in range(WALKS) if (found := walk(scenario, seed))), None) is None


each_fan = pytest.mark.parametrize("scenario", FAN_SCENARIOS, ids=lambda scenario: scenario.name)


@pytest.mark.model
@each_fan
def test_faults_with_a_dataset_for_each_topic(scenario: Scenario) -> None:
    """At every third operation, failures at some, and with a second daemon and a fault of each."""
    kills = [plan for plan in plans(scenario) if plan.fate == "kill"]
    fails = [plan for plan in plans(scenario) if plan.fate == "fail"]
    some = chain(kills[::3], fails[::6], pairs(scenario, FAN_PAIRS))
    assert next((found for plan in some if (found := run_plan(scenario, plan))), None) is None


# What the long search has found. The first is a deletion that nobody synced after its process had failed; the second an
# entry that comes after the look at the staged files, and before the look at the log; the third a deletion for an entry
# of another process, which had failed before its sync; the fourth a file that was erased from while it was compared;
# the fifth an erasure that was taken for dead, and found a file changed by the next one.
WRONG_ONCE = [
    ("two partitions in order expire", Plan(first=152, fate="fail", second=237, other="cut none")),
    ("store, two partitions expire", Plan(first=58, fate="delay long", second=33, other="delay")),
    ("shared, expires, locks lie", Plan(first=125, fate="pause", second=194, other="fail")),
    ("store, two partitions, a row is erased", Plan(first=31, fate="unheard", second=18, other="unheard")),
    ("store, two partitions, a row is erased, leases lie", Plan(first=80, fate="pause", second=134, other="unheard")),
]


@pytest.mark.model
@pytest.mark.parametrize(("name", "plan"), WRONG_ONCE, ids=[name for name, _ in WRONG_ONCE])
def test_runs_that_were_wrong_once(name: str, plan: Plan) -> None:
    (scenario,) = (one for one in (*SCENARIOS, *STORE_SCENARIOS) if one.name == name)
    assert run_plan(scenario, plan) is None


def attempts(weakened: Weakened) -> Iterator[Found | None]:
    """Single faults and random walks by turns: one finds at once what takes the other long."""
    every = ((scenario, plan) for scenario in weakened.scenarios for plan in plans(scenario))
    single = ((scenario, plan) for scenario, plan in every if weakened.fate in ("", plan.fate))
    walks = ((scenario, seed) for seed in range(400) for scenario in weakened.scenarios)
    for (scenario, plan), (other, seed) in zip(single, walks, strict=False):
        yield run_plan(scenario, plan, weakened.reader)
        yield walk(other, seed, weakened.reader)
    for scenario, seed in walks:
        yield walk(scenario, seed, weakened.reader)


@pytest.mark.model
@pytest.mark.parametrize("weakened", [*WEAKENED, *WEAKENED_STORE, *WEAKENED_FANOUT], ids=lambda weakened: weakened.name)
def test_a_missing_rule_is_found(weakened: Weakened) -> None:
    assert any(attempts(weakened)), "the checker does not see that a rule is missing"


def seed_of_the_tree() -> int:
    """The first seed of a soak: other walks for each commit. What is found names its own."""
    return WALKS + int(commit()[:8] or "0", 16)


@pytest.mark.soak
@each_scenario
def test_every_single_fault_and_many_walks(scenario: Scenario, record_property: Callable[[str, object], None]) -> None:
    first = seed_of_the_tree()
    single = list(plans(scenario))[:: round(1 / SHARE)]
    every = (run_plan(scenario, plan) for plan in single)
    some = (run_plan(scenario, plan) for plan in pairs(scenario, SOAK_WALKS, seed=first))
    walks = (walk(scenario, seed) for seed in range(first, first + SOAK_WALKS))
    assert next(filter(None, chain(every, some, walks)), None) is None
    record_property(
        "done",
        f"model {scenario.name}: {len(single):,} single faults, {SOAK_WALKS:,} pairs and {SOAK_WALKS:,} walks from "
        f"{first} on: no rule broken",
    )


@pytest.mark.soak
@each_fan
def test_every_single_fault_with_a_dataset_for_each_topic(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    single = list(plans(scenario))[:: round(1 / SHARE)]
    first = seed_of_the_tree()
    walks = (walk(scenario, seed) for seed in range(first, first + SOAK_WALKS // FAN_SHARE))
    assert next(filter(None, chain((run_plan(scenario, plan) for plan in single), walks)), None) is None
    record_property(
        "done",
        f"model {scenario.name}: {len(single):,} single faults, and {SOAK_WALKS // FAN_SHARE:,} walks from {first} on: "
        "no rule broken",
    )
