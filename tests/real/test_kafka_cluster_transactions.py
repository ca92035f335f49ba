"""A topic of three real Kafka brokers as an exactly-once sink, while each of them goes away."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.kafka_cluster import KafkaCluster
from tests.real.test_kafka_transactions import Feed, check, configured, daemons, read, settled

pytestmark = pytest.mark.broker

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def test_brokers_that_go_away_cost_no_record(
    kafka_cluster: KafkaCluster, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = fresh_name("source"), fresh_name("target")
    kafka_cluster.any.create_topic(source, replicas=REPLICAS)
    kafka_cluster.any.create_topic("fastwire-positions", replicas=REPLICAS[:1], cleanup_policy="compact")
    kafka_cluster.any.create_topic(target, replicas=REPLICAS)
    feed = Feed(kafka_cluster.servers, source)
    with daemons(configured(tmp_path, kafka_cluster.url, source, target), 2) as again:
        for node in (1, 2, 3):  # leaders of all partitions and the coordinators of all groups and transactions move
            feed.more(2_000)
            kafka_cluster.kill(node)
            feed.more(2_000)
            again(node % 2)
            kafka_cluster.revive(node)
        settled(kafka_cluster.servers, target, feed.sent)
    check(read(kafka_cluster.servers, target), feed.sent)
