"""The embedded broker in a thread of the test, and its judgement at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from tests.crash.nursery import Nursery
from tests.crash.preload import library
from tests.crash.scene import Scene

TOPIC = "persistent://public/default/numbers"


@pytest.fixture
def dev_broker() -> Iterator[PulsarDevBroker]:
    """A fresh embedded broker; the test fails if a client broke the protocol."""
    with running(PulsarDevBroker(PulsarOptions(ledger_entries=40, read_ahead=20))) as broker:
        yield broker
        assert broker.violations == []


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where daemons are forked from."""
    with Nursery() as process:
        yield process


@pytest.fixture(scope="session")
def tampered_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Where daemons are forked from that obey ``tests.crash.preload``."""
    with Nursery(library(tmp_path_factory.mktemp("preload"))) as process:
        yield process


@pytest.fixture
def dev_scene(dev_broker: PulsarDevBroker, tmp_path: Path, nursery: Nursery) -> Callable[..., Scene]:
    """Makes scenes on the embedded broker."""

    def make(*, partitions: int = 2, **options: Any) -> Scene:
        dev_broker.create_topic(TOPIC, partitions)
        scene = Scene(dev_broker.url, TOPIC, tmp_path, partitions=partitions, nursery=nursery, **options)
        scene._backlog = lambda: backlog(scene)
        return scene

    def backlog(scene: Scene) -> int:
        try:
            return dev_broker.backlog(TOPIC, scene.job.subscription)
        except KeyError:
            return scene.feed.count  # nobody has subscribed yet

    return make
