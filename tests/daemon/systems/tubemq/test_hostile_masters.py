"""Masters that send a member in circles, elsewhere, or to no end: it says so, tries again, and loses nothing."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Method, decode_response, encode_response
from fastwire.tubemq.groups import master, membership
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.systems.tubemq import session
from fastwire_daemon.systems.tubemq.source import tubemqsource
from tests.support.hostile.tubemq import Lie, anything, ends_early, huge_block, lying, wrong_token
from tests.support.tubemq.source_pipe import TubeMQPipe, reading, serving

MANY = 1 << 30


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short."""
    for module in (master, membership):
        monkeypatch.setattr(module, "RETRY_S", 0.02)
    for module in (session, tubemqsource):
        monkeypatch.setattr(module, "AGAIN_S", 0.02)


def assigning(other: Callable[[str], Iterable[str]], told: list[str]) -> Lie:
    """A lie that replaces each partition of an event by others; ``told`` collects the replaced ones."""

    def lie(frame: bytes) -> bytes:
        body = decode_response(frame[16:], Method.CONSUMER_HEARTBEAT)
        assert not isinstance(body, Refused)
        named = list(body.event.subscribeInfo)  # type: ignore[attr-defined]
        if not named:
            return frame
        told.extend(named)
        del body.event.subscribeInfo[:]  # type: ignore[attr-defined]
        body.event.subscribeInfo.extend(each for name in named for each in other(name))  # type: ignore[attr-defined]
        return encode_response(int.from_bytes(frame[4:8]), Method.CONSUMER_HEARTBEAT, body)

    return lie


def put(broker: TubeMQDevBroker, topic: str, first: int, count: int, partition: int = 0) -> None:
    for number in range(first, first + count):
        broker.append(topic, b"%d" % number, partition)


def error_of(pipe: TubeMQPipe) -> str:
    return str(pipe.source.status()["membership"]["error"])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_masters_that_all_send_on_to_the_next_one() -> None:
    async with serving() as one, serving() as other:
        one.standby = other.standby = True
        put(one, "t", 0, 5)
        url = f"{one.url},{other.url.removeprefix('tubemq://')}"
        async with reading(one, url=url, started=False) as pipe:
            start = asyncio.create_task(pipe.source.start(pipe.coverage))
            await until(lambda: min(each.requests["CONSUMER_REGISTER"] for each in (one, other)) >= 2)
            assert "StandbyException" in error_of(pipe)
            assert pipe.source.unreachable_because
            one.standby = False
            await start
            await pipe.got(5)


@pytest.mark.parametrize("lie", [wrong_token, huge_block, ends_early, anything], ids=lambda lie: lie.__name__)
async def test_a_master_that_answers_nonsense_again_and_again(lie: Lie) -> None:
    async with serving() as broker:
        put(broker, "t", 0, 5)
        liar = lying(broker, Method.CONSUMER_REGISTER, lie, MANY)
        async with reading(broker, started=False) as pipe:
            start = asyncio.create_task(pipe.source.start(pipe.coverage))
            await until(lambda: MANY - liar.left >= 2)
            await until(lambda: error_of(pipe))
            liar.left = 0
            await start
            await pipe.got(5)


@pytest.mark.parametrize("where", ["nowhere", "master"])
async def test_partitions_at_other_addresses(where: str) -> None:
    """Such a partition is not held, so the Master gives it again; the others land meanwhile."""
    async with serving(partitions=2) as broker:
        put(broker, "t", 0, 5)
        put(broker, "t", 5, 5, 1)
        port = 1 if where == "nowhere" else broker.port
        told: list[str] = []

        def other(name: str) -> list[str]:
            head, _, topic = name.rpartition("#")
            subscriber, _, place = head.rpartition("#")
            number = place.partition(":")[0]
            return [f"{subscriber}#{number}:127.0.0.1:{port}#{topic}" if topic.endswith(":0") else name]

        liar = lying(broker, Method.CONSUMER_HEARTBEAT, assigning(other, told), MANY)
        async with reading(broker) as pipe:
            await pipe.got(5)
            await until(lambda: sum(name.endswith(":0") for name in told) >= 2)
            liar.left = 0
            await pipe.got(10)
            assert pipe.once()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda name: [name.replace("#t:", "#secrets:")], "is of a topic that this member does not read"),
        (lambda name: [f"{name}{number}" for number in range(200)], "has named more than 100 partitions"),
        (lambda name: [name, "x" * 10_000], "has another form"),
    ],
    ids=["topic", "endless", "text"],
)
async def test_events_that_no_master_sends(
    other: Callable[[str], Iterable[str]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "MOST_PARTITIONS", 100)
    async with serving() as broker:
        broker.create_topic("secrets", 1)
        put(broker, "secrets", 90, 5)
        put(broker, "t", 0, 5)
        told: list[str] = []
        liar = lying(broker, Method.CONSUMER_HEARTBEAT, assigning(other, told), MANY)
        async with reading(broker) as pipe:
            await until(lambda: why in error_of(pipe))
            await until(lambda: len(told) >= 2)
            assert broker.requests["BROKER_REGISTER"] == 0
            liar.left = 0
            await pipe.got(5)
            assert pipe.once()
            assert [log.topic for log in pipe.source.logs] == ["t"]
