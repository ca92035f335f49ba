"""Memory with many connections at once, each of which brings what takes most: dead letters, headers, full answers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from fastwire.kafka.producing.payload import encode_block_batch, encode_values
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from tests.crash.resident import ROOM_MIB, watch
from tests.crash.test_dead_letters import MIB, unknown_codecs
from tests.crash.test_memory import TOPIC, PulsarBrokers
from tests.real.daemon import Job, verify
from tests.support.kafka.bombs import headers_of

pytestmark = pytest.mark.crash
BUDGET_MIB = 64


MEMORY = {"memory": f"{BUDGET_MIB}MiB"}


@contextmanager
def kafka(path: Path, nodes: int, batches: list[bytes]) -> Iterator[Job]:
    with running(KafkaDevBroker(KafkaOptions(nodes=nodes, max_message_bytes=5 << 20))) as broker:
        broker.create_topic("memory", nodes)
        for partition in range(nodes):
            broker.append("memory", batches, partition)
        source = {"subscription_type": None, "group_protocol": "none"}
        yield Job(broker.url, "memory", path, source=source, daemon=MEMORY)


@contextmanager
def dead_letters(path: Path) -> Iterator[Job]:
    with running(PulsarBrokers(60)) as broker:
        broker.create_topic(TOPIC, 60)
        for partition in range(60):
            broker.append(f"{TOPIC}-partition-{partition}", list(unknown_codecs(2, 4 * MIB)))
        yield Job(broker.url, TOPIC, path, daemon=MEMORY)


def many_headers(path: Path) -> AbstractContextManager[Job]:
    # numpy, which only tests have, takes 15 MiB of the room.
    return kafka(path, 20, [headers_of(400_000, number) for number in range(3)])


def full_answers(path: Path) -> AbstractContextManager[Job]:
    values = [b"%08d" % number + b"v" * 1000 for number in range(1000)]
    return kafka(path, 60, [encode_block_batch(encode_values(values), 1000, base_timestamp=1)] * 5)


@pytest.mark.parametrize(
    ("serve", "expected"),
    [(dead_letters, "120 dead letters"), (many_headers, "60 rows"), (full_answers, "300,000 rows")],
)
def test_many_connections_stay_within_the_budget(
    serve: Callable[[Path], AbstractContextManager[Job]], expected: str, tmp_path: Path
) -> None:
    """Incomplete frames of all connections together fill the budget more than once: it goes on all the same."""
    with serve(tmp_path / "data") as job:
        peak = watch(job.write(tmp_path), job.path).peak
    said = verify(tmp_path / "data")
    assert said.returncode == 0 and expected in said.stdout, said.stdout
    assert peak < BUDGET_MIB + ROOM_MIB, f"{peak:.0f} MiB"
