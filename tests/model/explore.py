"""The choice of the next event: random walks from a seed, and a search of all runs with few faults and switches."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .judge import Violation
from .reader import Reader
from .run import Run, Scenario, Slot
from .store import CHANGES, REQUESTS

DISK_KINDS = ("cut", "kill", "fail sync", "fail link", "lie", "full", "vanish")
STORE_KINDS = (
    "cut",
    "kill",
    "fail request",
    "unheard",
    "delay",
    "delay create",
    "orphan create",
    "stop",
    "vanish",
    "pending",
)
WANTED = {
    "fail sync": ("sync", "sync-folder"),
    "fail link": ("link",),
    "lie": ("link",),
    "fail request": REQUESTS,
    "unheard": CHANGES,
    "delay": CHANGES,
    "delay create": ("create",),
    "orphan create": ("create",),
    "stop": CHANGES,
    "pending": ("copy",),
}


class Dice:
    """Choices from a seeded generator."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def choose(self, options: int) -> int:
        return self.random.randrange(options)


@dataclass(frozen=True)
class Found:
    """A violation and the way to it."""

    text: str
    trace: list[str]

    def __str__(self) -> str:
        return "\n".join([self.text, *self.trace])


def walk(scenario: Scenario, seed: int, reader: type[Any] = Reader, *, steps: int = 400) -> Found | None:
    """One random walk: bursts of two processes, and a few faults at any operation."""
    dice = Dice(f"{scenario.name} {seed}")
    chance = dice.random.random
    run = scenario.begin(reader)
    # Walks differ in what they do often and what never: few mistakes need everything at once.
    faults = dice.choose(6)
    possible = STORE_KINDS if scenario.store else DISK_KINDS
    kinds = [kind for kind in possible if (kind != "vanish" or scenario.loses) and dice.choose(2)] or ["cut"]
    switch = (0.5, 0.1, 0.02)[dice.choose(3)]
    disturb = (0.0, 0.02, 0.1)[dice.choose(3)]
    try:
        current = run.slots[0]
        idle = 0
        while run.steps < steps and idle < 4:
            if chance() < switch:
                current = run.slots[dice.choose(len(run.slots))]
            if faults and chance() < 0.03:
                faults -= 1
                _fault(run, current, kinds[dice.choose(len(kinds))], dice)
            elif run.vanished and chance() < 0.03:
                run.come_back()
            elif run.world.late and chance() < 0.1:
                run.arrive(dice.choose(len(run.world.late)))
            elif not current.running:
                run.start(current)
            elif chance() < disturb:
                run.trace.append("the broker redelivers")
                run.broker.disturb(dice)
            else:
                run.advance(current)
                if current.at[0] == "idle":
                    current = run.slots[dice.choose(len(run.slots))]
            idle = idle + 1 if not current.running and (run.broker.finished() or run.vanished) else 0
        if "cut" in kinds and chance() < 0.3:
            run.cut_power(dice)
        run.settle(anew=scenario.locks_lie or chance() < 0.5)
    except Violation as exc:
        return Found(f"{scenario.name}, seed {seed}: {exc}", run.trace)
    finally:
        _end(run)
    return None


def _fault(run: Run, slot: Slot, kind: str, dice: Dice) -> None:
    if kind == "cut":
        run.cut_power(dice)
    elif kind == "vanish":
        run.vanish()
    elif kind == "full":
        run.world.full = not run.world.full
    elif not slot.running:
        run.start(slot)
    elif kind == "kill":
        run.kill(slot)
    else:
        # Run on to the next operation that can fail in this way.
        wanted = WANTED[kind]
        for _ in range(60):
            if not slot.running or slot.at[0] in wanted:
                break
            run.advance(slot)
        if slot.running and slot.at[0] in wanted:
            _give(run, slot, kind.partition(" ")[0])


def _give(run: Run, slot: Slot, fault: str) -> None:
    """Let the next operation suffer ``fault``."""
    run.advance(slot, "delay" if fault in ("orphan", "stop") else fault)
    if fault == "orphan" and slot.running:
        run.kill(slot)
    elif fault == "stop" and slot.running and slot.at[0] == "pause":
        run.advance(slot, fault)


def _end(run: Run) -> None:
    for slot in run.slots:
        if slot.running:
            run.kill(slot)


@dataclass(frozen=True)
class Plan:
    """A run without chance: the first process does ``first`` operations and then suffers ``fate``; the second does
    ``second`` and suffers ``other``; then the first goes on (or starts anew), and all comes to rest.
    """

    first: int
    fate: str
    second: int = 0
    other: str = "pause"


class Script:
    """Choices that are always the same: nothing that was pending survives, everything does, or every other thing."""

    def __init__(self, survive: str) -> None:
        self._survive = survive
        self._turn = 0

    def choose(self, options: int) -> int:
        if options == 4:
            return {"none": 0, "all": 1}.get(self._survive, 2)
        self._turn += 1
        if options == 3:
            return {"none": 0, "all": 2}.get(self._survive, 1)
        return (self._turn + (self._survive == "odd")) % 2


CUTS = ("cut none", "cut all", "cut even", "cut odd")
LOSSES = ("lose newest", "lose first", "lose middle", "lose all")
FAULTS = {"fail": ("sync", "sync-folder", "link"), "space": ("sync", "sync-folder"), "lie": ("link",)}
FATES = ("pause", "kill", "fail", "space", "lie", "vanish", *LOSSES, *CUTS)
STORE_FAULTS = {
    "fail": REQUESTS,
    "unheard": CHANGES,
    "delay": CHANGES,
    "delay long": CHANGES,
    "orphan": CHANGES,
    "stop": CHANGES,
    "pending": ("copy",),
}
STORE_FATES = ("pause", "kill", "vanish", *STORE_FAULTS, *LOSSES)
GONE_STEPS = 60  # of a process whose dataset is gone, before that is back


def fates(scenario: Scenario) -> tuple[str, ...]:
    """Return what can happen to a process."""
    if not scenario.loses:
        return tuple(fate for fate in FATES if fate not in ("vanish", *LOSSES))
    return STORE_FATES if scenario.store else FATES


def run_plan(scenario: Scenario, plan: Plan, reader: type[Any] = Reader) -> Found | None:
    """Follow ``plan``; None if nothing is wrong."""
    run = scenario.begin(reader)
    try:
        first, second = run.slots
        run.start(first)
        for slot, count, fate in ((first, plan.first, plan.fate), (second, plan.second, plan.other)):
            if slot is second and (plan.second or plan.other != "pause"):
                run.start(second)
            _advance(run, slot, count)
            _suffer(run, slot, fate)
        if "delay long" not in (plan.fate, plan.other):
            while run.world.late:
                run.arrive()
        for slot in (first, second):
            if not slot.running:
                run.start(slot)
            _advance(run, slot, 1_000)
        run.settle()
        if plan.fate == "kill":
            run.harm()
    except Violation as exc:
        return Found(f"{scenario.name}, {plan}: {exc}", run.trace)
    finally:
        _end(run)
    return None


def _advance(run: Run, slot: Slot, count: int) -> None:
    for _ in range(count):
        if not slot.running or slot.at[0] == "idle":
            return
        run.advance(slot)


def _suffer(run: Run, slot: Slot, fate: str) -> None:
    if fate == "vanish":
        run.vanish()
        _advance(run, slot, GONE_STEPS)
        run.come_back()
    elif fate.startswith("cut"):
        run.cut_power(Script(fate.removeprefix("cut ")))
    elif fate.startswith("lose"):
        run.lose(fate.removeprefix("lose "))
    elif not slot.running:
        return
    elif fate == "kill":
        run.kill(slot)
    elif slot.at[0] in (STORE_FAULTS if run.scenario.store else FAULTS).get(fate, ()):
        _give(run, slot, fate)


def operations(scenario: Scenario) -> list[str]:
    """Return the kinds of the operations of a process that is alone and undisturbed, in order."""
    run = scenario.begin(Reader)
    run.start(run.slots[0])
    done = []
    while run.slots[0].running and run.slots[0].at[0] != "idle":
        done.append(run.slots[0].at[0])
        run.advance(run.slots[0])
    return done


def plans(scenario: Scenario) -> Iterator[Plan]:
    """All plans with one fault at any operation of a process that is alone, where that operation can have it."""
    faults = STORE_FAULTS if scenario.store else FAULTS
    for first, kind in enumerate([*operations(scenario), "idle"]):
        for fate in fates(scenario)[1:]:
            if fate not in faults or kind in faults[fate]:
                yield Plan(first, fate)


def pairs(scenario: Scenario, runs: int, seed: int = 0) -> Iterator[Plan]:
    """So many of all plans with two processes and a fault or pause of each."""
    places, kinds = len(operations(scenario)) + 1, len(fates(scenario))
    total = (places * kinds) ** 2
    for at in random.Random(seed).sample(range(total), min(runs, total)):
        at, other = divmod(at, kinds)
        at, second = divmod(at, places)
        first, fate = divmod(at, kinds)
        yield Plan(first, fates(scenario)[fate], second, fates(scenario)[other])
