"""Topics of any system as the command line writes to them."""

import asyncio
import traceback
from typing import Any

import pytest

from fastwire_daemon.config import parse_connection
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.producing import topicwriter
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.writer import Put, WriteOptions
from tests.support.spark_scene import SCENES


def embedded(system: str) -> Any:
    """Return the broker of a system, with the topic ``t`` once it runs."""
    return TubeMQDevBroker() if system == "tubemq" else SCENES[system]().broker


@pytest.mark.parametrize("system", [*SCENES, "tubemq"])
async def test_an_unexpected_error_fails_the_records_that_wait(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of a producer that dies leaves no call waiting."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    broker = embedded(system)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def write() -> None:
        async with system_named(system).open_writer(
            parse_connection({"url": broker.url}), "t", WriteOptions()
        ) as writer:
            part = writer._producer._parts[0]  # type: ignore[attr-defined]
            monkeypatch.setattr(part, "_attach" if system == "pulsar" else "_send", broken)
            if system == "pulsar":
                part._break("the connection is lost")
            await writer.write(Put(b"x"))
            await writer.flush()

    with running(broker):
        broker.create_topic("t", 1)
        with pytest.raises(ProduceError, match="RuntimeError: a bug"):
            await asyncio.wait_for(write(), 60)


@pytest.mark.parametrize("system", [*SCENES, "tubemq"])
async def test_the_error_of_a_closed_producer_does_not_grow(system: str) -> None:
    """One exception that is raised again and again would collect a traceback, and what its frames hold."""
    broker = embedded(system)
    with running(broker):
        broker.create_topic("t", 1)
        connection = parse_connection({"url": broker.url})
        async with system_named(system).open_writer(connection, "t", WriteOptions()) as writer:
            pass
        depths = set()
        for _ in range(5):
            with pytest.raises(ProduceError) as caught:
                await writer.write(Put(b"x"))
            cause = caught.value.__cause__
            depths.add(0 if cause is None else sum(1 for _ in traceback.walk_tb(cause.__traceback__)))
        assert len(depths) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": -1}, "batch and create are 0 or more"),
        ({"create": -1}, "batch and create are 0 or more"),
        ({"batching": "keys"}, "batching is 'keys'; there are key, grouped, mixed"),
    ],
)
def test_options_that_no_system_has(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WriteOptions(**options)


def test_codecs_are_named_in_any_case() -> None:
    assert WriteOptions(compression="lz4") == WriteOptions(compression="LZ4")


@pytest.mark.parametrize("system", [*SCENES, "tubemq"])
async def test_a_flush_ends_while_others_write(system: str) -> None:
    broker = embedded(system)
    most = 20_000  # records: a flush that waits until nothing is unconfirmed ends with them
    with running(broker):
        broker.create_topic("t", 1)
        connection = parse_connection({"url": broker.url})
        async with system_named(system).open_writer(connection, "t", WriteOptions()) as writer:
            writer._producer._most_pending_bytes = 20_000  # type: ignore[attr-defined]
            await writer.write(Put(b"before"))
            flushing = asyncio.create_task(writer.flush())
            written = 0
            while written < most and not flushing.done():
                await writer.write(Put(b"x" * 500))
                written += 1
            assert written < most
            await flushing
    assert broker.violations == []


@pytest.mark.parametrize("system", list(SCENES))
async def test_partitions_that_are_added_are_written_to(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records without a key go round all of them, as soon as the producer has learnt how many there are."""
    monkeypatch.setattr(topicwriter, "PARTITION_POLL_S", 0.01)
    scene = SCENES[system]()

    with running(scene.broker):
        scene.create("t", 2)
        connection = parse_connection({"url": scene.url})
        async with system_named(system).open_writer(connection, "t", WriteOptions()) as writer:
            await writer.write(Put(b"before"))
            await writer.flush()
            with pytest.raises(ProduceError, match="has no partition 2"):
                await writer.write(Put(b"nowhere", partition=2))
            scene.grow("t", 3)
            async with asyncio.timeout(60):
                while True:
                    try:
                        await writer.write(Put(b"there", partition=2))
                        break
                    except ProduceError:
                        await asyncio.sleep(0.01)
    assert scene.broker.violations == []
