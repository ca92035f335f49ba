"""The source of TubeMQ as a member of a group: rebalances, ends that others read, and client balance."""

import asyncio

import pytest

from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.frame import Method
from fastwire_daemon.devbroker.base import Faults
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.tubemq.source import heads
from tests.daemon.systems.tubemq.test_source import (
    confirmed,
    landing,
    texts,
    values,
)
from tests.support.source_pipe import until
from tests.support.tubemq.source_pipe import GROUP, TubeMQPipe, reading, serving

# --- rebalances


async def test_a_partition_is_given_up_after_its_messages_have_landed() -> None:
    async with serving(2, event_rounds=10_000) as broker, reading(broker) as one:
        broker.produce("t", texts(0, 10), 0)
        broker.produce("t", texts(10, 10), 1)
        await one.got(20)
        async with reading(broker, coverage=one.coverage) as two:
            await until(lambda: one.count("revoked") == 1, "the revocation")
            beats = broker.requests["CONSUMER_HEARTBEAT"]
            await until(lambda: broker.requests["CONSUMER_HEARTBEAT"] > beats + 8, "rounds of the balance")
            assert two.assigned == []
            one.commit()
            await until(lambda: two.assigned != [], "the other member's partition")
            broker.produce("t", texts(20, 10), 0)
            broker.produce("t", texts(30, 10), 1)
            await until(lambda: one.rows + two.rows == 40, "all rows")
            assert one.once()
            assert sorted(values(one) + values(two), key=int) == texts(0, 40)


async def test_a_partition_that_was_lost_is_not_moved_at_the_end() -> None:
    """Another member may have gone on behind what this one has landed, and left."""
    async with serving() as broker, reading(broker) as pipe:
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        await confirmed(broker)
        broker.produce("t", texts(10, 10))
        await pipe.got(20)  # not committed
        broker.fail(Method.BROKER_REGISTER, Code.PARTITION_OCCUPIED, 10_000)
        broker.expire_owners()
        await until(lambda: pipe.source.status()["membership"]["partitions"] == 0, "the loss")
        (progress,) = broker.progress.values()
        progress.committed = progress.store.end  # by the other member
        broker.failures[Method.BROKER_REGISTER] = Faults()
        broker.fail(Method.CONSUMER_HEARTBEAT, Code.SERVICE_UNAVAILABLE, 10_000)
        await pipe.source.close(5.0)
        assert broker.backlog("t", GROUP) == 0


async def test_a_member_without_partitions_knows_no_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for ever: ``--until-end`` ends."""
    monkeypatch.setattr(heads, "UNASSIGNED_S", 0.2)
    async with serving(1) as broker, reading(broker) as one:
        broker.produce("t", texts(0, 10))
        await landing(one, 10)
        assert len(await one.source.heads()) == 1
        async with reading(broker, coverage=one.coverage) as two:
            assert await two.source.heads() == {}


async def test_the_ends_are_those_of_all_partitions_once_another_member_is_gone() -> None:
    """A run to the end that began with its first share ended without those of a member that had been killed."""
    async with serving(4) as broker:
        for number in range(4):
            broker.produce("t", texts(number * 10, 10), number)
        async with reading(broker) as other:
            other.eager = True
            await other.got(40)
            async with reading(broker, coverage=other.coverage) as one:
                await until(lambda: len(one.assigned) == 2, "its share", lambda: (one.told, other.told))
                finding = asyncio.create_task(one.source.heads())
                await until(lambda: broker.requests["PRODUCER_HEARTBEAT"] > 0, "the list of partitions")
                await other.source.close(5.0)
                assert len(await finding) == 4


async def test_an_account_that_is_no_producer_reads_to_the_ends_of_its_assignment() -> None:
    async with serving(2) as broker:
        broker.produce("t", texts(0, 10), 0)
        broker.fail(Method.PRODUCER_REGISTER, Code.CERTIFICATE_FAILURE, 100)
        async with reading(broker) as pipe:
            await until(lambda: len(pipe.assigned) == 2, "both partitions")
            assert len(await pipe.source.heads()) == 2


async def test_a_partition_that_is_refused_at_first_has_no_end_before_its_registration() -> None:
    """A dead member's registration lasts until the Broker ends it."""
    async with serving(2) as broker:
        broker.produce("t", texts(0, 10), 0)
        broker.produce("t", texts(10, 10), 1)
        broker.fail(Method.BROKER_REGISTER, Code.PARTITION_OCCUPIED, 5)
        async with reading(broker) as pipe:
            ends = await pipe.source.heads()
            store_end = max(end.a for end in broker.end_positions("t"))  # both partitions are in one store
            assert [end.a for end in ends.values()] == [store_end] * 2


async def test_a_run_to_the_end_does_not_wait_for_ever_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "UNASSIGNED_S", 0.2)
    async with serving(1) as broker:
        broker.produce("t", texts(0, 10))
        broker.fail(Method.BROKER_REGISTER, Code.PARTITION_OCCUPIED, 10_000)
        async with reading(broker) as pipe:
            ends = await pipe.source.heads()
            assert list(ends) == [0]
            while await pipe.source.unfinished(ends, pipe.coverage):
                assert pipe.count("stopped") == 0
            assert pipe.count("stopped") == 1


# --- client balance


async def test_nodes_share_the_partitions_by_their_numbers() -> None:
    async with serving(4) as broker, reading(broker, node=(2, 0)) as one, reading(broker, node=(2, 1)) as two:
        for number in range(4):
            broker.produce("t", texts(number * 10, 10), number)
        await until(lambda: one.rows + two.rows == 40, "all rows")
        assert one.rows == two.rows == 20
        assert sorted(values(one) + values(two), key=int) == texts(0, 40)


async def test_a_node_without_partitions_is_at_the_end() -> None:
    """It does not wait for partitions that are those of other numbers."""
    async with serving(1) as broker, reading(broker, node=(2, 0)) as one, reading(broker, node=(2, 1)) as two:
        broker.produce("t", texts(0, 10))
        async with asyncio.timeout(heads.UNASSIGNED_S / 2):
            ends = [len(await pipe.source.heads()) for pipe in (one, two)]
        assert sorted(ends) == [0, 1]


async def test_a_node_waits_for_its_number() -> None:
    """A node that was killed keeps its number at the Master for a while."""
    async with serving() as broker:
        broker.produce("t", texts(0, 10))
        async with reading(broker, node=(1, 0)) as one:
            await landing(one, 10)
            two = TubeMQPipe(broker, coverage=one.coverage, node=(1, 0))
            starting = asyncio.create_task(two.start())
            await until(lambda: "430" in two.source.status()["membership"]["error"], "the refusal")
        await starting
        broker.produce("t", texts(10, 10))
        await two.got(10)
        assert values(two) == texts(10, 10)
        await two.close()


async def test_an_operator_moves_a_group_to_the_end() -> None:
    """The dataset declares what is left out."""
    async with serving() as broker, reading(broker, node=(1, 0)) as pipe:
        pipe.eager = True
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        pipe.source.on_budget(Level.STOP)  # nothing more is requested
        broker.produce("t", texts(10, 10))
        broker.move_to_end(GROUP)
        await until(lambda: pipe.count("revoked") == 1, "the move")
        pipe.source.on_budget(Level.FREE)
        await until(lambda: any(first.span.gap for first in pipe.firsts), "the gap")
        broker.produce("t", texts(20, 10))
        await landing(pipe, 20)
        assert values(pipe) == texts(0, 10) + texts(20, 10)
