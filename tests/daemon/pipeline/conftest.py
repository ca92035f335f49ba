"""Fixtures of the tests of topics as sinks."""

from collections.abc import Iterator

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import running


@pytest.fixture
def source() -> Iterator[KafkaDevBroker]:
    """The brokers that topics are copied from."""
    with running(KafkaDevBroker()) as broker:
        yield broker
