"""Pipelines of one file that get in each other's way: places within each other, one subscription twice."""

import pytest

from fastwire_daemon.config import parse_config
from tests.support.config_file import problem

WITHIN = "readers of that folder would find the files of both; use folders beside each other"
URL = {"pulsar": "pulsar://h", "kafka": "kafka://h", "tubemq": "tubemq://h", "tank": "tank://h"}


def pipeline(name: str, path: str, *, source: str = "", system: str = "kafka", **keys: str) -> str:
    """A pipeline of topic t by the group ``name``, unless ``keys`` say otherwise."""
    given = {"url": f'"{URL[system]}"', "topics": '["t"]', "start": '"earliest"', **keys}
    if system != "tank":
        given = {"group": f'"{name}"', **given}
    lines = [f"{key} = {value}" for key, value in given.items() if value]
    table = f"pipelines.{name}"
    sink = f'type = "parquet"\npath = "{path}"' if path else 'type = "discard"'
    return "\n".join([f"[{table}.source]", *lines, source, f"[{table}.sink]", sink, ""])


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ("/d/o", "/d/o/i", "f.toml:18: pipelines.b.sink.path: lies within sink.path of pipeline a"),
        ("/d/o/x/y", "/d/o", "f.toml:9: pipelines.a.sink.path: lies within sink.path of pipeline b"),
        ("/d/../d/o", "/d/o/i/", "f.toml:18: pipelines.b.sink.path: lies within sink.path of pipeline a"),
        ("s3://bucket", "s3://bucket/o", "f.toml:18: pipelines.b.sink.path: lies within sink.path of pipeline a"),
    ],
)
def test_places_within_each_other(one: str, two: str, message: str) -> None:
    assert problem(pipeline("a", one) + pipeline("b", two)) == f"{message}: {WITHIN}"


def test_places_beside_each_other() -> None:
    text = pipeline("a", "/d/o") + pipeline("b", "/d/other") + pipeline("c", "s3://bucket/o")
    assert len(parse_config(text + pipeline("d", "s3://bucket/o2"), {}).pipelines) == 4


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/d/o", "f.toml:12: spark.j.output.path: lies within sink.path of pipeline a"),
        ("/d/o/job/x", "f.toml:9: pipelines.a.sink.path: lies within output.path of job j"),
        ("/x", "f.toml:12: spark.j.output.dead_letters: lies within sink.path of pipeline a"),
    ],
)
def test_places_of_jobs_and_of_pipelines(path: str, message: str) -> None:
    job = """\
[spark.j]
source = { dataset = "/d/source" }
output = { path = "/d/o/job", dead_letters = "/x/bad", checkpoint = "/y/progress" }
"""
    text = pipeline("a", path) + job
    assert problem(text).partition(": readers")[0] == message
    assert len(parse_config(pipeline("a", "/d/other") + job, {}).spark) == 1


@pytest.mark.parametrize("system", ["pulsar", "kafka", "tubemq"])
@pytest.mark.parametrize("second", ["/d/b", ""])
def test_one_subscription_that_would_divide_a_topic(system: str, second: str) -> None:
    text = pipeline("a", "/d/a", system=system, group='"gr"') + pipeline("b", second, system=system, group='"gr"')
    topic = "persistent://public/default/t" if system == "pulsar" else "t"
    assert problem(text) == (
        f'f.toml:11: pipelines.b.source.group: "gr" is also that of pipeline a, which reads {topic} from the '
        "same brokers: each of the two would get a part of the records; give each a name of its own"
    )


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"topics": '["t", "u"]'}, {"topics": '["v", "u"]'}),
        ({"topics": "", "topics_pattern": '"u.*"'}, {"topics": '["u1"]'}),
        ({"topics": '["u1"]'}, {"topics": "", "topics_pattern": '"u.*"'}),
        ({"topics": "", "topics_pattern": '"u.*"'}, {"topics": "", "topics_pattern": '"u.*"'}),
        ({"url": '"kafka://a,b"'}, {"url": '"kafka://b,c"'}),
    ],
)
@pytest.mark.parametrize("system", ["pulsar", "kafka"])
def test_forms_of_one_topic(one: dict[str, str], two: dict[str, str], system: str) -> None:
    one, two = ({key: value.replace("kafka", system) for key, value in keys.items()} for keys in (one, two))
    text = pipeline("a", "/d/a", system=system, group='"gr"', **one)
    text += pipeline("b", "/d/b", system=system, group='"gr"', **two)
    assert "each of the two would get a part" in problem(text)


def test_a_partition_and_its_topic() -> None:
    def text(one: str, two: str) -> str:
        both = (("a", one), ("b", two))
        return "".join(
            pipeline(name, f"/d/{name}", system="pulsar", group='"gr"', topics=f'["{topic}"]') for name, topic in both
        )

    assert "each of the two" in problem(text("o", "o-partition-3"))
    assert parse_config(text("o-partition-2", "o-partition-3"), {})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({}, {"topics": '["u"]'}),
        ({}, {"group": '"h"'}),
        ({}, {"url": '"kafka://other"'}),
        ({}, {"topics": "", "topics_pattern": '"u.*"'}),
        ({"source": 'group_protocol = "none"'}, {"source": 'group_protocol = "none"'}),
    ],
)
def test_subscriptions_that_divide_nothing(one: dict[str, str], two: dict[str, str]) -> None:
    text = pipeline("a", "/d/a", **{"group": '"gr"', **one}) + pipeline("b", "/d/b", **{"group": '"gr"', **two})
    assert len(parse_config(text, {}).pipelines) == 2


def test_two_writers_of_one_dataset_divide_a_topic_on_purpose() -> None:
    text = pipeline("a", "/d/a", group='"gr"') + pipeline("b", "/d/../d/a", group='"gr"')
    assert len(parse_config(text, {}).pipelines) == 2


def test_brokers_of_tank_divide_nothing() -> None:
    text = pipeline("a", "/d/a", system="tank") + pipeline("b", "/d/b", system="tank")
    assert len(parse_config(text, {}).pipelines) == 2
