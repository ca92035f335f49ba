"""TANK brokers whose answers cannot be right: whoever reads them survives each, and gets every message once."""

import asyncio

import pyarrow as pa
import pytest

from fastwire.tank.format.message import MessageType
from fastwire.wire.pool import Pool
from fastwire_daemon.config import TopicChoice, parse_connection
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.tank.settings import client_fields
from fastwire_daemon.systems.tank.source import settings
from tests.support.hostile.tank import BYTES, Lie, lying, wrong_id

PATIENCE_S = 60.0


@pytest.mark.parametrize("lie", [*BYTES, wrong_id], ids=lambda lie: lie.__name__)
async def test_what_a_reader_is_told(lie: Lie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read some, have it all moved to another leader, and be lied to once."""
    # An answer to another request leaves the own one without any, until its time is over.
    monkeypatch.setattr(settings, "client_fields", lambda given: {**client_fields(given), "request_timeout_s": 3.0})
    with running(TankDevBroker(TankOptions(nodes=2))) as broker:
        broker.create_topic("t", 1)
        system = system_named("tank")
        topics = TopicChoice(("t",))
        connection = parse_connection({"url": broker.url})
        reader = system.open_reader(connection, topics, system.start_of("earliest", topics), Pool(64 << 20))
        broker.produce("t", [b"%d" % number for number in range(100)])
        found: list[bytes] = []
        liar = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reader.open()
                async for chunk in reader:
                    found += pa.record_batch(chunk)["value"].to_pylist()
                    chunk.release()
                    if len(found) == 100:
                        liar = lying(broker, MessageType.CONSUME, lie)
                        broker.drop_connections()
                        broker.move_leader("t")
                        broker.produce("t", [b"%d" % number for number in range(100, 200)])
                    if len(found) >= 200:
                        break
        finally:
            await reader.close()
        assert found == [b"%d" % number for number in range(200)]
        assert liar is not None and liar.left == 0
        assert broker.violations == []
