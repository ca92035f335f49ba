"""Several sources on one subscription: who reads, who stands by, and what peers know of each other."""

import pytest

from fastwire.coverage import Coverage
from fastwire_daemon.systems.pulsar.source import watch
from tests.support.pulsar.round_trip import round_trips
from tests.support.pulsar.source_scene import reading, serving, two
from tests.support.source_pipe import entries, until


async def test_failover_hands_over_with_the_coverage_of_the_other() -> None:
    async with serving(partitions=2) as broker:
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 20))
        one, other = two(broker, "failover")
        await other.start()
        await other.got(400)
        other.commit()
        await one.start()
        # The active one is found anew for every change, and consumers are spread over the partitions.
        await until(
            lambda: all(sum(p.granted for p in each.source.partitions) == 1 for each in (one, other)), "a share"
        )
        other.commit()
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(20, 20))
        await until(lambda: one.rows + other.rows == 800, "all rows")
        one.commit()
        other.commit()
        await other.close()
        await one.granted()
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(40, 5))
        await until(lambda: one.rows + other.rows == 900, "the rest")
        await one.drained()
        assert one.once()
        assert other.once()
        assert not set(one.values) & set(other.values)
        await one.close()


async def test_who_loses_the_role_is_told_and_holds_no_permits() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 5))
        one, other = two(broker, "failover")
        await other.start()
        await other.got(50)
        other.commit()
        await one.start()
        await until(lambda: one.source.partitions[0].granted or bool(other.count("revoked")), "a change of roles")
        await round_trips(broker)
        states = {state.name: state for state in broker.consumers("t", "s")}
        active = next(name for name, state in states.items() if state.active)
        passive = "a" if active == "b" else "b"
        assert states[passive].granted == 0
        stand_by = one if passive == "a" else other
        await until(lambda: stand_by.source.status()["partitions"] == {"stand-by": 1}, "a stand-by")
        assert stand_by.source.standing_by and not (other if stand_by is one else one).source.standing_by
        await one.close()
        await other.close()


async def test_a_role_that_is_lost_before_the_grant_and_won_again() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 5))
        one, other = two(broker, "failover")
        other.auto = False
        await other.start()
        await until(lambda: len(other.assigned) == 1, "an assignment")
        await one.start()
        await one.got(50)
        # What was assigned is not in force any more.
        await other.take(other.assigned)
        assert not other.source.partitions[0].granted
        one.commit()
        await one.close()
        await until(lambda: len(other.assigned) == 2, "another assignment")
        await other.take(other.assigned)
        broker.append("t", entries(5, 5))
        await other.got(50)
        await other.drained()
        assert not set(one.values) & set(other.values)
        await other.close()


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_peers_share_and_nothing_comes_twice(kind: str) -> None:
    async with serving() as broker:
        one, other = two(broker, kind, most_permits=50)
        await one.start()
        await other.start()
        await one.granted()
        await other.granted()
        broker.append("t", entries(0, 100))
        await until(lambda: one.rows + other.rows == 1000, "all rows")
        one.commit()
        other.commit()
        await one.drained()
        assert not set(one.values) & set(other.values)
        await one.close()
        await other.close()


async def test_many_intervals_make_the_source_ask_what_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_HOLES", 60)  # what a reader without our dataset has confirmed may come again

    async with serving() as broker:
        one, other = two(broker, "shared", most_permits=20)
        other.coverage = Coverage()
        await one.start()
        await other.start()
        await one.granted()
        await other.granted()
        broker.append("t", entries(0, 400, rows=1))
        await until(lambda: one.rows + other.rows == 400, "all rows")
        assert min(one.rows, other.rows) > 64
        other.commit()
        one.commit()
        await one.drained()
        one.commit()
        await until(lambda: one.count("settled") > 0, "a floor")
        await until(lambda: len(one.coverage.intervals(one.log())) < 64, "few intervals")
        broker.append("t", entries(400, 10, rows=1))
        await until(lambda: one.rows + other.rows == 410, "the rest")
        other.commit()
        await one.drained()
        await one.close()
        await other.close()


async def test_a_limit_of_unacknowledged_messages_is_told_by_its_name() -> None:
    async with serving(max_unacked=200) as broker:
        broker.append("t", entries(0, 30))
        async with reading(broker, subscription_type="shared") as pipe:
            await until(lambda: pipe.count("stalled") > 0, "a stall")
            assert ("stalled", 0, "maxUnackedMessagesPerConsumer") in pipe.told
            assert 200 <= pipe.rows < 300
            pipe.commit()
            await pipe.got(300)
            await pipe.drained()
            assert pipe.once()


async def test_until_end_for_a_stand_by() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 5))
        one, other = two(broker, "failover")
        await one.start()
        await one.got(50)
        await other.start()
        other.coverage = Coverage()
        heads = await other.source.heads()
        reader, stand_by = (one, other) if one.source.partitions[0].granted else (other, one)
        assert list(await stand_by.source.unfinished(heads, Coverage())) == [0]
        await reader.drained()
        assert list(await stand_by.source.unfinished(heads, Coverage())) == []
        await one.close()
        await other.close()


async def test_a_busy_subscription_is_waited_for() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 5))
        one, other = two(broker, "exclusive")
        await one.start()
        await one.got(50)
        await other.start()
        await until(lambda: "ConsumerBusy" in other.source.partitions[0].error, "a refusal")
        assert other.failure is None
        await one.drained()
        await one.close()
        broker.append("t", entries(5, 5))
        await other.got(50)
        await other.close()
