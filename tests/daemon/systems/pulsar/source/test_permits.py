"""Each row of the table of permits (Pulsar 13.3): whatever becomes of an entry, the broker's right is whole again.

The embedded broker ends the connection of whoever grants more than its window; who grants less ends with less than the
window, and stands still when every entry costs one. So every row happens many times here.
"""

from collections.abc import Callable
from typing import Any

import pytest

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, Record, encode_batch_entry, encode_chunks, encode_single_entry
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.support.hostile import pulsar as hostile
from tests.support.pulsar.source_scene import FULL, TYPES, landed, reading, serving
from tests.support.source_pipe import Pipe, entries, entry, until

WINDOW = 50
ROUNDS = 60  # more than the window, should each leak one permit
TIME = 1_700_000_000_000


def batch(number: int, records: list[Record], **fields: Any) -> Entry:
    metadata = pb.MessageMetadata(**fields)
    return encode_batch_entry(records, producer_name="p", sequence_id=number, publish_time=TIME, metadata=metadata)


def single(number: int, **fields: Any) -> Entry:
    metadata = pb.MessageMetadata(**fields)
    return encode_single_entry(
        Record(value=b"x"), producer_name="p", sequence_id=number, publish_time=TIME, metadata=metadata
    )


def compacted(number: int) -> list[Entry]:
    return [batch(number, [Record(value=b"a"), Record(value=b"", compacted_out=True), Record(value=b"c")])]


def markers(number: int) -> list[Entry]:
    return [single(number, marker_type=21)]


def encrypted(number: int) -> list[Entry]:
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    return [batch(number, [Record(value=b"a")] * 3, encryption_keys=keys, encryption_param=b"0" * 12)]


def chunked(number: int) -> list[Entry]:
    return encode_chunks(
        Record(value=b"x" * 90), chunk_bytes=40, producer_name="p", sequence_id=number, publish_time=TIME
    )


def torn(number: int) -> list[Entry]:
    """The first part is missing."""
    return chunked(number)[1:]


# What makes the entries, and how many rows one call's become.
ROWS: dict[str, tuple[Callable[[int], list[Entry]], int]] = {
    "compacted out": (compacted, 2),
    "marker": (markers, 0),
    "encrypted": (encrypted, 0),
    "chunked": (chunked, 1),
    "torn": (torn, 0),
}


async def whole_again(broker: PulsarDevBroker, pipe: Pipe) -> None:
    """After everything that came before comes a sound entry, and then the window is whole."""
    broker.append("t", [entry(9_999)])
    await until(lambda: any(value.startswith(b"9999:") for *_, value in pipe.values), "the last entry")
    pipe.commit()
    await until(lambda: [one.permits for one in broker.consumers("t", "s")] == [WINDOW], "a whole window")


@pytest.mark.parametrize("kind", ["failover", "shared"])
@pytest.mark.parametrize("row", ROWS)
async def test_what_is_no_row_costs_what_it_costs(row: str, kind: str) -> None:
    make, rows = ROWS[row]
    more: dict[str, Any] = {"on_undecryptable": "discard"} if row == "encrypted" else {}

    async with serving() as broker:
        for number in range(ROUNDS):
            broker.append("t", [*make(number), entry(number, rows=3)])
        async with reading(broker, subscription_type=kind, most_permits=WINDOW, **more) as pipe:
            await whole_again(broker, pipe)
            assert pipe.rows == ROUNDS * (rows + 3) + 10


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 7])
async def test_what_has_landed_and_comes_again(kind: str, rows: int) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, ROUNDS, rows=rows))
        coverage = landed(broker.positions("t")[ROUNDS - 5][:2])
        async with reading(broker, subscription_type=kind, most_permits=WINDOW, coverage=coverage) as pipe:
            await whole_again(broker, pipe)
            assert pipe.rows == 4 * rows + 10


async def test_what_lies_before_the_start() -> None:
    async with serving() as broker:
        for number in range(ROUNDS):
            broker.append("t", [single(number), entry(number, rows=3)])
        ledger, number, _ = broker.positions("t")[-2]
        async with reading(broker, start={"t": f"{ledger}:{number}"}, most_permits=WINDOW) as pipe:
            await whole_again(broker, pipe)
            assert pipe.rows == 3 + 10


@pytest.mark.parametrize("kind", ["failover", "shared"])
async def test_elements_that_were_acknowledged_before_were_never_debited(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, ROUNDS, rows=8))
        async with reading(broker, subscription_type=kind, most_permits=WINDOW, started=False) as pipe:
            pipe.auto = False
            await pipe.start()
            await until(lambda: bool(pipe.assigned), "an assignment")
            cursor = broker.topic(FULL).subscriptions["s"].cursor
            for index in range(ROUNDS):
                cursor.ack_elements(index, 0b1010_0110)  # the bits of what is left
            pipe.auto = True
            await pipe.take(pipe.assigned)
            await whole_again(broker, pipe)
            assert pipe.rows == 4 * ROUNDS + 10


async def test_entries_that_are_sent_twice() -> None:
    async with serving(hostile.Repeats(every=2)) as broker:
        broker.append("t", entries(0, ROUNDS, rows=2))
        async with reading(broker, most_permits=WINDOW) as pipe:
            await whole_again(broker, pipe)
            assert pipe.rows == 2 * ROUNDS + 10


@pytest.mark.parametrize("kind", TYPES)
async def test_a_new_connection_begins_with_a_whole_window(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, ROUNDS))
        async with reading(broker, subscription_type=kind, most_permits=WINDOW) as pipe:
            for round_ in range(3):
                await pipe.got(10 * (round_ + 1))
                broker.drop_connections()
            await whole_again(broker, pipe)
            assert pipe.once()


async def test_a_seek_on_the_way_costs_nothing() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, ROUNDS))
        async with reading(broker, start="latest", most_permits=WINDOW) as pipe:
            await pipe.granted()
            await whole_again(broker, pipe)
            assert pipe.rows == 10
            assert pipe.coverage.start(pipe.log()) == Position(*broker.positions("t")[ROUNDS - 1][:2])
