"""An outage of the broker tells one story: the pipeline, its daemon, the probes, the page's data and the log agree."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fastwire.systems import SYSTEMS
from fastwire_daemon.cli.daemons import address_of
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.service.client import read_status
from tests.daemon.cli.program import Run
from tests.daemon.cli.test_degraded import answer
from tests.real.daemon import Daemon

READERS = {"pulsar": 'subscription = "s"', "kafka": 'group = "g"', "tank": "", "tubemq": 'group = "group"'}
CONFIG = """\
[daemon]
http = "127.0.0.1:{port}"
[pipelines.p.source]
url = "{url}"
topics = ["t"]
start = "earliest"
{reader}
[pipelines.p.sink]
type = "discard"
"""


@pytest.mark.parametrize("system", SYSTEMS)
async def test_an_outage_is_told_alike_everywhere(system: str, run: Run, tmp_path: Path, unused_tcp_port: int) -> None:
    broker = dev_broker(system)
    await broker.start()
    broker.create_topic("t", 2)
    file, base = tmp_path / "c.toml", f"http://127.0.0.1:{unused_tcp_port}"
    file.write_text(CONFIG.format(port=unused_tcp_port, url=broker.url, reader=READERS[system]))
    with Daemon("run", str(file), log=tmp_path / "log") as daemon:

        async def until(true: Callable[[], bool], what: str) -> None:
            async with asyncio.timeout(60):
                while True:
                    assert daemon.process.poll() is None, daemon.tail()
                    with suppress(Exception):
                        if await asyncio.to_thread(true):
                            return
                    await asyncio.sleep(0.05)

        def healths() -> set[str]:
            status = read_status(address_of(base))
            return {status["health"], status["pipelines"]["p"]["health"]}

        def state() -> str:
            return str(read_status(address_of(base))["pipelines"]["p"]["state"])

        # While a source starts, its connections come and go.
        await until(lambda: state() == "running" and healths() == {"healthy"}, "healthy")
        await until(lambda: answer(f"{base}/readyz") == (200, "ok\n"), "ready")
        await broker.stop()
        await until(lambda: healths() == {"not ready"}, "not ready")
        assert (await asyncio.to_thread(answer, f"{base}/readyz")) == (503, "not ready\n")
        assert (await asyncio.to_thread(answer, f"{base}/livez")) == (200, "ok\n")
        status = await asyncio.to_thread(read_status, address_of(base))
        assert any("no broker is reachable" in why for why in status["pipelines"]["p"]["degraded"])
        assert status["pipelines"]["p"]["state"] == "running", "the pipeline goes on by itself"
        assert "reading" not in status["pipelines"]["p"]["source"]["partitions"], "nothing is read from no broker"
        code, out, _ = await asyncio.to_thread(run, "status", base)
        assert code == 3 and "not ready" in out.splitlines()[0] and "no broker is reachable" in out
        events = daemon.events()
        assert any("connection" in each["event"] for each in events)
        assert "other partitions are" not in daemon.output and "internal error" not in daemon.output
        assert [each for each in events if each["level"] == "error"] == []
