"""One of two partitions stops: every place that says how the daemon is says so, up to its exit code."""

import json
import urllib.error
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from fastwire_daemon.cli.daemons import address_of
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, running
from fastwire_daemon.service.client import read_status
from tests.daemon.cli.program import Run
from tests.real.daemon import Daemon

CONFIG = """\
[daemon]
http = "127.0.0.1:{port}"
[pipelines.pay.source]
url = "{url}"
topics = ["pay"]
group = "g"
start = "earliest"
[pipelines.pay.decode]
format = "json"
schema = "{schema}"
on_error = "stop"
[pipelines.pay.sink]
type = "parquet"
path = "{path}"
roll = {{ idle = "100ms" }}
"""
SCHEMA = {"type": "record", "name": "pay", "fields": [{"name": "id", "type": "long"}]}
SERIES = 'fastwire_source_stopped_partitions{pipeline="pay",reason="undecodable"} 1.0'


def answer(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_stopped_partition_is_seen_everywhere(run: Run, tmp_path: Path, unused_tcp_port: int) -> None:
    base = f"http://127.0.0.1:{unused_tcp_port}"
    file, schema = tmp_path / "pay.toml", tmp_path / "pay.avsc"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker()) as broker:
        file.write_text(CONFIG.format(port=unused_tcp_port, url=broker.url, schema=schema, path=tmp_path / "pay"))
        broker.create_topic("pay", 2)
        broker.produce("pay", [b'{"id": 1}', b'{"id": 2}'], 0)
        broker.produce("pay", [b'{"id": 3}', b"bad", b'{"id": 4}'], 1)
        with Daemon("run", str(file), log=tmp_path / "log") as daemon:
            address = address_of(base)

            def pipeline() -> dict[str, Any]:
                found: dict[str, Any] = read_status(address)["pipelines"]["pay"]
                return found

            daemon.wait_until(lambda: "cannot be written" in daemon.output, "the stop")
            daemon.wait_until(lambda: pipeline()["rows_committed"] == 2, "the other partition lands")
            assert pipeline()["source"]["partitions"] == {"reading": 1, "stopped": 1}  # so its backlog is counted
            assert run("status", base, "--quiet")[0] == 5
            out = run("status", base)[1]
            assert "degraded" in out.splitlines()[0] and "1 of 2 partitions is stopped" in out
            assert answer(f"{base}/readyz") == (200, "degraded\n")
            assert answer(f"{base}/readyz?strict") == (503, "degraded\n")
            assert answer(f"{base}/livez") == (200, "ok\n")
            daemon.wait_until(lambda: SERIES in answer(f"{base}/metrics")[1], "the metric")
            # The time of the records is known although the files leave it out.
            daemon.wait_until(lambda: pipeline()["lag_s"] is not None, "the lag in time")
            daemon.process.terminate()
            assert daemon.wait() == 5
        [last] = [line for line in daemon.events() if line["event"] == "the pipeline has ended with stopped partitions"]
        assert (last["level"], last["stopped"]) == ("error", 1)
