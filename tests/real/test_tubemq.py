"""A real TubeMQ Master and Broker, driven by the sans-IO core over plain sockets."""

from collections.abc import Callable

import pytest

from tests.brokers.tubemq import PARTITIONS, STORES, TubeMQBroker
from tests.support.tubemq.client import Cluster, Member, Reader, send
from tests.support.tubemq.grouprules import GROUP_RULES
from tests.support.tubemq.rules import RULES, group

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("rule", [*RULES, *GROUP_RULES], ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Cluster], None], plain_tubemq: TubeMQBroker) -> None:
    rule(plain_tubemq)


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
