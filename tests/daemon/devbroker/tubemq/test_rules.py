"""The embedded Master and Broker keep the rules that the real ones keep."""

from collections.abc import Callable, Iterator

import pytest

from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from tests.daemon.devbroker.tubemq.embedded import Embedded
from tests.support.tubemq.client import Cluster
from tests.support.tubemq.grouprules import GROUP_RULES
from tests.support.tubemq.rules import RULES


@pytest.fixture(params=[False, True], ids=["memory", "file"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(TubeMQDevBroker(TubeMQOptions(strict=False, from_file=request.param))) as broker:
        yield Embedded(broker)
        assert broker.violations == []


@pytest.mark.parametrize("rule", [*RULES, *GROUP_RULES], ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Cluster], None], cluster: Cluster) -> None:
    rule(cluster)
