"""Client balance: metadata with ids, and the share of one client."""

from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups.selection import Metadata, share
from tests.support.tubemq.golden import EXAMPLES

GOLDEN: dict[str, Any] = {one.name: one.body for one in EXAMPLES if "message" in one.entry}
BROKER = Broker(1, "127.0.0.1", 18123)
GOLD = [BrokerPartition(BROKER, "gold", number) for number in (0, 1)]
NOW_MS = 1_700_000_000_000


def known() -> Metadata:
    metadata = Metadata()
    metadata.update(GOLDEN["e13_response"], NOW_MS)
    metadata.update(GOLDEN["e14_response"], NOW_MS)
    return metadata


def test_the_real_conversation() -> None:
    metadata = Metadata()
    assert metadata.report() == GOLDEN["e13_request"].subRepInfo
    metadata.update(GOLDEN["e13_response"], NOW_MS)
    assert (metadata.broker_id, metadata.topic_id) == (
        GOLDEN["e14_request"].brokerConfigId, GOLDEN["e14_request"].topicMetaInfoId,
    )  # fmt: skip
    assert metadata.partitions() == []
    metadata.update(GOLDEN["e14_response"], NOW_MS)
    assert metadata.partitions() == GOLD
    assert metadata.report(GOLD) == GOLDEN["e15_request"].subRepInfo


def test_a_response_without_lists_keeps_them() -> None:
    metadata = known()
    metadata.update(GOLDEN["e15_response"], NOW_MS + 5)
    assert metadata.partitions() == GOLD
    assert metadata.assigned_ms == NOW_MS


def test_partitions_that_are_closed_or_without_broker_are_left_out() -> None:
    metadata = known()
    metas = ["gold#1:1:2:0,2:1:2:1", "more#1:2:1:1"]
    metadata.update(pb.GetPartMetaResponseM2C(errCode=200, errMsg="", topicMetaInfoId=9, topicMetaInfoList=metas), 5)
    assert [each.key for each in metadata.partitions()] == ["1:more:0", "1:more:10000"]


def test_a_list_that_cannot_be_read_changes_nothing() -> None:
    metadata = known()
    body = pb.GetPartMetaResponseM2C(errCode=200, errMsg="", brokerConfigId=1, topicMetaInfoId=9)
    body.brokerConfigList.append("3:host:1")
    body.topicMetaInfoList.append("nonsense")
    with pytest.raises(ProtocolError):
        metadata.update(body, 5)
    assert metadata.partitions() == GOLD
    assert metadata.topic_id != 9


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_all_clients_together_have_each_partition_once(count: int) -> None:
    partitions = [BrokerPartition(Broker(id, "h", 1), "t", number) for id in (1, 2) for number in range(20)]
    shares = [each for node in range(count) for each in share(partitions, count, node)]
    assert sorted(shares) == sorted(partitions)


@pytest.mark.parametrize(("topic", "node"), [("Aa", 95), ("BB", 95)])
def test_the_hash_is_that_of_java(topic: str, node: int) -> None:
    """Java hashes these two alike."""
    partition = BrokerPartition(BROKER, topic, 0)
    assert share([partition], 1000, node) == [partition]


def test_a_node_is_below_the_count() -> None:
    with pytest.raises(ValueError):
        share([], 2, 2)
