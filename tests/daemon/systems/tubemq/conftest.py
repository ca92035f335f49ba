"""Fixtures of the tests of TubeMQ over sockets."""

from collections.abc import Iterator

import pytest

from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker


@pytest.fixture
def broker() -> Iterator[TubeMQDevBroker]:
    with running(TubeMQDevBroker()) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []
