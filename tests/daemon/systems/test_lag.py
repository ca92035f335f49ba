"""The lag: what the broker says of our logs, as metrics and on the status page."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire.position import Log
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.runtime.tasks import Tasks
from fastwire_daemon.systems.reading.lag import MOST_SHOWN, Lag, LogLag
from tests.daemon.runtime.test_metrics import samples
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.source_pipe import Pipe, entries, playing, until
from tests.support.tubemq.source_pipe import TubeMQPipe
from tests.support.tubemq.source_pipe import serving as tubemq_serving


class Scene:
    """A pipe whose lag is asked for all the time, and its metrics; ``unit`` is what an entry of ten rows counts for."""

    unit: int
    pipe: Any

    def __init__(self) -> None:
        self.metrics = DaemonMetrics("0")

    def lag(self) -> tuple[float, float] | None:
        """Backlog and logs behind as the metrics have them; None where they have none."""
        found = samples(self.metrics)
        names = ("fastwire_source_backlog_entries", "fastwire_source_behind_logs")
        values = [found.get(f'{name}{{pipeline="p"}}') for name in names]
        assert (values[0] is None) == (values[1] is None)
        return None if values[0] is None or values[1] is None else (values[0], values[1])

    async def shows(self, entries: int, behind: int) -> dict[str, Any]:
        backlog = entries * self.unit
        await until(lambda: self.lag() == (backlog, behind), f"{backlog}, {behind}", self.lag)
        lag: dict[str, Any] = self.pipe.source.status()["lag"]
        assert (lag["backlog_entries"], lag["behind_logs"]) == (backlog, behind)
        return lag


class PulsarScene(Scene):
    unit = 1

    def __init__(self, broker: PulsarDevBroker, **more: Any) -> None:
        super().__init__()
        self.broker = broker
        self.pipe = Pipe(broker, metrics=self.metrics.pipeline("p"), lag_poll_s=0.0, **more)

    def append(self, partition: int, count: int) -> None:
        self.broker.append(f"t-partition-{partition}", entries(0, count))

    def end(self, partition: int) -> str:
        """The text of the position of the partition's newest record."""
        ledger, entry, _ = self.broker.positions(f"t-partition-{partition}")[-1]
        return f"{ledger}:{entry}"

    def hold(self) -> None:
        """Let nothing more come."""
        self.pipe.source.on_budget(Level.HOLD)  # what fits the window comes


class KafkaScene(Scene):
    unit = 10

    def __init__(self, broker: KafkaDevBroker, **more: Any) -> None:
        super().__init__()
        self.broker = broker
        self.pipe = KafkaPipe(broker, metrics=self.metrics.pipeline("p"), lag_poll_s=0.0, **more)

    def append(self, partition: int, count: int) -> None:
        self.broker.append("t", batches(0, count), partition)

    def end(self, partition: int) -> str:
        return str(self.broker.ends("t")[partition])

    def hold(self) -> None:
        self.pipe.source.on_budget(Level.STOP)  # answers under way are not read


KINDS = ["failover", "shared", "kafka"]


async def serving(broker: PulsarDevBroker | None = None, partitions: int = 0) -> PulsarDevBroker:
    broker = broker or PulsarDevBroker()
    await broker.start()
    broker.create_topic("t", partitions)
    return broker


async def scene_of(kind: str, partitions: int, **more: Any) -> Any:
    if kind == "kafka":
        broker = KafkaDevBroker()
        await broker.start()
        broker.create_topic("t", partitions)
        return KafkaScene(broker)
    return PulsarScene(await serving(partitions=partitions), subscription_type=kind, **more)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_backlog_is_what_has_not_landed(kind: str) -> None:
    scene = await scene_of(kind, 3)
    assert scene.lag() is None and scene.pipe.source.status()["lag"] is None
    scene.append(0, 7)
    scene.append(1, 5)
    await scene.pipe.start()
    await scene.pipe.got(120)
    lag = await scene.shows(12, 0)
    assert lag["known_logs"] == 3
    assert list(lag["logs"]) == [str(scene.pipe.log(index)) for index in (0, 1, 2)]  # the largest backlog first
    first, _, last = lag["logs"].values()
    assert first["backlog_entries"] == 7 * scene.unit
    assert first["head"] == scene.end(0) == first["received"].partition("@")[0]
    assert last["backlog_entries"] == 0
    if kind != "kafka":
        assert first["unacked_messages"] == 70
        assert first["blocked_on_unacked"] is False
        assert (last["head"], last["received"]) == (None, None)
    scene.pipe.commit()
    lag = await scene.shows(0, 0)
    assert lag["logs"][str(scene.pipe.log(0))]["cursor"].partition("@")[0] == scene.end(0)
    await scene.pipe.close()
    assert scene.lag() is None
    assert scene.broker.violations == []
    await scene.broker.stop()


@pytest.mark.parametrize("kind", ["failover", "kafka"])
async def test_a_log_is_behind_while_its_head_has_not_come(kind: str) -> None:
    scene = await scene_of(kind, 2, most_permits=1)
    await scene.pipe.start()
    await scene.pipe.granted()
    await scene.shows(0, 0)
    scene.hold()
    scene.append(1, 3)
    lag = await scene.shows(3, 1)
    one = next(each for each in lag["logs"].values() if each["backlog_entries"])
    assert one["head"] != one["received"]
    scene.pipe.source.on_budget(Level.FREE)
    await scene.pipe.got(30)
    await scene.shows(3, 0)
    await scene.pipe.close()
    await scene.broker.stop()


async def test_a_stand_by_reports_nothing() -> None:
    broker = await serving()
    active = PulsarScene(broker, consumer_name="a")
    await active.pipe.start()
    await active.pipe.granted()
    other = PulsarScene(broker, consumer_name="b")
    await other.pipe.start()
    broker.append("t", entries(0, 2))
    await active.shows(2, 0)
    await until(lambda: other.pipe.source.status()["partitions"] == {"stand-by": 1}, "a stand-by")
    assert other.lag() is None
    await active.pipe.close()
    await other.shows(2, 0)
    await other.pipe.close()
    await broker.stop()


class _Reluctant(PulsarConnection):
    broker: "Reluctant"

    def handle(self, command: pb.BaseCommand, body: bytes) -> None:
        if command.type == pb.BaseCommand.CONSUMER_STATS and self.broker.reluctant:
            self.broker.asked += 1
            request = command.consumerStats.request_id
            if command.consumerStats.consumer_id == 0:
                return self.send_error(request, pb.MetadataError, "not today")
            answer = pb.CommandConsumerStatsResponse(request_id=request, error_code=pb.UnknownError)
            return self.send(pb.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer)
        return super().handle(command, body)


class Reluctant(PulsarDevBroker):
    """Refuses to tell about consumers, in both ways."""

    connection = _Reluctant
    reluctant = True
    asked = 0


async def test_a_broker_that_does_not_say_leaves_no_lag_and_no_harm() -> None:
    broker = Reluctant()
    await serving(broker, partitions=2)
    scene = PulsarScene(broker)
    await scene.pipe.start()
    await scene.pipe.granted()
    await until(lambda: broker.asked >= 4, "questions")
    assert scene.lag() is None
    broker.reluctant = False
    broker.append("t-partition-0", entries(0, 2))
    await scene.shows(2, 0)
    # Away is unknown, too.
    await broker.stop()
    await until(lambda: scene.lag() is None, "no lag")
    assert scene.pipe.failure is None
    await scene.pipe.close()


async def test_nothing_is_asked_any_more_once_the_source_is_being_closed() -> None:
    """The clock goes on while consumers are closed, and a question about a closed one breaks the broker's rules."""
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)

    tasks = Tasks(done.append)
    before = tasks.run(work("before"), "before")
    await before
    await tasks.close()
    await asyncio.wait([tasks.run(work("behind"), "behind")])
    assert done == ["before"]


async def test_the_lag_of_positions_without_an_order_is_the_backlog() -> None:
    """A position counts from where its GET began, so that comparing it with the end of the log says nothing."""
    async with tubemq_serving() as broker:
        metrics = DaemonMetrics("0")
        pipe = TubeMQPipe(broker)
        pipe.source._stats = type(pipe.source._stats)(pipe.source, metrics.pipeline("p"), 0.0)
        async with playing(pipe, started=True):
            broker.produce("t", [b"x"] * 10)
            await pipe.got(10)
            name = 'fastwire_source_behind_logs{pipeline="p"}'
            await until(lambda: samples(metrics).get(name) == 0, "nothing behind", lambda: samples(metrics))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_backlog_of_a_stopped_log_is_counted_and_grows(kind: str) -> None:
    """Nothing reads it, so its records are in no figure of the others until retention deletes them."""
    scene = await scene_of(kind, 2)
    scene.append(0, 4)
    scene.append(1, 3)
    await scene.pipe.start()
    await scene.pipe.got(70)
    scene.pipe.commit()
    await scene.shows(0, 0)
    scene.pipe.source.stop(1, "a bad value")
    scene.append(1, 5)
    lag = await scene.shows(5, 0)
    assert lag["logs"][str(scene.pipe.log(1))]["backlog_entries"] == 5 * scene.unit, kind
    scene.append(1, 2)
    scene.append(0, 1)
    await scene.pipe.got(80)  # Kafka's position goes on before its chunk is closed
    await scene.shows(8, 0)
    scene.pipe.commit()
    await scene.shows(7, 0)
    await scene.pipe.close()
    assert scene.broker.violations == []
    await scene.broker.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stopped_log_of_which_nothing_has_landed_counts_whole(kind: str) -> None:
    scene = await scene_of(kind, 2)
    scene.append(1, 3)
    scene.pipe.auto = False
    await scene.pipe.start()
    await until(lambda: len(scene.pipe.assigned) == 2, "assignments", lambda: scene.pipe.assigned)
    scene.pipe.source.stop(1, "start does not fit it")
    await scene.shows(3, 0)
    await scene.pipe.close()
    await scene.broker.stop()


class ManyLogs(Lag):
    """The lag of 500 logs, as a test says it."""

    async def _ask(self) -> dict[int, LogLag]:
        return self.told

    def __init__(self) -> None:
        logs = [Log("kafka", "c", "t", str(number)) for number in range(500)]
        none = [SimpleNamespace(granted=False)] * len(logs)
        source: Any = SimpleNamespace(system="kafka", logs=logs, partitions=none, position=lambda index: None)
        super().__init__(source, None, 0.0)
        self.told: dict[int, LogLag] = {}

    async def say(self, minute: int, backlogs: dict[int, int]) -> dict[str, list[int | None]]:
        """Take a report in which the other logs have no backlog; return the histories by log."""
        self.told = {index: LogLag(backlogs.get(index, 0), None, None) for index in range(500)}
        self._asked_at = 60.0 * minute
        await self._ask_and_take()
        status = self.status(self._asked_at)
        assert status is not None
        return {log: each["lag_history"] for log, each in status["logs"].items()}


async def test_the_last_hour_is_kept_of_the_logs_with_the_largest_backlog() -> None:
    lag = ManyLogs()
    shown = await lag.say(1, {450: 7, 400: 9})
    assert list(shown.values())[:3] == [[9], [7], [0]]
    assert len(shown) == MOST_SHOWN == len(lag._histories)
    shown = await lag.say(3, {})
    assert [each for each in shown.values() if each != [0, None, 0]] == [[9, None, 0], [7, None, 0]], "they stay"
    shown = await lag.say(4, dict.fromkeys(range(200, 300), 5))
    assert list(shown.values()) == [[5]] * MOST_SHOWN == [each.status(240.0) for each in lag._histories.values()]
