"""Topics without a record whose datasets have the columns of their first one: nothing is wrong until it comes."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire_daemon.config import PipelineConfig, parse_config
from fastwire_daemon.pipeline import sinkfailures
from fastwire_daemon.pipeline.fanout import fanout as module
from fastwire_daemon.runtime.health import Health
from tests.support.fanout_scene import FanOutScene, serving, until

INFERRED = '[pipelines.p.decode]\nformat = "json"\nschema = "infer"\n'


@pytest.fixture(params=("kafka", "pulsar", "tank", "tubemq"))
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FanOutScene]:
    with serving(request.param, tmp_path) as scene:
        yield scene


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinkfailures, "FIRST_S", 0.05)
    monkeypatch.setattr(sinkfailures, "MOST_LOOK_S", 0.1)
    monkeypatch.setattr(sinkfailures, "MOST_S", 0.1)


def config(scene: FanOutScene, *topics: str, **source: Any) -> PipelineConfig:
    return parse_config(INFERRED + scene.text(*topics, **source)).pipelines["p"]


def produce(scene: FanOutScene, topic: str, value: bytes) -> None:
    scene.broker.produce(f"{topic}-partition-0" if scene.system == "pulsar" else topic, [value])


def rows(scene: FanOutScene, topic: str) -> list[dict[str, Any]]:
    files = (scene.root / scene.folder(topic)).glob("*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def states(fanout: module.FanOut) -> dict[str, int]:
    fanout.look()
    return dict(fanout.status()["dataset_states"])


async def test_an_empty_topic_is_no_fault_and_lands_its_first_record(
    scene: FanOutScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of a run until the end nor of a daemon."""
    caplog.set_level(logging.INFO, "fastwire")
    scene.create("full", "empty", partitions=1)
    produce(scene, "full", b'{"id": 1}')
    own = config(scene, "full", "empty")
    await scene.land(own)
    assert (rows(scene, "full"), rows(scene, "empty")) == ([{"id": 1}], [])
    async with scene.running(own) as fanout:
        await until(lambda: states(fanout) == {"running": 1, "empty": 1}, fanout.status)
        await until(lambda: rows(scene, "full") and fanout.ready, fanout.status)
        await until(lambda: (fanout.health, fanout.impairments) == (Health.HEALTHY, []), fanout.status)
        (told,) = (each for each in fanout.status()["datasets"].values() if each["state"] == "empty")
        assert told["awaits"].endswith("empty yet: the dataset begins with the first")
        states(fanout)
        produce(scene, "empty", b'{"name": "Ada"}')
        await until(lambda: rows(scene, "empty") == [{"name": "Ada"}], fanout.status)
        await until(lambda: states(fanout) == {"running": 2}, fanout.status)
    named = [record.__dict__["fields"]["names"] for record in caplog.records if "no record yet" in record.message]
    assert [name.rpartition("/")[2] for names in named for name in names] == ["empty"], "it is said once"
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_pipeline_of_empty_topics_is_ready_and_ends_well(scene: FanOutScene) -> None:
    scene.create("one", "other", partitions=1)
    own = config(scene, "one", "other")
    await scene.land(own)
    async with scene.running(own) as fanout:
        await until(lambda: states(fanout) == {"empty": 2}, fanout.status)
        await until(lambda: fanout.ready, fanout.status)
        await until(lambda: fanout.health is Health.HEALTHY, fanout.status)
    assert not [*scene.root.iterdir()]


async def test_records_without_fields_are_a_fault(scene: FanOutScene) -> None:
    scene.create("one", "full", partitions=1)
    produce(scene, "one", b"no JSON")
    produce(scene, "full", b'{"id": 1}')
    async with scene.running(config(scene, "one", "full")) as fanout:
        await until(lambda: states(fanout) == {"running": 1, "degraded": 1}, fanout.status)
        await until(lambda: "none of 1 records" in str(fanout.impairments), lambda: str(fanout.impairments))


async def test_an_empty_topic_that_is_deleted_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.kafka.source.topics.MISSING_S", 0.2)
    with serving("kafka", tmp_path) as scene:
        scene.create("one", "other", partitions=1)
        async with scene.running(config(scene, metadata_max_age="200ms")) as fanout:
            await until(lambda: states(fanout) == {"empty": 2}, fanout.status)
            scene.broker.delete_topic("one")
            await until(lambda: fanout.status()["source"]["partitions"] == {"assigned": 1, "gone": 1}, fanout.status)
            await until(lambda: fanout.parts["one"].pipeline is None, fanout.status)
            await until(lambda: states(fanout) == {"empty": 2}, fanout.status)
