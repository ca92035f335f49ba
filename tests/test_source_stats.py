"""The lag: what the broker says of our logs, as metrics and on the status page."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker, PulsarOptions
from fastwire_daemon.metrics import DaemonMetrics
from tests.source_pipe import Pipe, entries, until
from tests.test_metrics import samples


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


async def serving(broker: PulsarDevBroker | None = None, partitions: int = 0, **options: Any) -> PulsarDevBroker:
    broker = broker or PulsarDevBroker(PulsarOptions(**options))
    await broker.start()
    broker.create_topic("t", partitions)
    return broker


class Scene:
    """A pipe whose lag is asked for once a second, and its metrics."""

    def __init__(self, broker: PulsarDevBroker, **more: Any) -> None:
        self.metrics = DaemonMetrics("0")
        self.pipe = Pipe(broker, metrics=self.metrics.pipeline("p"), lag_poll_s=0.0, **more)

    def lag(self) -> tuple[float, float] | None:
        """Backlog and logs behind as the metrics have them; None where they have none."""
        found = samples(self.metrics)
        names = ("fastwire_source_backlog_entries", "fastwire_source_behind_logs")
        values = [found.get(f'{name}{{pipeline="p"}}') for name in names]
        assert (values[0] is None) == (values[1] is None)
        return None if values[0] is None or values[1] is None else (values[0], values[1])

    async def shows(self, backlog: int, behind: int) -> dict[str, Any]:
        await until(lambda: self.lag() == (backlog, behind), f"{backlog}, {behind}", self.lag)
        lag: dict[str, Any] = self.pipe.source.status()["lag"]
        assert (lag["backlog_entries"], lag["behind_logs"]) == (backlog, behind)
        return lag


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_the_backlog_is_what_has_not_landed(kind: str) -> None:
    async def main() -> None:
        broker = await serving(partitions=3)
        scene = Scene(broker, subscription_type=kind)
        assert scene.lag() is None and scene.pipe.source.status()["lag"] is None
        broker.append("t-partition-0", entries(0, 7))
        broker.append("t-partition-1", entries(0, 5))
        await scene.pipe.start()
        await scene.pipe.got(120)
        lag = await scene.shows(12, 0)
        assert lag["known_logs"] == 3
        assert list(lag["logs"]) == [str(scene.pipe.log(index)) for index in (0, 1, 2)]  # the largest backlog first
        first, _, last = lag["logs"].values()
        ledger, entry, _ = broker.positions("t-partition-0")[-1]
        assert first["backlog_entries"] == 7
        assert first["head"] == first["received"] == f"{ledger}:{entry}"
        assert first["unacked_messages"] == 70
        assert first["blocked_on_unacked"] is False
        assert (last["backlog_entries"], last["head"], last["received"]) == (0, None, None)
        scene.pipe.commit()
        await scene.shows(0, 0)
        await scene.pipe.close()
        assert scene.lag() is None
        assert broker.violations == []
        await broker.stop()

    run(main)


def test_a_log_is_behind_while_its_head_has_not_come() -> None:
    async def main() -> None:
        broker = await serving(partitions=2)
        scene = Scene(broker, most_permits=1)
        await scene.pipe.start()
        await scene.pipe.granted()
        await scene.shows(0, 0)
        for partition in scene.pipe.source.partitions:
            partition.consumer.hold(True)  # what fits the window comes, nothing more is asked for
        broker.append("t-partition-1", entries(0, 3))
        await scene.pipe.got(10)
        lag = await scene.shows(3, 1)
        one = next(each for each in lag["logs"].values() if each["backlog_entries"])
        assert one["head"] != one["received"]
        for partition in scene.pipe.source.partitions:
            partition.consumer.hold(False)
        await scene.pipe.got(30)
        await scene.shows(3, 0)
        await scene.pipe.close()
        await broker.stop()

    run(main)


def test_a_stand_by_reports_nothing() -> None:
    async def main() -> None:
        broker = await serving()
        active = Scene(broker, consumer_name="a")
        await active.pipe.start()
        await active.pipe.granted()
        other = Scene(broker, consumer_name="b")
        await other.pipe.start()
        broker.append("t", entries(0, 2))
        await active.shows(2, 0)
        await until(lambda: other.pipe.source.status()["partitions"] == {"stand-by": 1}, "a stand-by")
        assert other.lag() is None
        await active.pipe.close()
        await other.shows(2, 0)
        await other.pipe.close()
        await broker.stop()

    run(main)


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

    reluctant = True
    asked = 0

    def accept(self) -> PulsarConnection:
        return _Reluctant(self)


def test_a_broker_that_does_not_say_leaves_no_lag_and_no_harm() -> None:
    async def main() -> None:
        broker = Reluctant()
        await serving(broker, partitions=2)
        scene = Scene(broker)
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

    run(main)
