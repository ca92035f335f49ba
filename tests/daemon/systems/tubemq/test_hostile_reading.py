"""TubeMQ servers whose answers cannot be right: a pipeline survives each of them, and lands every message once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.groups import client_membership
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.testing.system.scene import MemorySink, Scene
from tests.support.hostile.tubemq import BYTES, NONSENSE, REFUSALS, Lie, elsewhere, lying, nonsense, wrong_serial

METHODS = (Method.GET, Method.COMMIT, Method.BROKER_REGISTER, Method.BROKER_HEARTBEAT, Method.CONSUMER_HEARTBEAT)
OF_NODES = (Method.CLIENT_HEARTBEAT, Method.CLIENT_METADATA)


@contextmanager
def serving(**source: str) -> Iterator[Scene]:
    with running(TubeMQDevBroker(TubeMQOptions(partitions=2))) as broker:
        yield Scene(broker, {"heartbeat": "50ms", **source})
    assert broker.violations == []


@pytest.fixture
def scene() -> Iterator[Scene]:
    with serving() as found:
        yield found


@pytest.fixture
def nodes() -> Iterator[Scene]:
    with serving(balance="client") as found:
        yield found


@pytest.mark.parametrize("lie", [*BYTES, *REFUSALS], ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_what_a_pipeline_is_told(scene: Scene, method: Method, lie: Lie) -> None:
    await _lied_to(scene, method, lie)


@pytest.mark.parametrize("lie", [*BYTES, *REFUSALS], ids=lambda lie: lie.__name__)
async def test_what_a_node_is_told(nodes: Scene, lie: Lie, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of the partitions of a client-balanced group."""
    monkeypatch.setattr(client_membership, "METADATA_S", 0.05)
    await _lied_to(nodes, Method.CLIENT_METADATA, lie)


@pytest.mark.parametrize("method", NONSENSE, ids=lambda method: method.name)
async def test_nonsense_beside_what_counts(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_membership, "METADATA_S", 0.05)
    with serving(**({"balance": "client"} if method in OF_NODES else {})) as found:
        await _lied_to(found, method, nonsense(method))


@pytest.mark.parametrize("distance", [28, -28, 28 * 100_000, (1 << 62) - 1, (1 << 63) - 28 * 101], ids=str)
@pytest.mark.parametrize("method", [Method.GET, Method.COMMIT], ids=lambda method: method.name)
async def test_an_offset_that_is_another_one(scene: Scene, method: Method, distance: int) -> None:
    await _lied_to(scene, method, elsewhere(method, distance))


async def test_offsets_that_are_always_other_ones_are_asked_for_with_pauses(scene: Scene) -> None:
    sink = MemorySink()
    scene.produce(50, 0)
    async with scene.running(sink) as run:
        await run.until(lambda: len(sink.rows) == 50, "the first messages")
        liar = _lying(scene, lambda: scene.produce(50, 0), Method.GET, elsewhere(Method.GET, 28), 1 << 30)
        await run.until(
            lambda: "pending" in (run.pipeline.status()["source"] or {}).get("partitions", {}), "a partition that rests"
        )
        liar.left = 0
        await run.until(lambda: len(sink.rows) == 100, "the other messages")
    assert sorted(sink.values) == sorted(scene.produced)


async def test_an_answer_that_never_comes(scene: Scene) -> None:
    await _lied_to(scene, Method.GET, wrong_serial)


def _lying(scene: Scene, then: Callable[[], object], method: Method, lie: Lie, times: int = 1) -> lying:
    """Begin to lie, in one turn of the broker with ``then``: it answers nobody between them, as it has no messages."""
    assert isinstance(scene.broker, TubeMQDevBroker)
    broker = scene.broker

    def begin() -> lying:
        liar = lying(broker, method, lie, times)
        then()
        return liar

    return broker.call(begin)


async def _lied_to(scene: Scene, method: Method, lie: Lie) -> None:
    """Land some messages, register the partitions again on new connections, and be lied to once."""
    sink = MemorySink()
    scene.produce(50, 0)
    scene.produce(50, 1)

    def more() -> None:
        scene.broker.drop_connections()
        scene.produce(50, 0)
        scene.produce(50, 1)

    async with scene.running(sink) as run:
        await run.until(lambda: len(sink.rows) == 100, "the first messages")
        liar = _lying(scene, more, method, lie)
        await run.until(lambda: len(sink.rows) >= 200 and not liar.left, "the other messages, and the lie")
    assert sorted(sink.values) == sorted(scene.produced)
