"""The lag as a real broker tells it."""

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit import numbered
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import RUN_LIMIT, Daemon, Job
from tests.real.matrix import quiet_client

pytestmark = pytest.mark.broker


def ask(address: Path, page: str) -> str:
    """What the daemon answers on its unix socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(address))
        line.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        answer = b""
        while piece := line.recv(1 << 16):
            answer += piece
    return answer.decode().partition("\r\n\r\n")[2]


def test_the_backlog_of_an_open_roll(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("lag")
    plain_pulsar.admin.create_topic(topic, 2)
    client = quiet_client(plain_pulsar.service_url)
    producer = client.create_producer(f"{topic}-partition-1", batching_enabled=False)
    for number in range(7):
        producer.send(numbered(number))
    client.close()
    address = tmp_path / "http"
    job = Job(
        plain_pulsar.service_url,
        topic,
        tmp_path / "data",
        daemon={"http": f"unix:{address}"},
        roll={"idle": "1h", "age": "1h"},
    )
    wanted = 'fastwire_source_backlog_entries{pipeline="p"} 7.0'
    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        daemon.wait_for("first positions")
        deadline = time.monotonic() + RUN_LIMIT
        while wanted not in (metrics := ask(address, "/metrics")):
            assert time.monotonic() < deadline, [line for line in metrics.splitlines() if "_source_b" in line]
            time.sleep(0.2)
        lag = json.loads(ask(address, "/status"))["pipelines"]["p"]["source"]["lag"]
        assert (lag["backlog_entries"], lag["known_logs"]) == (7, 2)
        first, second = lag["logs"].values()
        assert (first["backlog_entries"], second["backlog_entries"]) == (7, 0)
        assert first["head"] == first["received"]
        assert plain_pulsar.admin.backlog(topic, job.subscription, 2) == 7
