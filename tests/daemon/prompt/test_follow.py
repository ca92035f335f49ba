"""Following topics at a prompt, on the embedded brokers of all systems."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fastwire_daemon as fw
from fastwire.errors import FastwireError
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.prompt.follow import Batch
from tests.daemon.prompt import ROWS

ALL = sorted(b"%d-%d" % (partition, number) for partition in range(2) for number in range(ROWS))


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        made.create_topic("orders", 1)
        yield made
        assert made.violations == []


def taken(batches: Iterator[Batch], rows: int) -> list[Batch]:
    """Return batches with at least ``rows`` records."""
    found: list[Batch] = []
    while sum(map(len, found)) < rows:
        found.append(next(batches))
    return found


def values(found: list[Batch]) -> list[bytes]:
    return sorted(value for each in found for value in each["value"].to_pylist())


def test_what_is_committed_does_not_come_again(broker: Any) -> None:
    if broker.scheme == "tank":
        with pytest.raises(ConfigError, match="group"):
            fw.follow(broker.url, "orders", group="billing")
        return
    batches = fw.follow(broker.url, "orders", group="billing")
    found = taken(batches, 2 * ROWS)
    assert values(found) == ALL
    found[-1].commit()
    batches.close()
    with pytest.raises(FastwireError, match="the iteration has ended"):
        found[-1].commit()
    broker.produce("orders", [b"later"], 0)
    assert values(list(taken(fw.follow(broker.url, "orders", group="billing"), 1))) == [b"later"]


def test_without_a_group_nothing_is_left(broker: Any) -> None:
    for _ in range(2):
        found = taken(fw.follow(broker.url, "orders", columns=["value"]), 2 * ROWS)
        assert found[0].records.schema.names == ["value"]
        assert values(found) == ALL
    with pytest.raises(ValueError, match="name one by group="):
        found[0].commit()


def test_an_iteration_ends_when_nothing_has_come(broker: Any) -> None:
    assert values(list(fw.follow(broker.url, "orders", idle_s=2.0))) == ALL


def test_values_as_columns_and_records_that_are_none(kafka: KafkaDevBroker, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    fields = [{"name": "id", "type": "long"}]
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    kafka.produce("orders", [b'{"id": 1}', b"no", b'{"id": 2}'], 0)
    decode = {"format": "json", "schema": str(schema)}
    batches = fw.follow(kafka.url, "orders", group="billing", decode=decode)
    found = taken(batches, 2)
    assert pl.concat(pl.DataFrame(each) for each in found)["id"].to_list() == [1, 2]
    assert [letter.payload for each in found for letter in each.dead_letters] == [b"no"]
    found[-1].commit()
    batches.close()
    kafka.produce("orders", [b"nor this"], 0)
    batch = next(fw.follow(kafka.url, "orders", group="billing", decode=decode))
    assert len(batch) == 0 and [letter.payload for letter in batch.dead_letters] == [b"nor this"]


def test_beside_a_running_loop(kafka: KafkaDevBroker) -> None:
    """As in a notebook, whose cells run inside a loop, and from other threads."""
    kafka.produce("orders", [b"a"], 0)
    found: list[bytes] = []

    async def cell() -> None:
        found.extend(values(taken(fw.follow(kafka.url, "orders", group="cell"), 1)))

    asyncio.run(cell())
    thread = threading.Thread(target=lambda: found.extend(values(taken(fw.follow(kafka.url, "orders"), 1))))
    thread.start()
    thread.join()
    assert found == [b"a", b"a"]
    assert not [each for each in threading.enumerate() if each.name == "fastwire follow"]


def test_mistakes_are_told_at_once(kafka: KafkaDevBroker) -> None:
    with pytest.raises(ConfigError, match="assignors"):
        fw.follow(kafka.url, "orders", group="billing", assignors="range")
    with pytest.raises(ValueError, match="assignor is for a consumer with a group"):
        fw.follow(kafka.url, "orders", assignor="range")
    with pytest.raises(ValueError, match="colour"):
        fw.follow(kafka.url, "orders", columns=["colour"])


MEMBER = """
import json
import sys
import fastwire_daemon as fw

for batch in fw.follow(sys.argv[1], "orders", group="billing", **json.loads(sys.argv[2])):
    for value in batch["value"].to_pylist():
        print(value.decode(), flush=True)
    batch.commit()
"""
# Brokers that notice soon that a member is gone, and the keys of such members.
GROUPS: dict[str, Any] = {
    "kafka": (
        lambda: KafkaDevBroker(KafkaOptions(session_ms=(10, 60_000))),
        {"group_protocol": "classic", "session_timeout": "1s"},
    ),
    "pulsar": (lambda: PulsarDevBroker(PulsarOptions()), {}),
    "tubemq": (lambda: TubeMQDevBroker(TubeMQOptions(consumer_timeout_s=2.0)), {"heartbeat": "200ms"}),
}


def member_of(broker: Any, keys: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MEMBER, broker.url, json.dumps(keys)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("system", GROUPS)
def test_a_member_that_is_killed_loses_nothing(system: str) -> None:
    """Two members, one of which is killed while records come: the other gets its partitions, and what it had left."""
    make, keys = GROUPS[system]
    written: set[str] = set()
    over = threading.Event()

    def write(broker: Any) -> None:
        while not over.wait(0.02):
            for partition in range(4):
                mine = [f"{partition}-{len(written) + number}" for number in range(5)]
                broker.produce("orders", [each.encode() for each in mine], partition)
                written.update(mine)

    with running(make()) as broker:
        broker.create_topic("orders", 4)
        member = member_of(broker, keys)
        assert member.stdout is not None and member.stderr is not None
        writer = threading.Thread(target=write, args=(broker,))
        writer.start()
        try:
            seen = {member.stdout.readline().strip()}
            batches = fw.follow(broker.url, "orders", group="billing", idle_s=20.0, **keys)
            partitions: set[str] = set()
            for batch in batches:
                found = {value.decode() for value in batch["value"].to_pylist()}
                seen |= found
                batch.commit()
                if not partitions:  # both are members
                    member.kill()
                    seen.update(line.strip() for line in member.stdout)
                partitions |= {each.partition("-")[0] for each in found}
                if len(partitions) == 4:  # those of the other member have come
                    over.set()
                    writer.join()
                    if seen >= written:
                        break
            batches.close()
            assert seen == written
            # All of it is committed: nothing comes again.
            assert list(fw.follow(broker.url, "orders", group="billing", idle_s=2.0)) == []
        finally:
            over.set()
            writer.join()
            member.kill()
            member.wait()
            member.stdout.close()
            member.stderr.close()


@pytest.mark.parametrize("taking", ['follow(sys.argv[1], "orders", group="billing")', 'read(sys.argv[1], "orders")'])
def test_a_process_ends_that_has_not_taken_all(kafka: KafkaDevBroker, taking: str) -> None:
    kafka.produce("orders", [b"a"], 0)
    code = f"import sys\nimport fastwire_daemon as fw\nbatches = iter(fw.{taking})\nprint(next(batches)['value'][0])"
    done = subprocess.run([sys.executable, "-c", code, kafka.url], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'a'\n", "")


def test_ctrl_c_ends_it() -> None:
    with running(KafkaDevBroker(KafkaOptions(session_ms=(10, 60_000)))) as broker:
        broker.create_topic("orders", 1)
        broker.produce("orders", [b"a"], 0)
        member = member_of(broker, {"group_protocol": "classic", "session_timeout": "1s"})
        assert member.stdout is not None
        assert member.stdout.readline() == "a\n"
        member.send_signal(signal.SIGINT)
        _, err = member.communicate(timeout=60)
        assert err.strip().endswith("KeyboardInterrupt")
