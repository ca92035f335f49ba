"""The fixtures of the tests at a prompt."""

from collections.abc import Iterator
from typing import Any

import pytest

from fastwire.systems import SYSTEMS
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.server import running
from tests.daemon.prompt import ROWS


@pytest.fixture(params=SYSTEMS)
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker of each system with 100 records in each of two partitions of a topic."""
    with running(dev_broker(request.param)) as made:
        made.create_topic("orders", 2)
        for partition in range(2):
            made.produce("orders", [b"%d-%d" % (partition, n) for n in range(ROWS)], partition)
        yield made
