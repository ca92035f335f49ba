"""Logs that cannot be read are given up by whoever wants to come to an end."""

import asyncio

import pytest

from fastwire_daemon.systems.reading.patience import Patience
from tests.support.pulsar.source_scene import reading, serving
from tests.support.source_pipe import Pipe, entries, until


async def test_a_log_that_cannot_be_subscribed_to_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.reading.patience.LOG_LIMIT_S", 0.3)

    async with serving(partitions=2) as broker:
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 5))
        async with reading(broker, "t-partition-1", subscription_type="exclusive") as other:
            await other.got(50)
            async with reading(broker, subscription_type="exclusive") as pipe:
                await until(lambda: "ConsumerBusy" in pipe.source.waiting().get(1, ""), "a log that waits")
                heads = asyncio.ensure_future(pipe.source.heads())
                patience = Patience(pipe.source)
                await until(lambda: looked(patience) and heads.done(), "an end")
                assert heads.result().keys() == {0}
                ((_, index, why),) = (one for one in pipe.told if one[0] == "stopped")
                assert index == 1
                assert "could not be read for 0 s: " in why and "ConsumerBusy" in why
                assert pipe.source.waiting() == {}
                await other.close()
                await pipe.got(50)
                pipe.source.stop(1, "again")  # that is nothing
                assert pipe.count("stopped") == 1
                assert values_of(pipe) == {"0"}


def looked(patience: Patience) -> bool:
    patience.look()
    return True


def values_of(pipe: Pipe) -> set[str]:
    """The partitions from which records came."""
    return {partition for _, partition, _ in pipe.values}
