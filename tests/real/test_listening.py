"""A real broker with several addresses and little patience: hosts, listeners, its own topics, too many lookups."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest

from tests.brokers.fixtures import running
from tests.brokers.ports import free_ports
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import PulsarFeed
from tests.real.daemon import Daemon, Job, verify
from tests.real.matrix import quiet_client
from tests.support.rsa_keys import key_pair
from tests.support.sequence_audit import assert_each_once

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A broker that is 127.0.0.1 to itself, localhost to its listener "far", and looks up one topic at a time."""
    folder = tmp_path_factory.mktemp("pulsar-listening")
    made = PulsarBroker(folder, settings={"maxConcurrentLookupRequest": "1"})
    made.advertise(internal="127.0.0.1", far="localhost")
    yield from running(made)


def run(job: Job, folder: Path, log: str) -> str:
    """To the end of what there is; what the daemon has said."""
    with Daemon("run", str(job.write(folder)), "--until-end", log=folder / log) as daemon:
        daemon.wait_done()
    assert verify(job.path).returncode == 0
    return daemon.output


def fed(broker: PulsarBroker, topic: str, partitions: int = 0, entries: int = 4) -> int:
    broker.admin.create_topic(topic, partitions)
    feed = PulsarFeed(broker.service_url, topic, partitions)
    feed.add(entries)
    return feed.count


def test_a_host_that_is_not_there(broker: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("hosts")
    count = fed(broker, topic)
    (nobody,) = free_ports(1)
    job = Job(f"pulsar://127.0.0.1:{nobody},localhost:{broker.port}", topic, tmp_path / "data")
    run(job, tmp_path, "log")
    assert_each_once(job.path, count)


def test_the_address_of_a_listener(broker: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("listener")
    count = fed(broker, topic)
    near = Job(broker.service_url, topic, tmp_path / "near", subscription="near")
    far = Job(broker.service_url, topic, tmp_path / "far", subscription="far", source={"listener": "far"})
    assert f"pulsar://localhost:{broker.port}" not in run(near, tmp_path, "near.log")
    assert f'"broker":"pulsar://localhost:{broker.port}"' in run(far, tmp_path, "far.log")
    assert_each_once(far.path, count)


def test_the_broker_has_topics_of_its_own(
    broker: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("own")
    count = fed(broker, topic)
    broker.admin.set_retention(topic, 60)  # such a policy is a record of __change_events
    assert any("__change_events" in name for name in broker.admin.topics("public/default"))
    source = {"topics": None, "topics_pattern": f"({topic}|__.*)"}
    job = Job(broker.service_url, "", tmp_path / "data", source=source)
    said = run(job, tmp_path, "log")
    assert "__change_events" not in said
    assert_each_once(job.path, count)


def test_too_many_lookups(broker: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    """Refused for now, and tried again until everybody is in."""
    topic = fresh_name("many")
    count = fed(broker, topic, 60, entries=1)
    broker.restart()  # whose they are it has to find out again, which takes its time
    job = Job(broker.service_url, topic, tmp_path / "data")
    said = run(job, tmp_path, "log")
    assert "TooManyRequests" in said
    assert_each_once(job.path, count)


@pytest.mark.parametrize("policy", ["discard", "consume"])
def test_what_no_key_opens(broker: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, policy: str) -> None:
    topic = fresh_name("sealed")
    broker.admin.create_topic(topic)
    keys = key_pair("orders")
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(keys.public)
    private.write_bytes(keys.private)
    client = quiet_client(broker.service_url)
    sealed = client.create_producer(
        topic,
        batching_enabled=False,
        encryption_key="orders",
        crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private)),
    )
    plain = client.create_producer(topic, batching_enabled=False)
    for number in range(4):
        (sealed if number % 2 else plain).send(b"%d" % number)
    client.close()
    job = Job(broker.service_url, topic, tmp_path / "data", source={"encryption": {"on_failure": policy}})
    run(job, tmp_path, "log")
    rows = landed(job.path)
    opened = [row for row in rows if row["value"] in (b"0", b"2")]
    assert len(opened) == 2
    assert len(rows) == (4 if policy == "consume" else 2)
    for row in rows:
        if row not in opened:
            assert any(header["key"].startswith("pulsar.") for header in row["headers"])
    assert broker.admin.backlog(topic, job.subscription) == 0


def landed(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows
