"""``start = { group = "…" }``: reading begins where another consumer group has committed."""

from typing import Any

import pytest

from fastwire.position import Position
from fastwire_daemon.config import ConfigError, Start, parse_config
from tests.support.kafka.source_pipe import batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

START = {"group": "connect-orders"}


async def test_reading_begins_at_the_offsets_of_the_other_group() -> None:
    """A partition of which it has committed nothing, as of an empty one, is read from its beginning."""
    async with serving(3) as broker:
        for partition in range(3):
            broker.append("t", batches(0, 2), partition)
        broker.group("connect-orders").offsets.update({("t", 0): (15, 0, ""), ("t", 1): (20, 0, "")})
        async with reading(broker, start=START) as pipe:
            await pipe.got(5 + 20)
            assert_once(pipe, 25)
            assert {first.span.start for first in pipe.firsts} == {Position(15, 0), Position(20, 0), Position(0, -1)}
            broker.append("t", batches(2, 1), 1)
            await pipe.got(35)
            pipe.commit()
            assert broker.offsets("connect-orders") == {("t", 0): 15, ("t", 1): 20}  # it is only looked at


async def test_the_own_group_comes_first() -> None:
    async with serving(1) as broker:
        broker.append("t", batches(0, 2))
        broker.group("connect-orders").offsets["t", 0] = 5, 0, ""
        broker.group("g").offsets["t", 0] = 12, 0, ""
        async with reading(broker, start=START, protocol="classic") as pipe:
            await pipe.got(8)
            assert_once(pipe, 8)


async def test_an_offset_that_retention_has_passed_begins_at_the_beginning() -> None:
    async with serving(1) as broker:
        broker.append("t", batches(0, 2))
        broker.trim("t", 10)
        broker.group("connect-orders").offsets["t", 0] = 5, 0, ""
        async with reading(broker, start=START) as pipe:
            await pipe.got(10)
            assert_once(pipe, 10)


async def test_an_offset_behind_the_log_stops_the_partition() -> None:
    async with serving(2) as broker:
        for partition in range(2):
            broker.append("t", batches(0, 2), partition)
        broker.group("connect-orders").offsets["t", 0] = 50, 0, ""
        async with reading(broker, start=START) as pipe:
            await pipe.got(20)
            await until(lambda: pipe.count("stopped") == 1, "the end of one partition")
            assert "group connect-orders has committed offset 50" in str(pipe.told)


def config(url: str, start: str, **more: Any) -> str:
    name = "" if url.startswith("tank") else 'subscription = "s"\n'
    return (
        f'[pipelines.p.source]\nurl = "{url}"\ntopics = ["t"]\n{name}start = {start}\n'
        '[pipelines.p.sink]\ntype = "discard"\n'
    )


def test_the_group_of_a_configuration() -> None:
    for key in ("group", "subscription"):
        start = parse_config(config("kafka://h", f'{{ {key} = "c" }}')).pipelines["p"].source.start
        assert start == Start("group", group="c")
        assert str(start) == "the offsets of group c"


def test_a_topic_may_be_called_like_the_key() -> None:
    text = config("pulsar://h", '{ subscription = "1:2" }').replace('["t"]', '["subscription"]')
    assert parse_config(text).pipelines["p"].source.start.kind == "positions"


@pytest.mark.parametrize(
    ("url", "start", "why"),
    [
        ("kafka://h", '{ group = "" }', "is empty"),
        ("kafka://h", '{ group = "c", "t-0" = "5" }', "names no partition"),
        ("pulsar://h", '{ subscription = "c" }', "Name it in subscription, and reading goes on there"),
        ("tubemq://h", '{ group = "c" }', "Name it in group, and reading goes on there"),
        ("tank://h", '{ group = "c" }', "keep no progress"),
    ],
)
def test_groups_that_are_refused(url: str, start: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_config(config(url, start))
