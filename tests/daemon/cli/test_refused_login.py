"""A login that is refused, at the start, at a reload or by a database, is tried again; other pipelines land."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.cli.daemons import address_of
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from fastwire_daemon.service.client import read_status
from tests.databases.postgresql import query
from tests.real.daemon import Daemon

CONFIG = """\
[daemon]
http = "127.0.0.1:{port}"
[pipelines.{name}.source]
url = "{url}"
topics = ["t"]
group = "{name}"
start = "earliest"
auth = {{ user = "me", password = "{password}" }}
[pipelines.{name}.sink]
{sink}
roll = {{ idle = "100ms" }}
"""


class Pair:
    """A daemon with the pipelines a and b, of which b logs in as it is told."""

    def __init__(self, folder: Path, port: int, broker: KafkaDevBroker) -> None:
        self.file, self.log = folder / "c.toml", folder / "log"
        self._folder, self._port, self._broker = folder, port, broker
        broker.create_topic("t", 1)

    def write(self, password: str, sink: str = "") -> None:
        text = ""
        for name, word in (("a", "right"), ("b", password)):
            files = f'type = "parquet"\npath = "{self._folder / name}"'
            own = sink if sink and name == "b" else files
            one = CONFIG.format(port=self._port, url=self._broker.url, name=name, password=word, sink=own)
            text += one if not text else "[pipelines" + one.partition("[pipelines")[2]
        self.file.write_text(text)

    def __call__(self) -> Daemon:
        daemon = Daemon("run", str(self.file), log=self.log)
        daemon.wait_for('"started"')
        return daemon

    def rows(self, daemon: Daemon, name: str, count: int) -> None:
        daemon.wait_until(lambda: self._pipeline(name)["rows_committed"] >= count, f"{count} rows of {name}")

    def refused(self, daemon: Daemon, why: str) -> None:
        def told() -> bool:
            why_of_b = json.dumps(self._pipeline("b"), ensure_ascii=False)
            return self.health("a") == "healthy" != self.health("b") and why in why_of_b

        daemon.wait_until(told, why)

    def health(self, name: str) -> str:
        return str(self._pipeline(name)["health"])

    def produce(self, first: int, count: int) -> None:
        self._broker.produce("t", [b"%d" % number for number in range(first, first + count)], 0)

    def _pipeline(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = read_status(address_of(f"http://127.0.0.1:{self._port}"))["pipelines"][name]
        return found


@pytest.fixture
def pair(tmp_path: Path, unused_tcp_port: int) -> Any:
    with running(KafkaDevBroker(KafkaOptions(users={"me": "right"}))) as broker:
        yield Pair(tmp_path, unused_tcp_port, broker)


@pytest.mark.parametrize("reload", [True, False])
def test_a_refused_login_ends_nothing(pair: Pair, reload: bool) -> None:
    pair.produce(0, 5)
    pair.write("right" if reload else "wrong")
    with pair() as daemon:
        if reload:
            pair.rows(daemon, "b", 5)
            pair.write("wrong")
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("configuration reloaded")
        pair.refused(daemon, "refuses the login")
        pair.produce(5, 5)
        pair.rows(daemon, "a", 10)
        pair.write("right")
        daemon.signal(signal.SIGHUP)
        pair.rows(daemon, "b", 5 if reload else 10)
        daemon.end()


@pytest.mark.database
def test_a_database_that_lets_nobody_in_yet(pair: Pair, database: str) -> None:
    late = database.replace("loader@", "late@")
    assert late != database
    pair.produce(0, 5)
    pair.write("right", f'type = "postgresql"\nurl = "{late}"\ntable = "orders"')
    with pair() as daemon:
        pair.refused(daemon, "does not exist. Let the user in there, which needs no restart")
        (told, *_) = [each for each in daemon.events() if each["event"] == "the sink cannot be opened"]
        assert (told["level"], told["pipeline"]) == ("error", "b")
        assert pair.health("b") == "not ready"
        pair.rows(daemon, "a", 5)
        query(database, "CREATE ROLE late LOGIN SUPERUSER")
        try:
            pair.rows(daemon, "b", 5)
            daemon.end()
        finally:
            query(database, "DROP OWNED BY late")
            query(database, "DROP ROLE late")
