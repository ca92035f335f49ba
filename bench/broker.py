"""The same from a real Pulsar broker, into ``discard``: what the replaying server says, in its order of magnitude.

    python -m bench.broker [--json]

A standalone broker is started from the jars of Maven Central and filled by our own producer, in batches and one by
one; then the daemon, a bare socket, pulsar-client and the clients for Java and Rust read the same topics. CPU is that
of the consumer's process. Without Java or Maven nothing is measured, which is said.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from typing import Any

from fastwire.pulsar.format.payload import Compression, Entry
from tests.brokers.admin import PulsarAdmin
from tests.support.pulsar.produce import client_settings, produce

from .child import ROOT, Case, show
from .pipeline import compare
from .programs import pulsar_peers
from .varied_server import make_plan

PARTITIONS = 4
SINKS = {"fastwire": 'type = "discard"'}
# Messages for us and for pulsar-client. One by one the broker takes and gives 20,000 to 50,000 a second, at best.
CASES = ((Case(100, 1000, "none"), 4_000_000, 150_000), (Case(100, 1, "none"), 60_000, 30_000))


@contextmanager
def broker() -> Iterator[Mapping[str, Any] | None]:
    """The addresses of a broker in a process of its own, or None where there can be none."""
    command = [sys.executable, "-m", "tests.brokers.pulsar"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        told = process.stdout.readline()
        yield json.loads(told) if told else None
    finally:
        process.stdin.close()  # it ends when nobody speaks to it any more
        process.wait(60)
        process.stdout.close()


def fill(url: str, admin: PulsarAdmin, case: Case, messages: int) -> Mapping[str, Any]:
    """A topic with the messages of a case; what a replaying server would tell of itself."""
    topic = f"persistent://public/default/bench-{case.batch}"
    admin.create_topic(topic, PARTITIONS)
    plan = make_plan(
        messages, case.size, 0 if case.batch == 1 else case.batch, Compression[case.codec.upper()], PARTITIONS
    )
    bodies = cycle(plan.bodies)

    def entries() -> Iterator[tuple[int, Entry]]:
        for first in range(0, messages, case.batch):
            last = first + case.batch - 1
            entry = replace(plan.entry, body=next(bodies), sequence_id=first, highest_sequence_id=last)
            yield first // case.batch % PARTITIONS, entry

    asyncio.run(produce(client_settings(url), topic, entries()))
    return {"url": url, "topic": topic, "messages": messages}


def main() -> None:
    """Measure and print."""
    rows: list[dict[str, Any]] = []
    with broker() as found:
        if found is None:
            print("no real broker, so nothing is measured against one", file=sys.stderr)
        else:
            admin = PulsarAdmin(found["admin"])
            peers = pulsar_peers()
            for case, messages, theirs in CASES:
                told = fill(found["url"], admin, case, messages)
                rows += compare(
                    "broker", case, told, theirs, ("receive", "batch_receive"), SINKS, floor=True, peers=peers
                )
    show(rows)


if __name__ == "__main__":
    main()
