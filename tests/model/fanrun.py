"""Runs of daemons with a dataset for each topic, of which one refuses until the end, and a judge for each dataset."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fastwire_daemon.dataset.writer import DatasetWriter

from .broker import Broker, OrderedBroker
from .fanout import Daemon, options_of, place_of
from .judge import Judge, Violation
from .run import Run, Scenario, Slot
from .world import Choices, Process, SimDisk

BAD = "audit"  # its dataset is that of another cluster, until that one is taken away
TOPICS = (BAD, "orders", "payments")


@dataclass(frozen=True)
class FanScenario(Scenario):
    """A pipeline of three topics, with these partitions and rows each."""

    def begin(self, program: type[Any]) -> "FanRun":
        return FanRun(self, program if issubclass(program, Daemon) else Daemon)


FAN_SCENARIOS = (
    FanScenario("a dataset a topic, one refuses", True, 1, 3, loses=False),
    FanScenario("a dataset a topic, one refuses, two partitions", True, 2, 2, loses=False),
)


class Brokers:
    """The brokers of all topics, as far as a run knows of them."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._brokers = brokers

    def disconnect(self, reader: Process) -> None:
        for broker in self._brokers:
            broker.disconnect(reader)

    def disturb(self, choices: Choices) -> None:
        self._brokers[choices.choose(len(self._brokers))].disturb(choices)

    def finished(self) -> bool:
        return all(broker.finished() for broker in self._brokers)


class FanRun(Run):
    def __init__(self, scenario: FanScenario, daemon: type[Daemon]) -> None:
        super().__init__(scenario)
        self._daemon = daemon
        self._by_topic = {
            topic: Judge(scenario, self.world, scenario.broker(), place_of(topic), topic) for topic in TOPICS
        }
        self._brokers = {topic: cast(OrderedBroker, judge.broker) for topic, judge in self._by_topic.items()}
        self.broker = cast(Broker, Brokers(list(self._brokers.values())))
        self._refuses = True
        self._broken: Violation | None = None
        for broker in self._brokers.values():
            broker.on_ack = self._told(broker.on_ack)
        self.world.on_link = self._told(partial(self._by_place, Judge._linked))
        self.world.on_rename = self._told(partial(self._by_place, Judge._renamed))
        self.world.on_unlink = self._told(partial(self._by_place, Judge._unlinked))
        another = Process("another", lambda kind, path: None)
        foreign = DatasetWriter(place_of(BAD), options_of("elsewhere"), SimDisk(self.world, another))
        foreign.open()
        foreign.create()
        foreign.close()
        self.world.sync_all()

    def _told(self, look: Callable[..., None]) -> Callable[..., None]:
        """Return ``look``; its violations are kept, because a pipeline takes them for failures of a sink."""

        def looks(*args: object) -> None:
            try:
                look(*args)
            except Violation as exc:
                self._broken = self._broken or exc
                raise

        return looks

    def _by_place(self, look: Callable[[Judge, str], None], path: str) -> None:
        for judge in self.judges:
            if path.startswith(f"{judge.root}/"):
                look(judge, path)

    def _program(self, process: Process) -> Daemon:
        return self._daemon(SimDisk(self.world, process), self._brokers, process)

    def _switch(self, slot: Slot, fault: str | None) -> None:
        super()._switch(slot, fault)
        if self._broken is not None:
            raise self._broken

    @property
    def judges(self) -> Sequence[Judge]:
        return [judge for topic, judge in self._by_topic.items() if not (self._refuses and topic == BAD)]

    def judge(self) -> None:
        for judge in self.judges:
            judge.judge()

    def settle(self, *, anew: bool = True) -> None:
        """Let the datasets that do not refuse land all they have; then mend the other one.

        Processes that run go on, whatever ``anew`` is: neither a failed roll nor a refused dataset needs a new start.
        """
        self.world.full = False
        if not any(slot.running for slot in self.slots):
            self.start(self.slots[0])
        for _ in range(2_000):
            others = all(broker.finished() for topic, broker in self._brokers.items() if topic != BAD)
            if others and all(slot.at[0] == "idle" for slot in self.slots if slot.running):
                break
            for slot in self.slots:
                if slot.running:
                    self.advance(slot)
        else:
            raise Violation("a dataset that refuses holds back another one")
        self._mend()
        self._run_on()
        self.start(self.slots[0])
        self._run_on()
        for judge in self.judges:
            judge.judge_end()

    def _mend(self) -> None:
        self.trace.append("the foreign dataset is taken away")
        self.world.sync_all()
        self._remove(place_of(BAD))
        self._refuses = False

    def harm(self) -> None:
        """Do nothing: what ``verify`` sees is the same where there is one dataset."""
