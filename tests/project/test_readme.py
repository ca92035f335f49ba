"""The examples of the README work as they stand there."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from bench.readme import FIGURES, README, SAVED, figures, renewed, summary
from fastwire.pulsar.format.payload import Record, encode_batch_entry, encode_block_entry
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.support.source_pipe import until
from tests.support.source_tree import ROOT


async def test_the_example_consumes_everything() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "async def main" in block]
    names: dict[str, Any] = {}
    exec(compile(text, "README.md", "exec"), names)
    main: Callable[[str], Coroutine[Any, Any, None]] = names["main"]

    broker = PulsarDevBroker()
    await broker.start()
    broker.create_topic("orders", 2)
    for partition, key in enumerate(("late", "early")):
        records = [Record(value=b"%d" % row, key=key) for row in range(4)]
        entry = encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=1)
        broker.append(f"orders-partition-{partition}", [entry])
    damaged = encode_block_entry(b"\xff\xff", 7, producer_name="p", sequence_id=10, publish_time=1)
    broker.append("orders-partition-1", [damaged])
    running = asyncio.ensure_future(main(broker.url))
    await until(lambda: "billing" in broker.subscriptions("orders-partition-1"), "a subscription")
    await until(lambda: broker.backlog("orders-partition-1", "billing") == 0, "acks")
    assert broker.backlog("orders-partition-0", "billing") == 4
    running.cancel()
    await asyncio.wait([running])
    assert broker.consumers("orders", "billing") == []
    assert broker.violations == []
    await broker.stop()


def test_the_figures_are_those_of_the_saved_run() -> None:
    saved = json.loads(SAVED.read_text())
    for page, tables in ((README, summary), (FIGURES, figures)):
        text = page.read_text()
        assert renewed(text, tables(saved)) == text, "make docs"
        changed = json.loads(SAVED.read_text())
        changed["discard"][0]["cpu_us_per_message"] = 12.345
        assert "12.345" in renewed(text, tables(changed))


def test_the_first_pages_are_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 9 << 10
    assert len((ROOT / "DESIGN.md").read_bytes()) <= 16 << 10
