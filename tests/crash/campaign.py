"""A campaign: cycles of load and accidents over two daemons that share a subscription and a dataset, then the audit.

A cycle stores some entries and lets one accident happen; most accidents overlap what the one before has left behind.
Everything is drawn from one seed, but the daemons and the kernel decide the timing, so a seed does not repeat a run.
"""

import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from types import TracebackType
from typing import Any, Self

from fastwire.tank.format.error import PartitionStatus
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.frame import Method
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.dataset.steps import STEPS
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from tests.brokers.admin import partition_names
from tests.crash.load import KafkaLoad, Load, PulsarLoad, TankLoad, TubeMQLoad
from tests.crash.preload import failing_fsync, full_disk
from tests.crash.system import KAFKA_KINDS
from tests.crash.typed import Format
from tests.real.daemon import Daemon, Job
from tests.stores.place import FolderPlace, Place
from tests.support.landed_ends import behind
from tests.support.nursery import Nursery
from tests.support.sequence_audit import assert_each_once
from tests.support.tcp_proxy import Proxy
from tests.support.waiting import eventually

PARTITIONS = 3
ENTRIES = 5  # a cycle and partition
SCHEMAS = 4  # of typed values
# Cycles after which everything has to land before the next accident: two daemons always recover by themselves. No
# chunked message stays incomplete for the minute after which its parts are put aside.
CATCH_UP_EVERY = 10
SESSION_S = 1.5
PATIENCE_S = 120.0  # without anything that is confirmed
KILLED = -9
# In the name of a file whose write finds the disk full.
FULL = ("-entry.part", "-0.part", "-1.part", "-checkpoint.part")
# What a fault of the program says in the log; none may happen, whatever the accident.
FAULTS = ("internal error", "Traceback")


class Ground(ABC):
    """An embedded broker with one topic, a proxy in front of it, and the load for it."""

    load: Load[Any]
    proxy: Proxy
    broker: PulsarDevBroker | KafkaDevBroker | TankDevBroker | TubeMQDevBroker
    topic: str

    def __init__(self, kind: str, dice: random.Random) -> None:
        self.kind = kind
        self.dice = dice

    @property
    def url(self) -> str:
        """The URL of the source, through the proxy."""
        return self.proxy.url

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Keys of the source."""

    def cut_in_frame(self) -> None:
        """Cut a connection within one of the next frames."""
        self.proxy.cut_in_frame(self.dice.randrange(4))

    @abstractmethod
    def disturb(self) -> None:
        """Do what a sound broker may do: give a partition to another client, or serve others first."""

    @abstractmethod
    def unacknowledged(self, job: Job) -> object:
        """Return what is not confirmed yet; falsy if nothing."""


class PulsarGround(Ground):
    """Subscriptions of Pulsar."""

    broker: PulsarDevBroker
    topic = "persistent://public/default/campaign"

    def __init__(self, kind: str, dice: random.Random, stack: ExitStack) -> None:
        super().__init__(kind, dice)
        self.broker = stack.enter_context(running(PulsarDevBroker(PulsarOptions(ledger_entries=40, read_ahead=20))))
        self.broker.create_topic(self.topic, PARTITIONS)
        self.load = PulsarLoad(self.broker, self.topic, PARTITIONS, dice)
        self.proxy = stack.enter_context(Proxy(self.broker.port))

    def source(self) -> dict[str, Any]:
        return {}

    def disturb(self) -> None:
        self.broker.unload(self.dice.choice(partition_names(self.topic, PARTITIONS)))

    def unacknowledged(self, job: Job) -> object:
        try:
            return self.broker.backlog(self.topic, job.subscription)
        except KeyError:
            return "no daemon has lived long enough to subscribe"


class KafkaGround(Ground):
    """Groups of Kafka, of one node because one address leads through the proxy."""

    broker: KafkaDevBroker
    topic = "campaign"

    def __init__(self, kind: str, dice: random.Random, stack: ExitStack) -> None:
        super().__init__(kind, dice)
        self.broker = stack.enter_context(
            running(
                KafkaDevBroker(KafkaOptions(segment_batches=20, consumer_session_s=SESSION_S, jumps=kind == "none"))
            )
        )
        self.broker.create_topic(self.topic, PARTITIONS)
        self.load = KafkaLoad(self.broker, self.topic, PARTITIONS, dice)
        self.proxy = stack.enter_context(Proxy(self.broker.port, scheme="kafka", least=200))
        self.broker.advertise(0, "127.0.0.1", self.proxy.port)

    def source(self) -> dict[str, Any]:
        return {"subscription_type": None, **KAFKA_KINDS[self.kind]}

    def disturb(self) -> None:
        partition = self.dice.randrange(PARTITIONS)
        match self.dice.randrange(3):
            case 0:
                self.broker.move_leader(self.topic, partition)
            case 1:
                self.broker.throttle(self.dice.choice((20, 300)), 3)
            case 2:
                self.broker.forget_sessions()

    def unacknowledged(self, job: Job) -> object:
        told = self.broker.offsets(job.subscription)
        places = enumerate(self.broker.ends(self.topic))
        behind = ((number, told.get((self.topic, number), 0), end) for number, end in places)
        return [one for one in behind if one[1] < one[2]]


class TankGround(Ground):
    """TANK has no groups: both daemons read everything, and one of them commits."""

    broker: TankDevBroker
    topic = "campaign"

    def __init__(self, kind: str, dice: random.Random, stack: ExitStack) -> None:
        super().__init__(kind, dice)
        self.broker = stack.enter_context(running(TankDevBroker(TankOptions(segment_bytes=20_000))))
        self.broker.create_topic(self.topic, PARTITIONS)
        self.load = TankLoad(self.broker, self.topic, PARTITIONS, dice)
        self.proxy = stack.enter_context(Proxy(self.broker.port, scheme="tank", least=200))

    def source(self) -> dict[str, Any]:
        return {"subscription": None, "subscription_type": None}

    def disturb(self) -> None:
        faults = (PartitionStatus.SYSTEM_FAULT, PartitionStatus.NO_LEADER, PartitionStatus.UNKNOWN_PARTITION)
        self.broker.refuse_reads(self.dice.choice(faults), self.dice.randrange(1, 4))

    def unacknowledged(self, job: Job) -> object:
        return behind(job.path, [end.a for end in self.broker.end_positions(self.topic)])


class TubeMQGround(Ground):
    """A group of TubeMQ that the Master balances; the proxy stands before the Broker."""

    broker: TubeMQDevBroker
    topic = "campaign"

    def __init__(self, kind: str, dice: random.Random, stack: ExitStack) -> None:
        super().__init__(kind, dice)
        self.broker = stack.enter_context(running(TubeMQDevBroker(TubeMQOptions(consumer_timeout_s=SESSION_S))))
        self.broker.create_topic(self.topic, PARTITIONS)
        self.load = TubeMQLoad(self.broker, self.topic, PARTITIONS, dice)
        self.proxy = stack.enter_context(Proxy(self.broker.ports[1], scheme="tubemq"))
        self.broker.advertise("127.0.0.1", self.proxy.port)

    @property
    def url(self) -> str:
        return self.broker.url

    def source(self) -> dict[str, Any]:
        return {"subscription_type": None, "heartbeat": "50ms"}

    def cut_in_frame(self) -> None:
        self.broker.cut_after(self.dice.randrange(2000))  # frames of blocks: the proxy does not know them

    def disturb(self) -> None:
        method = self.dice.choice((Method.GET, Method.COMMIT, Method.CONSUMER_HEARTBEAT, Method.BROKER_REGISTER))
        match self.dice.randrange(4):
            case 0:
                self.broker.forget_clients()
            case 1:
                self.broker.expire_owners()
            case 2:
                self.broker.lose_answers(method)
            case 3:
                self.broker.fail(method, Code.SERVICE_UNAVAILABLE, self.dice.randrange(1, 4))

    def unacknowledged(self, job: Job) -> object:
        try:
            return self.broker.backlog(self.topic, job.subscription)
        except KeyError:
            return "no daemon has lived long enough to register"


KINDS: dict[str, Callable[[str, random.Random, ExitStack], Ground]] = {
    "failover": PulsarGround,
    "shared": PulsarGround,
    "key_shared": PulsarGround,
    "classic": KafkaGround,
    "consumer": KafkaGround,
    "none": KafkaGround,
    "tank": TankGround,
    "tubemq": TubeMQGround,
}


class Campaign:
    """Two daemons on one ground; ``run`` lets cycles pass, ``audit`` ends it. A context manager."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        nursery: Nursery,
        seed: int,
        place: Place | None = None,
        *,
        format: Format | None = None,
        transform: str | None = None,
    ) -> None:
        """``nursery`` has to be one that obeys ``tests.crash.preload``. ``place`` is that of the dataset.

        With a ``format`` the values are decoded, by one of a few schemas at each start.
        """
        self.happened: Counter[str] = Counter()
        self.records = 0
        self.dead_letters = 0
        self._folder = folder
        self._nursery = nursery
        self._dice = random.Random(f"{kind}:{seed}")
        self._stack = ExitStack()
        self._ground = KINDS[kind](kind, self._dice, self._stack)
        self._place = place or FolderPlace(folder / "data")
        self._job = Job(
            self._ground.url,
            self._ground.topic,
            folder / "data",
            kind=kind,
            source={"cluster": "campaign", **self._ground.source()},
            sink={"writers": 2, **self._place.sink},
            roll={"rows": 300, "idle": "150ms"},
        )
        self._format = format
        self._transform = {} if transform is None else {"transform": transform}
        if format is not None:
            self._ground.load.encode = format.encode
        self._daemons: list[Daemon] = []
        self._spoilt: set[Daemon] = set()  # started with a fault of the disk, for which it may give up
        self._starts = 0
        self._accidents: dict[str, Callable[[], None]] = {
            "killed": self._kill,
            "both killed": self._kill_both,
            "killed at a step": self._kill_at_a_step,
            "stopped for a while": self._stop,
            "disk full": self._fill,
            "sync failed": self._fail_sync,
            "connections cut": self._ground.proxy.cut,
            "cut in a frame": self._ground.cut_in_frame,
            "stalled": self._stall,
            "half-open": self._half_open,
            "broker killed": lambda: self._ground.broker.restart(self._dice.uniform(0, 0.3)),
            "broker cut": lambda: self._ground.broker.cut_after(self._dice.randrange(5000)),
            "disturbed": self._ground.disturb,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in self._daemons:
            daemon.__exit__()
        self._stack.close()

    def run(self, cycles: int) -> None:
        """Let ``cycles`` accidents happen under load."""
        self._daemons = [self._start() for _ in range(2)]
        for number in range(cycles):
            self._ground.load.add(self._dice.randrange(1, ENTRIES + 1))
            what = self._dice.choice(list(self._accidents))
            self._accidents[what]()
            self.happened[what] += 1
            time.sleep(self._dice.uniform(0.05, 0.4))
            self._start_the_dead()
            if number % CATCH_UP_EVERY == CATCH_UP_EVERY - 1:
                self._catch_up()

    def _catch_up(self) -> None:
        self._ground.load.end()
        before: object = None
        deadline = 0.0
        while left := self._left():
            if left != before:
                before, deadline = left, time.monotonic() + PATIENCE_S
            self._start_the_dead()
            if time.monotonic() >= deadline:
                said = "\n".join(daemon.tail(5) for daemon in self._daemons)
                raise AssertionError(f"nothing was confirmed for {PATIENCE_S:.0f} s: {left}\n{said}")
            time.sleep(0.05)

    def audit(self) -> None:
        """Land the rest without an accident; all records once, each corrupt entry once a dead letter, all confirmed."""
        for daemon in self._daemons:
            self._end(daemon)
        self._ground.load.end()
        with self._start("--until-end") as last:
            last.wait_done()
        eventually(lambda: not self._left(), "all is confirmed", self._left)
        for log in sorted(self._folder.glob("run-*.log")):
            text = log.read_text(errors="replace")
            assert not any(fault in text for fault in FAULTS), f"{log}: {text[-4000:]}"
        said = self._place.verify("--deep", "--json")
        assert said.returncode == 0, said.stdout + said.stderr
        load = self._ground.load
        path = self._place.local()
        assert_each_once(path, load.wanted)
        found = self._dead_letters(path)
        assert found == load.corrupt, f"{found} are dead letters, and {load.corrupt} corrupt entries"
        self.records, self.dead_letters = len(load.wanted), load.corrupt
        assert self._ground.broker.violations == [], self._ground.broker.violations

    def _left(self) -> object:
        return self._ground.unacknowledged(self._job)

    def _dead_letters(self, path: Path) -> int:
        """The number of dead letters, none of which is there twice."""
        found: Counter[tuple[Any, ...]] = Counter()
        for file in path.glob("_fastwire/diverted/*.dead"):
            for row in read_dead_letters(BytesIO(file.read_bytes())).to_pylist():
                # Damaged batches of Kafka that follow each other end where the next sound one begins: in one place.
                found[row["topic"], row["partition"], row["incarnation"], row["position"], row["payload"]] += 1
        assert not [place for place, times in found.items() if times > 1]
        return len(found)

    # --- daemons

    def _start(
        self, *arguments: str, script: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> Daemon:
        self._starts += 1
        job = self._job
        if self._format is not None:
            schema = self._format.decode(self._folder, self._starts % SCHEMAS)
            job = replace(job, decode={**schema, **self._transform})
        config = job.write(self._folder / "config")
        log = self._folder / f"run-{self._starts:04d}.log"
        script = {"checkpoint_every": 5, **(script or {})}
        daemon = Daemon("run", str(config), *arguments, log=log, script=script, env=env, nursery=self._nursery)
        if env:
            self._spoilt.add(daemon)
        return daemon

    def _end(self, daemon: Daemon) -> None:
        """Kill it, if it has not ended by itself, and see that it ended in a way that it may."""
        if daemon.process.poll() is None:
            daemon.process.kill()
        code = daemon.wait()
        allowed = (KILLED, 1) if daemon in self._spoilt else (KILLED,)
        assert code in allowed, f"exit code {code}:\n{daemon.tail()}"

    def _replace(self, at: int, **options: Any) -> None:
        self._end(self._daemons[at])
        self._daemons[at] = self._start(**options)

    def _start_the_dead(self) -> None:
        for at, daemon in enumerate(self._daemons):
            if daemon.process.poll() is not None:
                self._replace(at)

    def _one(self) -> int:
        return self._dice.randrange(len(self._daemons))

    # --- accidents

    def _kill(self) -> None:
        self._replace(self._one())

    def _kill_both(self) -> None:
        for daemon in self._daemons:
            daemon.process.kill()
        for at in range(len(self._daemons)):
            self._replace(at)

    def _kill_at_a_step(self) -> None:
        script = {"at": self._dice.choice(STEPS), "nth": self._dice.randrange(1, 4), "do": "kill"}
        self._replace(self._one(), script=script)

    def _stop(self) -> None:
        daemon = self._daemons[self._one()]
        daemon.signal(SIGSTOP)
        time.sleep(self._dice.uniform(0.1, SESSION_S * 1.5))
        daemon.signal(SIGCONT)

    def _fill(self) -> None:
        self._replace(self._one(), env=full_disk(self._dice.choice(FULL)))

    def _fail_sync(self) -> None:
        self._replace(self._one(), env=failing_fsync(self._job.path, self._dice.randrange(1, 30)))

    def _stall(self) -> None:
        self._ground.proxy.stall()
        time.sleep(self._dice.uniform(0.1, 1.0))
        self._ground.proxy.resume()

    def _half_open(self) -> None:
        self._ground.proxy.half_open()
        time.sleep(self._dice.uniform(0.1, 1.0))
        self._ground.proxy.cut()
