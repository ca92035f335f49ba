"""A topic of a real Pulsar as an exactly-once sink: kills, takeovers and an unload, read by the official client."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from fastwire.pulsar.format.payload import Record
from fastwire_daemon.systems.pulsar.producer import TopicProducer
from tests.brokers.admin import partition_names
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon
from tests.real.matrix import quiet_client
from tests.real.test_kafka_transactions import daemons
from tests.real.test_producing import write
from tests.support.soaklength import KILLS
from tests.support.waiting import eventually, grown

pytestmark = pytest.mark.broker

CONFIG = """\
daemon.http = ""
[pipelines.copy.source]
url = "{url}"
topics = ["{source}"]
subscription = "copy"
start = "earliest"
[pipelines.copy.sink]
type = "pulsar"
url = "{url}"
topic = "{target}"
delivery = "exactly-once"
path = "{path}"
roll.idle = "200ms"
roll.rows = 500
"""
LARGE = 6 << 20  # goes out in chunks


def read(url: str, topic: str) -> list[tuple[str, int]]:
    """Key and number of all records that are there, in order of each partition."""
    client = quiet_client(url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(30_000)
            found.append((message.partition_key(), int(message.data()[:8])))
        reader.close()
        return found
    finally:
        client.close()


def all_of(url: str, topic: str, partitions: int) -> list[list[tuple[str, int]]]:
    return [read(url, name) for name in partition_names(topic, partitions)]


def campaign(broker: PulsarBroker, fresh_name: Callable[[str], str], folder: Path, kills: int) -> str:
    """Kill two daemons while they copy, unload topics and restart the broker; return what happened, for people.

    The namespace is deduplicated: by a policy of a topic a broker that is restarted can forget it (spec: pulsar 24.1).
    """
    namespace, drawn = f"public/{fresh_name('once')}", random.Random(kills)
    source, target = f"persistent://public/default/{fresh_name('source')}", f"persistent://{namespace}/target"
    url, admin = broker.service_url, broker.admin
    admin.create_deduplicated(namespace)
    admin.create_topic(source, 4)
    admin.create_topic(target, 3)
    config = folder / "config.toml"
    config.write_text(CONFIG.format(url=url, source=source, target=target, path=folder / "memory"))
    sent, happened = 0, Counter[str]()

    async def more(producer: TopicProducer) -> None:
        for number in range(sent, sent + 1_000):
            padding = LARGE if number % 4_000 == 3_999 else 0
            await producer.put(Record(value=b"%08d" % number + bytes(padding), key=f"k{number % 50}"))

    with daemons(config, 2) as again:
        for turn in range(1, kills + 1):
            write(url, source, more, chunking=True)
            sent += 1_000
            time.sleep(drawn.uniform(0.5, 4))  # the kill may come at any time
            again(drawn.randrange(2))
            happened["daemon"] += 1
            if turn % 12 == 6:
                admin.unload(target)
                happened["unload"] += 1
            elif turn % 20 == 0:
                broker.restart(at_once=turn % 40 == 0)
                happened["broker"] += 1
        grown(lambda: -admin.backlog(source, "copy", 4), 0, "entries of the source that are not acknowledged, negative")
    parts = all_of(url, target, 3)
    origin = {number: place for place, part in enumerate(all_of(url, source, 4)) for _, number in part}
    copies = Counter(number for part in parts for _, number in part)
    assert {number: times for number, times in copies.items() if times != 1} == {}
    assert copies.keys() == origin.keys()
    for part in parts:
        last: dict[int, int] = {}
        for _, number in part:
            assert last.get(origin[number], -1) < number
            last[origin[number]] = number
    return f"{', '.join(f'{times} of {what}' for what, times in happened.items())}, {sent:,} records each once"


def test_killed_daemons_copy_each_record_once(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    campaign(plain_pulsar, fresh_name, tmp_path, 12)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_above_its_backlog_quota_is_waited_for(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, delivery: str
) -> None:
    """The broker closes the producers of such a topic and takes no others; one policy names another error."""
    source, target, sent = fresh_name("source"), fresh_name("target"), 0
    url, admin = plain_pulsar.service_url, plain_pulsar.admin
    admin.create_topic(source)
    admin.create_topic(target)
    admin.create_subscription(target, "slow")
    admin.call("POST", f"/admin/v2/persistent/public/default/{target}/deduplicationEnabled", True)
    config = tmp_path / "config.toml"
    text = CONFIG.format(url=url, source=source, target=target, path=tmp_path / "memory")
    config.write_text(text.replace('"exactly-once"', f'"{delivery}"'))

    async def more(producer: TopicProducer) -> None:
        for number in range(sent, sent + 100):
            await producer.put(Record(value=b"%08d" % number + bytes(1_000), key="k"))

    def limit(size: int, policy: str) -> None:
        quota = {"limitSize": size, "limitTime": -1, "policy": policy}
        path = f"/admin/v2/persistent/public/default/{target}/backlogQuota"
        admin.call("POST", path, quota)
        eventually(lambda: f"{size}" in f"{admin.call('GET', f'{path}Map?applied=true')}", "the quota")

    with Daemon("run", str(config), log=tmp_path / "log") as daemon:
        write(url, source, more)
        sent += 100
        daemon.wait_for_rows(sent)
        for policy, error in (
            ("producer_request_hold", "ProducerBlockedQuotaExceededError"),
            ("producer_exception", "ProducerBlockedQuotaExceededException"),
        ):
            limit(1_000, policy)
            daemon.wait_until(lambda: not admin.stats(target)["publishers"], "the producers are closed")
            write(url, source, more)
            sent += 100
            daemon.wait_for(error)
            assert len(read(url, target)) == sent - 100
            limit(1 << 30, policy)
            daemon.wait_for_rows(sent)
        daemon.end()
    assert read(url, target) == [("k", number) for number in range(sent)]


@pytest.mark.soak
def test_two_hundred_kills(
    plain_pulsar: PulsarBroker,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("done", f"Pulsar, deduplication: {campaign(plain_pulsar, fresh_name, tmp_path, KILLS)}")
