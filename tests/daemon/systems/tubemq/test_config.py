"""The configuration of TubeMQ: its own keys, what the protocol lacks, and what is not there yet."""

import pytest

from fastwire.position import Position
from fastwire_daemon.config import Start, TopicChoice, parse_config
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.tubemq.config import NO_PATTERN, NO_SPARK, NO_TIME, TubeMQSourceConfig
from tests.support.config_file import problems

FILE = """\
[pipelines.p.source]
url = "tubemq://h"
group = "g1"
{key}
[pipelines.p.sink]
type = "discard"
"""
SPARK = """\
[spark.s.source]
url = "tubemq://h"
topics = ["t"]
[spark.s]
checkpoint = "/c"
[spark.s.sink]
format = "parquet"
path = "/p"
"""
READ = 'topics = ["t"]\nstart = "earliest"'
EARLIEST = 'start = "earliest"'


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('topics = ["t"]\nstart = "2026-01-01T00:00:00Z"', f"start: {NO_TIME}"),
        ('topics = ["t"]\nstart = "-24h"', f"start: {NO_TIME}"),
        (f'{EARLIEST}\ntopics_pattern = "t.*"', f"topics_pattern: {NO_PATTERN}"),
        (f"{READ}\nnode_id = 0", 'node_id: has no effect without balance = "client"'),
        (
            f'{READ}\nbalance = "client"\nsource_count = 2\nnode_id = 2',
            "node_id: must be below source_count, which is 2",
        ),
        (f'{READ}\nfilters = {{ u = ["x"] }}', "filters.u: is not among topics"),
    ],
)
def test_mistakes(key: str, said: str) -> None:
    line = 4 + key.count("\n")
    assert problems(FILE.format(key=key)) == [f"f.toml:{line}: pipelines.p.source.{said}"]


@pytest.mark.parametrize("way", ["token = 'x'", "token_file = 'x'", "oauth2 = { key_file = 'x' }"])
def test_a_login_is_a_user(way: str) -> None:
    (problem,) = problems(FILE.format(key=f"{READ}\nauth = {{ {way} }}"))
    assert problem.endswith("is not supported for tubemq: use user, with password or password_file")


@pytest.mark.parametrize("group", ["g", "1g", "a@b", "a#b", "a:b", "a b"])
def test_groups_that_are_none(group: str) -> None:
    (problem,) = problems(FILE.format(key=READ).replace('"g1"', f'"{group}"'))
    assert problem.startswith("f.toml:3: pipelines.p.source.group: is not a group of TubeMQ")


def test_a_job_of_spark_is_sent_to_the_dataset() -> None:
    assert f"f.toml:2: spark.s.source.url: {NO_SPARK}" in problems(SPARK)


def test_keys() -> None:
    config = parse_config(FILE.format(key=f'{READ}\nfilters = {{ t = ["b", "a"] }}\nheartbeat = "5s"'))
    source = TubeMQSourceConfig.of(config.pipelines["p"].source)
    assert (source.subscription, source.heartbeat, source.filters) == ("g1", 5.0, {"t": ("b", "a")})


def test_what_from_takes() -> None:
    tubemq = system_named("tubemq")
    topics = TopicChoice(("t",))
    assert tubemq.start_of("latest", topics) == Start("latest")
    with pytest.raises(ValueError, match="finds no message by its time"):
        tubemq.start_of("-1h", topics)
    places = parse_config(FILE.format(key='topics = ["t"]\nstart = { "t/1:0" = "84+17" }')).pipelines["p"].source.start
    assert places.positions == {"t/1:0": Position(84, 17)}
