"""Dead letters reach topics of real brokers exactly once through a kill; ``tests/crash/test_replay.py`` has more."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.dataset.proof.verify import verify
from tests.brokers.kafka import KafkaBroker
from tests.brokers.pulsar import PulsarBroker
from tests.brokers.tubemq import TubeMQBroker
from tests.crash.test_replay import SCRIPT, dead_letters
from tests.real.daemon import Daemon
from tests.support.nursery import shared

pytestmark = pytest.mark.broker


@pytest.fixture(params=["kafka", "pulsar", "tubemq"])
def target(request: pytest.FixtureRequest, fresh_name: Callable[[str], str]) -> tuple[str, str]:
    """URL and topic; only the broker that is asked for is started."""
    broker = request.getfixturevalue(f"plain_{request.param}")
    if isinstance(broker, TubeMQBroker):
        return broker.url, broker.fresh_topic()
    topic = fresh_name("mended")
    if isinstance(broker, KafkaBroker):
        broker.create_topic(topic, 2)
        return broker.url, topic
    assert isinstance(broker, PulsarBroker)
    broker.admin.create_topic(topic, 2)
    return broker.service_url, topic


def test_a_kill_behind_the_receipts(target: tuple[str, str], tmp_path: Path) -> None:
    dataset = dead_letters(tmp_path / "orders")
    for nth, code in ((2, -signal.SIGKILL), (9, 0), (9, 0)):
        script = {"at": "letters-confirmed", "nth": nth, "do": "kill", "group": SCRIPT["group"]}
        with Daemon("dead", str(dataset), "--replay", *target, log=tmp_path / "log", script=script) as child:
            assert child.wait() == code, child.output
    assert "15 were written by a command that has ended: found there, and marked" in child.output
    said = shared().run("tail", *target, "--from", "earliest", "--until-end", "--format", "raw")
    assert Counter(said.stdout.split()) == Counter(f"v{n}" for n in range(40))
    assert (verify(dataset).problems, verify(dataset).replayed) == ([], 40)
