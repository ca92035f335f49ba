"""A real TubeMQ Master and Broker, driven by the sans-IO core over plain sockets, and by their own tools."""

from collections.abc import Callable

import pytest

from tests.brokers.tubemq import PARTITIONS, STORES, TubeMQBroker
from tests.support.tubemq.client import Cluster, Member, Reader, send
from tests.support.tubemq.rules import RULES, group

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Cluster], None], plain_tubemq: TubeMQBroker) -> None:
    rule(plain_tubemq)


def test_what_the_stock_producer_sent_is_read(plain_tubemq: TubeMQBroker) -> None:
    topic, count = plain_tubemq.fresh_topic(), 500
    plain_tubemq.tool(
        "CliProducer", "--topicName", topic, "--messages", str(count), "--message-data-size", "100",
        "--num-send-threads", "1", "--sync-produce", "--without-delay",
    )  # fmt: skip
    with Reader(plain_tubemq, topic, group()) as reader:
        for number in range(PARTITIONS):
            reader.register(number)
            reader.drain(number)
        rows = reader.link.rows
    assert len(rows) == count
    assert {row["value"] for row in rows} == {(b"This is a test data!" * 5)}
    assert len({row["messageId"] for row in rows}) == count
    assert all([one["key"] for one in row["headers"]] == ["$msgTime$", "serialId", "dataTime"] for row in rows)


def test_what_this_producer_sent_is_read_by_the_stock_consumer(plain_tubemq: TubeMQBroker) -> None:
    topic, count = plain_tubemq.fresh_topic(), 300
    for number in range(PARTITIONS):
        send(plain_tubemq, topic, [b"%d" % each for each in range(count // PARTITIONS)], number)
    said = plain_tubemq.tool(
        "CliConsumer", "--topicName", topic, "--groupName", group(), "--messages", str(count),
        "--consume-position", "-1",
    )  # fmt: skip
    assert f"Topic Name = {topic}, count={count}" in said


def test_partitions_of_several_stores(plain_tubemq: TubeMQBroker) -> None:
    (topic,) = STORES
    with Member(plain_tubemq, group(), topic) as member:
        member.step()
        member.settle(STORES[topic] * PARTITIONS)
        numbers = sorted(each.number for each in member.membership.held.values())
        member.leave()
    assert numbers == [0, 1, 10_000, 10_001]
    with Reader(plain_tubemq, topic, group()) as reader:
        for number in numbers:
            assert reader.register(number).errCode == 200
        sent = [send(plain_tubemq, topic, [b"%d" % number], number)[0].appendOffset for number in numbers]
        assert sent == [0, 28, 0, 28]  # each store counts for itself
        for at, number in enumerate(numbers):
            assert reader.wait(at + 1, number)[at] == b"%d" % number
