"""The lag as real brokers tell it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.scene import Scene
from tests.real.daemon import ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    # What an entry of 50 records counts for.
    ("system", "kind", "unit"),
    [("pulsar", "failover", 1), ("kafka", "none", 50)],
)
def test_the_backlog_of_an_open_roll(
    request: pytest.FixtureRequest,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    system: str,
    kind: str,
    unit: int,
) -> None:
    broker = request.getfixturevalue(f"plain_{system}")
    address = tmp_path / "http"
    scene = Scene.on(broker, fresh_name("lag"), tmp_path, partitions=2, kind=kind, daemon={"http": f"unix:{address}"})
    scene.feed.add(7)
    wanted = f'fastwire_source_backlog_entries{{pipeline="p"}} {14 * unit}.0'
    with scene.run(until_end=False, job={"roll": {"idle": "1h", "age": "1h"}}) as daemon:
        daemon.wait_for("first positions")

        def lag_now() -> Any:
            return json.loads(ask(address, "/status"))["pipelines"]["p"]["source"]["lag"]

        def is_known() -> bool:
            # It may have been asked for before the first record came; what has come since is known without asking.
            lag = lag_now()
            return lag is not None and not lag["behind_logs"] and lag["backlog_entries"] > 0

        eventually(is_known, "the lag", lag_now)
        eventually(lambda: wanted in ask(address, "/metrics"), "the whole backlog", lag_now)
        lag = lag_now()
        assert (lag["backlog_entries"], lag["known_logs"]) == (14 * unit, 2)
        for one in lag["logs"].values():
            assert one["backlog_entries"] == 7 * unit
            assert one["received"].partition("@")[0] == one["head"]
        assert scene.unacknowledged()
