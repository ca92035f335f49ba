"""The configuration of TANK: its own keys, what it lacks, and what ``--from`` takes."""

import pytest

from fastwire.grammar import parse_name_pattern
from fastwire.position import Position
from fastwire_daemon.config import Start, TopicChoice, parse_config, parse_connection
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.tank.config import NO_TIME
from fastwire_daemon.systems.tank.settings import client_fields
from tests.support.config_file import problems

FILE = """\
[pipelines.p.source]
url = "tank://h"
topics = ["t"]
{key}
[pipelines.p.sink]
type = "discard"
"""
OTHERS = "is not supported for tank: it is a key for pulsar, kafka and tubemq"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('start = "2026-01-01T00:00:00Z"', f"start: {NO_TIME}"),
        ('start = "-24h"', f"start: {NO_TIME}"),
        ('start = "earliest"\nauth.token = "x"', f"auth: {OTHERS}; brokers of TANK have no login"),
        ('start = "earliest"\ntls.verify = false', f"tls: {OTHERS}; the protocol has no TLS, use a tunnel"),
        ('start = "earliest"\ngroup = "g"', f"group: {OTHERS}; brokers of TANK keep no progress: the dataset does"),
    ],
)
def test_mistakes(key: str, said: str) -> None:
    line = 4 + key.count("\n")
    assert problems(FILE.format(key=key)) == [f"f.toml:{line}: pipelines.p.source.{said}"]


def test_a_url_with_tls_is_the_only_mistake() -> None:
    said = problems(FILE.format(key='start = "earliest"').replace("tank:", "tank+ssl:"))
    assert said == ['f.toml:2: pipelines.p.source.url: "tank+ssl://": TANK has no TLS, use tank://']


@pytest.mark.parametrize("key", ['start = "latest"\nincarnation = { t = 1 }', 'start = { "t/0" = "1234" }'])
def test_keys(key: str) -> None:
    assert parse_config(FILE.format(key=key)).pipelines["p"].source.system == "tank"


def test_what_from_takes() -> None:
    tank = system_named("tank")
    topics = TopicChoice(("t",))
    assert tank.start_of("latest", topics) == Start("latest")
    assert tank.start_of("17", topics) == Start("latest", offset=17)
    places = {"t/0": Position(5, 0), "t/2": Position(7, 0)}
    assert tank.start_of("0=5,2=7", topics) == Start("latest", positions=places)
    with pytest.raises(ValueError, match="finds no message by its time"):
        tank.start_of("-1h", topics)
    with pytest.raises(ValueError, match="names partitions"):
        tank.start_of("0=5", TopicChoice((), parse_name_pattern("t.*")))


def test_the_client_id_is_that_of_the_configuration() -> None:
    assert client_fields(parse_connection({"url": "tank://h", "client_id": "me"}))["client_id"] == "me"
    assert client_fields(parse_connection({"url": "tank://h"}))["client_id"].startswith("fastwire-")
