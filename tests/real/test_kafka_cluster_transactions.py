"""A topic of three real Kafka brokers as an exactly-once sink, while each of them goes away."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.brokers.kafka_cluster import KafkaCluster, eventually
from tests.real.test_kafka_transactions import Feed, campaign, check, configured, daemons, read, settled
from tests.support.soaklength import KILLS

pytestmark = pytest.mark.broker

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
POSITIONS = "fastwire-positions"


@pytest.fixture
def topics(kafka_cluster: KafkaCluster, fresh_name: Callable[[str], str]) -> tuple[str, str]:
    """The source and the target, with a replica on each node, as the topic of the positions has."""
    source, target = fresh_name("source"), fresh_name("target")
    for topic in (source, target):
        kafka_cluster.any.create_topic(topic, replicas=REPLICAS)
    if not kafka_cluster.any.has_topic(POSITIONS):
        kafka_cluster.any.create_topic(POSITIONS, replicas=REPLICAS[:1], cleanup_policy="compact")
    return source, target


def test_brokers_that_go_away_cost_no_record(
    kafka_cluster: KafkaCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    feed = Feed(kafka_cluster.servers, source)
    with daemons(configured(tmp_path, kafka_cluster.url, source, target), 2) as again:
        for node in (1, 2, 3):  # leaders of all partitions and the coordinators of all groups and transactions move
            feed.more(2_000)
            kafka_cluster.kill(node)
            feed.more(2_000)
            again(node % 2)
            kafka_cluster.revive(node)
        settled(kafka_cluster.servers, target, feed.sent)
    check(read(kafka_cluster.servers, source), read(kafka_cluster.servers, target))


@pytest.mark.soak
def test_two_hundred_kills(
    kafka_cluster: KafkaCluster,
    topics: tuple[str, str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    source, target = topics
    config = configured(tmp_path, kafka_cluster.url, source, target)
    roles = {
        "the coordinator of transactions": "__transaction_state",
        "a leader of the target": target,
        "a coordinator of groups": "__consumer_offsets",
        "the leader of the positions": POSITIONS,
    }

    def kill(what: str, topic: str, turn: int) -> str:
        eventually(lambda: min(kafka_cluster.leaders(topic), default=-1) > 0, f"leaders of {topic}")
        leaders = kafka_cluster.leaders(topic)
        node = leaders[turn % len(leaders)]
        kafka_cluster.kill(node)
        time.sleep(turn % 4)  # the others may have taken its place, or not yet
        kafka_cluster.revive(node)
        # Without it the next kill would take the last copy of what the writers of the test are waiting for.
        eventually(
            lambda: all(len(nodes) == len(REPLICAS) for one in roles.values() for nodes in kafka_cluster.in_sync(one)),
            "replicas on all nodes",
        )
        return what

    accidents = [partial(kill, what, topic) for what, topic in roles.items()]
    told = campaign(kafka_cluster.servers, config, source, target, accidents, KILLS)
    record_property("done", f"three nodes of Kafka, exactly once: {told}")
