"""Chunked, encrypted, compacted and other unusual entries, from the embedded broker into rows, and their acks."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Compression,
    Entry,
    Record,
    encode_batch_entry,
    encode_chunks,
    encode_payload,
    encode_single_entry,
    split_payload,
)
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.reading.encryption import Decryptor, Encryptor
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.runtime.metrics import DaemonMetrics
from tests.support.pulsar.source_scene import FULL, ORDERED, TYPES, reading, serving
from tests.support.rsa_keys import key_pair
from tests.support.source_pipe import Pipe, entry, until

KEY = key_pair("orders")
DATA_KEY = bytes(range(32))


def value_of(number: int, size: int = 100) -> bytes:
    return b"%d/" % number + random.Random(number).randbytes(size)


def message(number: int, parts: int, compression: Compression = Compression.NONE) -> list[Entry]:
    """Message ``number`` of producer ``c``, cut into ``parts``."""
    value = value_of(number, parts * 50)
    found = encode_chunks(
        Record(value=value, key=f"k{number}"),
        chunk_bytes=-(-(len(value) + 16) // parts),  # zstd makes it a little longer
        producer_name="c",
        sequence_id=number,
        publish_time=1_700_000_000_000,
        compression=compression,
    )
    assert len(found) == parts
    return found


def sealed(sent: Entry, iv: int = 0, key: bytes = KEY.public, name: str = "orders") -> Entry:
    """The same entry, encrypted."""
    metadata, payload = split_payload(sent.body)
    stored = Encryptor({name: key}, DATA_KEY).encrypt(metadata, bytes(payload), iv.to_bytes(12, "big"))
    body = encode_payload(metadata, stored)
    return Entry(
        body, sent.messages, sent.sequence_id, sent.highest_sequence_id, sent.publish_time, sent.batched, sent.chunk
    )


def places(broker: PulsarDevBroker) -> list[Position]:
    return [Position(*each[:2]) for each in broker.positions("t")]


def got(pipe: Pipe, value: bytes) -> int:
    return pipe.values[(FULL, "-1", value)]


# --- chunked messages


@pytest.mark.parametrize("kind", TYPES)
async def test_interleaved_parts_become_rows_and_are_acknowledged(kind: str) -> None:
    async with serving() as broker:
        one, two, three = message(1, 3), message(2, 4, Compression.ZSTD), message(3, 2)
        mixed = [one[0], two[0], entry(0), two[1], one[1], three[0], one[2], entry(1), two[2], two[3], three[1]]
        broker.append("t", mixed)
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(23)
            for number, parts in ((1, 3), (2, 4), (3, 2)):
                assert got(pipe, value_of(number, parts * 50)) == 1
            assert pipe.dead_letters == [] and pipe.once()
            await pipe.drained()
            assert pipe.coverage.intervals(pipe.log())[0][1] == places(broker)[-1]
            assert len(pipe.coverage.intervals(pipe.log())) == 1
            assert pipe.pool.charged == 0
            await until(lambda: broker.consumers("t", "s")[0].permits == 10_000, "a whole window")


@pytest.mark.parametrize("kind", TYPES)
async def test_nothing_of_an_incomplete_message_is_landed_or_acknowledged(kind: str) -> None:
    async with serving() as broker:
        one = message(1, 3)
        broker.append("t", [entry(0), one[0], entry(1), one[1], entry(2)])
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(30)
            pipe.commit()
            at = places(broker)
            landed = [pipe.coverage.covers(pipe.log(), each) for each in at]
            assert landed == [True, False, True, False, True]
            # Two parts; read in order also everything behind the first of them.
            left = 12 + 10 if kind in ORDERED else 2
            await until(lambda: broker.backlog("t", "s") <= left, "acks")
            broker.append("t", [entry(3)])
            await pipe.got(40)
            pipe.commit()
            broker.append("t", [one[2], entry(4)])
            await pipe.got(51)
            await pipe.drained()
            assert got(pipe, value_of(1, 150)) == 1 and pipe.once() and pipe.dead_letters == []


async def life(
    broker: PulsarDevBroker, kind: str, coverage: Coverage, rows: list[bytes], sent: Sequence[Entry], how: str
) -> Coverage:
    """One process: it reads what is there and ``sent``, and goes as ``how`` says; returns what is durable then."""
    pipe = await Pipe(broker, coverage=coverage.copy(), subscription_type=kind).start()
    await pipe.granted()
    first = pipe.coverage.copy()  # committed before anything was asked for
    before = len(broker.positions("t"))
    broker.append("t", sent)
    last = Position(*broker.positions("t")[before + len(sent) - 1][:2])
    await until(lambda: pipe.source.slots.last_position(0) >= last, "everything sent")
    if how == "cut":  # the connection breaks, and what is held survives it
        broker.drop_connections()
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        await pipe.granted()
    if how == "void":  # the roll is lost, and the process goes on
        pipe.drop_roll()
        pipe.values.clear()
        pipe.source.void()
        await pipe.granted()
        await until(lambda: pipe.source.slots.last_position(0) >= last, "everything again")
    await until(lambda: not any(link.scanner.has_open for link in pipe.source.cluster.links.values()), "a chunk")
    if how != "killed":
        pipe.commit()
        rows += [value for _, _, value in pipe.values.elements()]
    assert pipe.dead_letters == []
    if how == "unacknowledged":  # it dies between commit and ack
        broker.drop_connections()
    pool = pipe.pool
    await pipe.close()
    pipe.source.cluster.completion.assembly.forget()
    assert pool.charged == 0
    return first if how == "killed" else pipe.coverage


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(6))
async def test_lives_that_end_between_parts_lose_and_double_nothing(kind: str, seed: int) -> None:
    """Some end with a commit, some without, some between commit and ack; Coverage is all that outlives them."""
    dice = random.Random(seed)
    waiting = [message(number, dice.randint(2, 4)) for number in range(6)] + [[entry(number)] for number in range(6)]
    counts = [len(parts) for parts in waiting]
    stream: list[Entry] = []
    while waiting:
        # Few producers at once, so that messages overlap but also end.
        one = dice.randrange(min(3, len(waiting)))
        stream.append(waiting[one].pop(0))
        if not waiting[one]:
            del waiting[one]
    wanted = sorted(value_of(number, counts[number] * 50) for number in range(6) if counts[number] >= 2)

    async with serving(ledger_entries=7) as broker:
        coverage, rows = Coverage(), list[bytes]()
        at = 0
        while at < len(stream):
            step = dice.randint(1, 5)
            how = dice.choice(["clean", "killed", "unacknowledged", "cut", "void"])
            coverage = await life(broker, kind, coverage, rows, stream[at : at + step], how)
            at += step
        coverage = await life(broker, kind, coverage, rows, [entry(99)], "clean")
        plain = sorted(value for value in rows if b"/" in value)
        assert plain == wanted
        assert len(rows) == len(set(rows)) == len(wanted) + 70
        await until(lambda: broker.backlog("t", "s") == 0, "an empty backlog")
        (log,) = coverage.logs()
        assert coverage.intervals(log)[-1][1] == places(broker)[-1]
        if kind in ORDERED:
            assert len(coverage.intervals(log)) == 1


async def test_parts_that_never_come_are_put_aside_when_their_time_is_over() -> None:
    async with serving() as broker:
        one = message(1, 3)
        broker.append("t", [entry(0), one[0], entry(1), one[1]])
        async with reading(broker) as pipe:
            await pipe.got(20)
            assembly = pipe.source.cluster.completion.assembly
            assembly.expired([0], 58.5)  # what is left passes by the source's own clock
            await until(lambda: len(pipe.dead_letters) == 2, "dead letters")
            assert {letter.reason for letter in pipe.dead_letters} == {"Chunked: 1 of 3 parts did not come within 60 s"}
            await pipe.drained()
            assert len(pipe.coverage.intervals(pipe.log())) == 1
            # The rest of it comes too late.
            broker.append("t", [one[2], entry(2)])
            await pipe.got(30)
            assert pipe.dead_letters[2].reason == "Chunked: part 3 of 3, but the parts before it did not come"
            await pipe.drained()


async def test_two_that_hold_parts_of_one_message_give_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do so until one has them all."""
    monkeypatch.setattr("fastwire_daemon.systems.pulsar.source.watch.LOOK_S", 0.02)
    monkeypatch.setattr("fastwire.pulsar.reading.assembly.RETURN_S", (0.02, 0.5))
    async with serving() as broker, reading(broker, subscription_type="shared") as one:
        async with reading(broker, subscription_type="shared") as other:
            await one.granted()
            await other.granted()
            for number in range(20):
                broker.append("t", message(number, 2))
            assemblies = [pipe.source.cluster.completion.assembly for pipe in (one, other)]
            await until(lambda: any(map(len, assemblies)), "parts of messages that are apart")
            await until(lambda: len(one.values) + len(other.values) == 20, "all messages")
            assert not any(map(len, assemblies))
            assert one.dead_letters == other.dead_letters == []
            one.commit()
            other.commit()
            assert sum((one.values + other.values).values()) == 20
            await until(lambda: broker.backlog("t", "s") == 0, "an empty backlog")


@pytest.mark.parametrize("kind", ORDERED)
async def test_a_peer_that_reads_on_keeps_what_it_has_landed(kind: str) -> None:
    """We hold a part, lose the log, and a peer lands the whole message: nothing of it is landed by us."""
    async with serving() as broker:
        one = message(1, 3)
        broker.append("t", [entry(0), one[0], entry(1), one[1]])
        async with reading(broker, subscription_type=kind) as pipe:
            pipe.auto = pipe.eager = True
            await pipe.got(20)
            pipe.commit()
            pipe.auto = False
            broker.drop_connections()
            await until(lambda: pipe.count("revoked") == 1 and len(pipe.assigned) == 2, "a second assignment")
            # What the peer would have landed: everything, and the end of the message.
            broker.append("t", [one[2]])
            for hole in pipe.coverage.holes(pipe.log()):
                pipe.coverage.add(Span(pipe.log(), *hole, 0))
            pipe.coverage.add(Span(pipe.log(), places(broker)[2], places(broker)[4], 1))
            await pipe.take(pipe.assigned[1:])
            broker.append("t", [entry(2)])
            await pipe.got(30)
            assert pipe.dead_letters == [] and got(pipe, value_of(1, 150)) == 0
            assert pipe.pool.charged == 0
            await pipe.drained()
            assert pipe.coverage.intervals(pipe.log()) == ((PULSAR_EARLIEST, places(broker)[-1]),)


# --- encrypted entries


def secret(number: int) -> list[Entry]:
    batch = encode_batch_entry(
        [Record(value=b"batch %d" % number), Record(value=None)],
        producer_name="s",
        sequence_id=number,
        publish_time=1,
        compression=Compression.LZ4,
    )
    single = encode_single_entry(Record(value=b"one %d" % number), producer_name="s", sequence_id=9, publish_time=1)
    return [sealed(each, place) for place, each in enumerate([batch, single, *message(number, 2)])]


@pytest.mark.parametrize("kind", TYPES)
async def test_encrypted_entries_become_rows(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", [entry(0), *secret(1), entry(1)])
        decryptor = Decryptor({"other": key_pair("other").private, "orders": KEY.private})
        async with reading(broker, subscription_type=kind, decryptor=decryptor) as pipe:
            await pipe.got(24)
            assert [got(pipe, value) for value in (b"batch 1", b"one 1", value_of(1, 100))] == [1, 1, 1]
            await pipe.drained()
            assert pipe.dead_letters == []


async def test_what_cannot_be_opened_stops_its_log() -> None:
    async with serving() as broker:
        broker.append("t", [entry(0), *secret(1), entry(1)])
        async with reading(broker) as pipe:
            await until(lambda: pipe.count("stopped") == 1, "a stop")
            await until(lambda: not broker.consumers("t", "s"), "the consumer is closed")
            said = pipe.told[-1][2]
            assert "cannot be decrypted (DecryptionError: it is encrypted for orders" in said
            assert "source.encryption.private_keys has to name a key" in said
            pipe.commit()
            assert pipe.coverage.end(pipe.log()) == places(broker)[0]
            assert pipe.rows == 10 and pipe.dead_letters == []


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("policy", "rows"), [("discard", 20), ("consume", 24)])
async def test_what_cannot_be_opened_is_dropped_or_kept_as_it_is(kind: str, policy: str, rows: int) -> None:
    async with serving() as broker:
        broker.append("t", [entry(0), *secret(1), entry(1)])
        metrics, dropped = DaemonMetrics("0"), 4 if policy == "discard" else 0
        more: Any = {"on_undecryptable": policy, "metrics": metrics.pipeline("m")}
        async with reading(broker, subscription_type=kind, **more) as pipe:
            await pipe.got(rows)
            await pipe.drained()
            assert pipe.rows == rows and pipe.dead_letters == []
            assert pipe.source.status()["discarded_entries"] == dropped
            assert pipe.pool.charged == 0
        counts = metrics.render().decode()
        assert f'fastwire_source_discarded_entries_total{{pipeline="m"}} {dropped}.0' in counts


async def test_entries_that_compaction_has_thinned_out() -> None:
    async with serving() as broker:
        marks = pb.MessageMetadata(compacted_batch_indexes=[1])
        kept = encode_batch_entry(
            [Record(value=b"kept")], producer_name="p", sequence_id=1, publish_time=1, metadata=marks
        )
        metadata, payload = split_payload(kept.body)
        metadata.num_messages_in_batch = 3
        broker.append("t", [Entry(encode_payload(metadata, bytes(payload)), 3, 1, 3, 1, batched=True), entry(0)])
        async with reading(broker, most_permits=100) as pipe:
            await pipe.got(11)
            assert got(pipe, b"kept") == 1
            await pipe.drained()
            await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")
