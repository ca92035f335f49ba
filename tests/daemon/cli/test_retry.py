"""``produce`` and ``tail`` wait for a broker that is starting, and not for one that will not answer."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fastwire.errors import FastwireError
from fastwire.systems import SYSTEMS
from fastwire_daemon.cli import retry
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.net.endpoint import UnreachableError
from tests.brokers.ports import free_ports
from tests.daemon.cli.program import PROGRAM

EACH = pytest.mark.parametrize("system", SYSTEMS)


@contextmanager
def waiting(command: str, url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has said that it waits for its broker."""
    with subprocess.Popen(
        [*PROGRAM, command, url, "orders", *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert "Connection refused; retrying for " in said
            yield process
        finally:
            process.kill()


@EACH
def test_produce_waits_for_its_broker(system: str) -> None:
    (port,) = free_ports(1)
    made = dev_broker(system)
    made.create_topic("orders", 1)
    with (
        waiting("produce", f"{system}://127.0.0.1:{port}") as process,
        running(made, port=port) as broker,
    ):
        out, err = process.communicate("one\ntwo\n", timeout=60)
        assert (process.returncode, out) == (0, "")
        assert err.startswith("2 records confirmed in ")
        assert broker.violations == []


@EACH
def test_tail_waits_for_its_broker(system: str) -> None:
    (port,) = free_ports(1)
    broker = dev_broker(system)
    with running(broker):
        broker.create_topic("orders", 1)
        broker.produce("orders", [b"one", b"two"])
    with (
        waiting("tail", f"{system}://127.0.0.1:{port}", "--from", "earliest", "-n", "2") as process,
        running(broker, port=port),
    ):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, len(out.splitlines()), err) == (0, 2, "")


def test_an_interrupt_ends_the_wait() -> None:
    (port,) = free_ports(1)
    url = f"kafka://127.0.0.1:{port}"
    with waiting("produce", url) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "aborted: no record was sent\n")
        assert process.returncode == 1
    with waiting("tail", url) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")


def test_only_a_refused_connection_is_tried_again() -> None:
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise FastwireError("topic") from UnreachableError("no such host")

    with pytest.raises(FastwireError, match="topic"):
        asyncio.run(retry.open_when_up(fail))
    assert attempts == 1
