"""The brokers themselves: what later tests rely on, proved with the official client."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pulsar
import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import broker_entry_metadata
from tests.brokers.maven import BrokerUnavailableError
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import PulsarFeed
from tests.real.matrix import quiet_client
from tests.support.pulsar.raw_client import Peer
from tests.support.tcp_proxy import Proxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
EARLIEST = pulsar.InitialPosition.Earliest


def test_plain_broker_serves_the_official_client(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("plain")
    plain_pulsar.admin.create_topic(topic, 3)
    client = quiet_client(plain_pulsar.service_url)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic)
    for number in range(30):
        producer.send(b"%d" % number)
    assert plain_pulsar.admin.backlog(topic, "s", 3) == 30
    found = []
    for _ in range(30):
        message = consumer.receive(10_000)
        found.append(int(message.data()))
        consumer.acknowledge(message)
    client.close()
    assert sorted(found) == list(range(30))
    assert plain_pulsar.admin.backlog(topic, "s", 3) == 0


def test_guarded_broker_asks_for_a_token_and_proves_its_name(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str]
) -> None:
    assert guarded_pulsar.certificates is not None
    topic = fresh_name("guarded")
    client = quiet_client(
        guarded_pulsar.tls_url,
        authentication=pulsar.AuthenticationToken(guarded_pulsar.token("admin")),
        tls_trust_certs_file_path=str(guarded_pulsar.certificates.ca),
        tls_validate_hostname=True,
    )
    producer = client.create_producer(topic)
    producer.send(b"welcome")
    client.close()
    stranger = quiet_client(guarded_pulsar.service_url, operation_timeout_seconds=2)
    with pytest.raises(pulsar.PulsarException):  # the client retries what was refused for good, then times out
        stranger.create_producer(topic)
    stranger.close()


def test_guarded_broker_stops_at_200_unacknowledged(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("limit")
    token = pulsar.AuthenticationToken(guarded_pulsar.token("admin"))
    client = quiet_client(guarded_pulsar.service_url, authentication=token)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST)
    producer = client.create_producer(topic)
    for number in range(250):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    held = [consumer.receive(10_000) for _ in range(200)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    for message in held:
        consumer.acknowledge(message)
    assert consumer.receive(10_000).data() == b"200"
    # 100 entries a ledger: an ordinary topic changes ledgers all the time.
    assert len(guarded_pulsar.admin.internal_stats(topic)["ledgers"]) >= 3
    client.close()


def test_proxy_stands_in_for_the_broker_and_cuts_inside_a_frame(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("proxied")
    with Proxy(plain_pulsar.port) as proxy:
        client = quiet_client(proxy.url)
        producer = client.create_producer(topic)
        for number in range(100):
            producer.send_async(b"%d" % number * 1000, lambda *_: None)
        producer.flush()
        connections = proxy.connections
        proxy.cut_in_frame(after=20)
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10)
        for number in range(100):
            assert reader.read_next(10_000).data() == b"%d" % number * 1000
        assert proxy.cuts == 1
        assert proxy.connections > connections
        client.close()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BrokerUnavailableError, match="apt-get install openjdk-17-jre-headless"):
        PulsarBroker(tmp_path / "broker").start()
    (tmp_path / "java").touch(0o755)
    with pytest.raises(BrokerUnavailableError, match="apt-get install maven"):
        PulsarBroker(tmp_path / "broker").start()


def starter() -> subprocess.Popen[bytes]:
    """The broker as a command."""
    command = [sys.executable, "-m", "tests.brokers.pulsar", "--quick"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, its status taken by its parent or not."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_broker_by_command_ends_with_its_input() -> None:
    with starter() as process:
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip("the broker cannot be started here; the tests above say why")
        addresses = json.loads(line)
        java = psutil.Process(addresses["pid"])
        with urllib.request.urlopen(f"{addresses['admin']}/admin/v2/clusters", timeout=10) as answer:
            assert json.load(answer) == ["standalone"]
        process.stdin.close()
        assert process.wait(30) == 0
    eventually(lambda: ended(java), "the end of the broker")


def test_broker_by_command_leaves_no_java_behind_when_killed(plain_pulsar: PulsarBroker) -> None:
    del plain_pulsar  # only to skip where there is no Java
    with starter() as process:
        own = psutil.Process(process.pid)
        eventually(lambda: own.children(recursive=True), "a process of the broker")
        children = own.children(recursive=True)
        process.kill()
    eventually(lambda: all(map(ended, children)), "the end of the broker", lambda: str(children))


def test_entries_are_numbered_by_the_broker(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = f"persistent://public/default/{fresh_name('numbered')}"
    plain_pulsar.admin.create_topic(topic)
    before = time.time() * 1000
    PulsarFeed(plain_pulsar.service_url, topic, batch=5).add(3)
    with Peer(plain_pulsar.service_url, feature_flags=pb.FeatureFlags(supports_broker_entry_metadata=True)) as peer:
        peer.subscribed(topic, "s")
        peer.flow(100)
        found = [broker_entry_metadata(peer.receive()[1]) for _ in range(3)]
    assert [None if one is None else one.index for one in found] == [4, 9, 14]
    assert all(one is not None and before - 1000 < one.broker_timestamp < before + 60_000 for one in found)
