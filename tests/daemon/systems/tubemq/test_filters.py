"""Filters of TubeMQ: by values of ``$msgType$``, which the Broker compares by their hashes."""

from fastwire.tubemq.protocol.request import MSG_TYPE
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from tests.support.source_pipe import until
from tests.support.tubemq.source_pipe import GROUP, TubeMQPipe, reading, serving

TYPES = ("aaa", "bbb", "ccc")


def produce(broker: TubeMQDevBroker, first: int, count: int) -> None:
    """Store messages whose types take turns; the first one has none."""
    broker.append("t", b"no type")
    for number in range(first, first + count):
        broker.append("t", b"%d" % number, attributes={MSG_TYPE: TYPES[number % 3]})


def values(pipe: TubeMQPipe) -> list[int]:
    return sorted(int(value) for _, _, value in pipe.values.elements())


async def landing(broker: TubeMQDevBroker, pipe: TubeMQPipe, rows: int) -> None:
    await pipe.got(rows)
    pipe.commit()
    await until(lambda: broker.backlog("t", GROUP) == 0, "no backlog")


async def test_only_messages_of_the_types_land() -> None:
    async with serving() as broker, reading(broker, filters={"t": ("ccc", "aaa")}) as pipe:
        produce(broker, 0, 30)
        await landing(broker, pipe, 20)
        assert values(pipe) == [number for number in range(30) if number % 3 != 1]
        assert pipe.once()


async def test_other_filters_make_another_log_at_the_groups_offset() -> None:
    """A position counts the messages that the filters let pass: with others it would be another place."""
    async with serving() as broker:
        async with reading(broker, filters={"t": ("aaa",)}) as one:
            produce(broker, 0, 30)
            await landing(broker, one, 10)
        produce(broker, 30, 30)
        async with reading(broker, filters={"t": ("bbb",)}, coverage=one.coverage) as two:
            await landing(broker, two, 10)
            assert values(two) == list(range(31, 60, 3))
            assert len({log.incarnation for log in two.coverage.logs()}) == 2
        async with reading(broker, filters={"t": ("bbb", "bbb")}, coverage=two.coverage) as three:
            produce(broker, 60, 30)
            await landing(broker, three, 10)
            assert values(three) == list(range(61, 90, 3))
            assert len(three.coverage.logs()) == 2
