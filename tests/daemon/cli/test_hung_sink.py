"""A plug-in whose call never returns: the other pipelines land, and the status and the log say what hangs."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from tests.real.daemon import ask
from tests.support.waiting import eventually

PROGRAM = """
import threading
from fastwire.coverage import Coverage
from fastwire_daemon.cli.app import main
from fastwire_daemon.config.values import fields
from fastwire_daemon.service import service
from fastwire_daemon.sinks import registry, thread

class Hung:
    def open(self): return Coverage()
    def write(self, chunk): threading.Event().wait()
    def commit(self): return Coverage()
    def close(self): pass

service.SLOW_AFTER_S = thread.SLOW_S = 0.1
registry._load = lambda group, name: Hung
fields.plugin_types = lambda group: ("hung",) if group == "fastwire.sinks" else ()
main()
"""


def test_a_sink_that_hangs_holds_up_its_own_pipeline_only(tmp_path: Path, kafka: KafkaDevBroker) -> None:
    address = tmp_path / "http"
    tables = [f'[daemon]\nhttp = "unix:{address}"\ndrain_timeout = "1s"\n']
    for name, sink in (
        ("p", f'type = "parquet"\npath = "{tmp_path / "data"}"\nroll = {{ idle = "100ms" }}'),
        ("q", 'type = "hung"'),
    ):
        source = f'url = "{kafka.url}"\ntopics = ["orders"]\ngroup = "{name}"\nstart = "earliest"'
        tables.append(f"[pipelines.{name}.source]\n{source}\n[pipelines.{name}.sink]\n{sink}\n")
    (tmp_path / "c.toml").write_text("\n".join(tables))
    command = [sys.executable, "-c", PROGRAM, "run", str(tmp_path / "c.toml")]

    def pipeline(name: str) -> dict[str, object]:
        said = ask(address, "/status")
        found: dict[str, object] = json.loads(said)["pipelines"].get(name, {}) if said else {}
        return found

    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            eventually(lambda: pipeline("p").get("rows_committed") == 40, "the other one lands")
            eventually(
                lambda: str(pipeline("q").get("waiting")).startswith("a call of the sink has taken "), "it is told"
            )
            assert ask(address, "/livez") == "ok\n"  # for two minutes
            said = "a call of the sink has not returned, and says nothing of what it waits for"
            eventually(lambda: said in (tmp_path / "log").read_text(), "it is logged")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1  # aborted behind the drain timeout
        finally:
            process.kill()
    (line,) = (each for each in map(json.loads, (tmp_path / "log").read_text().splitlines()) if each["event"] == said)
    assert (line["pipeline"], line["sink"]) == ("q", "hung")
