"""What every embedded broker provides, by its contract alone."""

from collections.abc import Iterator

import pytest

from fastwire_daemon.devbroker.base import DevBroker, dev_broker
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import running


@pytest.fixture(params=["pulsar", "kafka"])
def broker(request: pytest.FixtureRequest) -> Iterator[DevBroker]:
    with running(dev_broker(request.param)) as broker:
        assert broker.url.startswith(f"{request.param}://")
        yield broker
        assert broker.violations == []


def test_topics_come_grow_and_go(broker: DevBroker) -> None:
    broker.create_topic("t", 2)
    with pytest.raises(ValueError, match="exists already"):
        broker.create_topic("t", 2)
    broker.grow_topic("t", 3)
    assert len(broker.end_positions("t")) == 3
    broker.delete_topic("t")
    with pytest.raises(KeyError):
        broker.end_positions("t")
    broker.create_topic("t")
    assert len(broker.end_positions("t")) == 1


def test_records_move_the_end_of_their_partition(broker: DevBroker) -> None:
    broker.create_topic("t", 2)
    first = broker.end_positions("t")
    broker.produce("t", [b"a", b"b"], 1, keys=[b"k", b"k"])
    second = broker.end_positions("t")
    assert second[0] == first[0] and second[1] > first[1]
    broker.produce("t", [b"c"])
    third = broker.end_positions("t")
    assert third[0] > second[0] and third[1] == second[1]


def test_unknown_names_raise_key_errors(broker: DevBroker) -> None:
    with pytest.raises(KeyError):
        broker.produce("t", [b"a"])
    broker.create_topic("t")
    with pytest.raises(KeyError):
        broker.backlog("t", "g")


def test_the_backlog_counts_from_the_committed_offsets() -> None:
    broker = KafkaDevBroker()
    broker.create_topic("t", 2)
    broker.produce("t", [b"a", b"b", b"c"])
    broker.produce("t", [b"d", b"e"], 1)
    broker.group("g").offsets["t", 0] = 1, -1, ""
    assert broker.backlog("t", "g") == 4
    broker.trim("t", 2)
    assert broker.backlog("t", "g") == 3
