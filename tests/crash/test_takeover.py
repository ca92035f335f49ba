"""A writer that is stopped at a step, a second one that takes over, and the first one that wakes up again."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.dataset.writer import STEPS
from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker
from tests.crash.readers import Watch
from tests.crash.scene import Scene
from tests.proxy import Proxy

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_stopped_at_every_step_while_another_takes_over(
    dev_broker: PulsarDevBroker, dev_scene: Callable[..., Scene], kind: str, tmp_path: Path
) -> None:
    scene = dev_scene(kind=kind)
    stopped = []
    with Watch(scene.path, tmp_path / "seen.json") as watch, Proxy(dev_broker.port) as proxy:
        for step in STEPS:
            scene.feed.add(5)
            script = {"at": step, "do": "stop", "checkpoint_every": 3}
            # The cluster's name keeps both of them in one log: their URLs differ.
            first = scene.run(script=script, job={"url": proxy.url, "source": {"cluster": "dev"}})
            with first:
                if first.wait_stopped():
                    stopped.append(step)
                    # Nobody hears from the first one any more: the broker gives everything to the second.
                    proxy.cut()
                    with scene.run(job={"source": {"cluster": "dev"}}) as second:
                        second.wait_done()
                    first.signal(signal.SIGCONT)
                # What the second landed the first must find out by itself, and end well.
                first.wait_done()
        wrong = watch.finish()
    assert wrong == []
    assert len(stopped) >= len(STEPS) - 3, stopped
    scene.judge(ordered=False)
