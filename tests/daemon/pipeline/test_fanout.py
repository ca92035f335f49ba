"""A dataset for each topic from one source: each record once in its own dataset, and one bad topic harms no other."""

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire.columns.chunk import Chunk
from fastwire.columns.split import split_chunks
from fastwire.coverage import Coverage
from fastwire.kafka.producing.payload import encode_block_batch, encode_values
from fastwire_daemon.config import PipelineConfig
from fastwire_daemon.dataset.deadletters.reader import dead_letters
from fastwire_daemon.pipeline import sinkfailures
from fastwire_daemon.pipeline.failure import PipelineFailed
from fastwire_daemon.pipeline.fanout import dealing, landing
from fastwire_daemon.pipeline.fanout import fanout as module
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.errors import SinkFailedError
from fastwire_daemon.runtime.health import Health
from fastwire_daemon.runtime.logs import get_logger
from fastwire_daemon.sinks.base import Sink
from tests.support.fanout_scene import FanOutScene, serving, until, values_in

SYSTEMS = ("kafka", "pulsar", "tank", "tubemq")
OPEN = RollPolicy(max_age_s=3600.0, max_idle_s=3600.0)
TOPICS = ("shop_orders", "shop_payments", "audit")


@pytest.fixture(params=SYSTEMS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FanOutScene]:
    with serving(request.param, tmp_path) as scene:
        yield scene


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[FanOutScene]:
    with serving("kafka", tmp_path) as scene:
        yield scene


def filled(scene: FanOutScene, *topics: str) -> None:
    for topic in topics or TOPICS:
        if topic not in scene.produced:
            scene.create(topic)
        scene.produce(topic, 100)
        scene.produce(topic, 50, partition=1)


async def test_each_topic_has_a_dataset(scene: FanOutScene) -> None:
    filled(scene)
    await scene.land(scene.config(*TOPICS))
    scene.assert_whole()
    assert sorted(each.name for each in scene.root.iterdir()) == sorted(map(scene.folder, TOPICS))


async def test_a_later_run_goes_on_in_each_dataset(scene: FanOutScene) -> None:
    config = scene.config(*TOPICS)
    filled(scene)
    await scene.land(config)
    filled(scene, "audit")
    await scene.land(config)
    scene.assert_whole()


class Guarded:
    """A sink that refuses, or waits, as a test says; all else is that of the dataset."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.refuses: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.opened = self.closed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self) -> Coverage:
        self.opened += 1
        if self.refuses is not None:
            raise self.refuses
        return self._inner.open()  # type: ignore[no-any-return]

    def write(self, chunk: Chunk) -> None:
        self._inner.write(chunk)

    def commit(self) -> Coverage:
        assert self.gate.wait(60)
        if self.refuses is not None:
            raise self.refuses
        return self._inner.commit()  # type: ignore[no-any-return]

    def close(self) -> None:
        self.closed += 1
        self._inner.close()


def guarded(scene: FanOutScene) -> dict[str, Guarded]:
    """Have the sinks of the scene guarded; return them by topic as they are made."""
    made: dict[str, Guarded] = {}

    def wrap(sink: Sink, config: PipelineConfig) -> Sink:
        made[Path(str(config.sink.path)).name] = guard = Guarded(sink)
        return guard

    scene.wrap = wrap
    return made


async def test_a_sink_that_fails_holds_up_no_other(scene: FanOutScene) -> None:
    sinks = guarded(scene)
    filled(scene)
    bad = scene.folder("audit")
    async with scene.running(scene.config(*TOPICS)) as fanout:
        await until(scene.whole, fanout.status)
        sinks[bad].refuses = SinkFailedError("its disk is gone")
        for _ in range(3):
            filled(scene)
            await until(lambda: scene.whole("shop_orders", "shop_payments"), fanout.status)
        assert not scene.whole("audit")
        assert fanout.ready
        await until(lambda: fanout.health is Health.DEGRADED, fanout.status)
        assert "its disk is gone" in fanout.status()["datasets"][topic_of(fanout, "audit")]["degraded"][0]
        assert any("1 of 3 datasets is degraded" in each for each in fanout.impairments)
        sinks[bad].refuses = None
        await until(scene.whole, fanout.status)
    scene.assert_whole()


def topic_of(fanout: module.FanOut, topic: str) -> str:
    return next(str(each) for each in fanout.status()["datasets"] if each.rpartition("/")[2] == topic)


async def with_a_foreign_dataset(scene: FanOutScene) -> None:
    """Land two topics; the dataset of the third one is of another cluster."""
    root = scene.root
    filled(scene)
    scene.root = root / "elsewhere"
    await scene.land(scene.config("audit", cluster="elsewhere", subscription="other"))
    scene.root = root
    await scene.land(scene.config("shop_orders", "shop_payments"))
    (root / "elsewhere" / "audit").rename(root / "audit")
    filled(scene)


async def test_a_dataset_that_is_refused_is_tried_again(kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "FIRST_S", 0.2)
    await with_a_foreign_dataset(kafka)
    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(lambda: kafka.whole("shop_orders", "shop_payments"), fanout.status)
        await until(lambda: "audit" in fanout.status()["stopped_datasets"], fanout.status)
        why = fanout.status()["stopped_datasets"]["audit"]
        assert "elsewhere" in why and "cluster" in why
        assert not fanout.figures.rows_committed % 150
        shutil.rmtree(kafka.root / "audit")
        await until(kafka.whole, fanout.status)
        assert fanout.status()["stopped_datasets"] == {}
    kafka.assert_whole()


async def test_a_run_until_the_end_fails_for_a_refused_dataset_and_lands_the_others(kafka: FanOutScene) -> None:
    await with_a_foreign_dataset(kafka)
    with pytest.raises(PipelineFailed, match=r"1 of 3 datasets have stopped: audit: .*elsewhere"):
        await kafka.land(kafka.config(*TOPICS))
    kafka.assert_whole("shop_orders", "shop_payments")


async def test_a_sink_rests_only_after_a_whole_turn_without_work(
    kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a start with many topics, each sink has nothing to do between its first position and its first records."""
    monkeypatch.setattr(module, "REST_S", 1e9)  # only the turns of this test
    for topic in TOPICS:
        kafka.create(topic)
    async with kafka.running(kafka.config(*TOPICS)) as fanout:

        def idle() -> int:
            return sum(each.pipeline.is_idle and bool(each.figures.commits) for each in fanout.parts.running())

        await until(lambda: idle() == len(TOPICS), fanout.status)
        pipelines = [each.pipeline for each in fanout.parts.running()]
        fanout.parts.rest(0.0, 1)
        assert all(each.quiet and not each._may_rest for each in pipelines)
        fanout.parts.rest(0.0, 1)
        assert sum(each._may_rest for each in pipelines) == len(TOPICS) - 1


async def test_a_sink_that_waits_among_others_at_rest(kafka: FanOutScene, caplog: pytest.LogCaptureFixture) -> None:
    """The pipeline as a whole does not wait: else it would seem to write again with the next record of any topic."""
    caplog.set_level("INFO")
    sinks = guarded(kafka)
    filled(kafka)

    def told(event: str) -> int:
        return sum(record.getMessage().startswith(event) for record in caplog.records)

    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(kafka.whole, fanout.status)
        sinks["audit"].refuses = SinkFailedError("its disk is gone")
        kafka.produce("audit", 10)
        pipelines = {each.topic: each.pipeline for each in fanout.parts.running()}
        await until(lambda: pipelines["audit"].waiting, fanout.status)
        await until(lambda: [each.rest() for topic, each in pipelines.items() if topic != "audit"], fanout.status)
        await until(lambda: sum(each.at_rest for each in pipelines.values()) == 2, fanout.status)
        fanout.look()
        fanout.look()
        assert (fanout.waiting, fanout.waits_for) == (None, None)
        assert (told("a dataset waits:"), told("a dataset waits no more")) == (1, 0)
        sinks["audit"].refuses = None
        await until(kafka.whole, fanout.status)
        await until(lambda: not pipelines["audit"].waiting, fanout.status)
        fanout.look()
        assert told("a dataset waits no more") == 1
    kafka.assert_whole()
    said: Any = [record for record in caplog.records if record.getMessage().startswith("a dataset waits")]
    assert [each.fields["pipeline"] for each in said] == ["p", "p"]


async def test_log_lines_name_the_pipeline_whose_source_and_the_dataset_whose_sink_they_are_of(
    kafka: FanOutScene, caplog: pytest.LogCaptureFixture
) -> None:
    """The source is one for all, also where the call of one dataset has made it work."""
    caplog.set_level("INFO")

    class Telling(Guarded):
        def commit(self) -> Coverage:
            get_logger("decode").info("columns are added")
            return super().commit()

    kafka.wrap = lambda sink, config: Telling(sink)
    filled(kafka)
    async with kafka.running(kafka.config(**following(kafka))) as fanout:
        await until(kafka.whole, fanout.status)
        kafka.broker.delete_topic("audit")
        kafka.broker.create_topic("audit", 2)
        filled(kafka)
        await until(kafka.whole, fanout.status)
    lines: Any = [record for record in caplog.records if hasattr(record, "fields")]
    of_source = {(each.message, each.fields.get("pipeline")) for each in lines if each.name == "fastwire.source"}
    assert ("topic was deleted and made again", "p") in of_source
    assert {pipeline for _, pipeline in of_source} == {"p"}
    of_sinks = {each.fields.get("pipeline") for each in lines if each.name == "fastwire.decode"}
    assert of_sinks == {f"p/{topic}" for topic in TOPICS}


async def test_an_internal_error_has_a_name_where_it_has_no_words(kafka: FanOutScene) -> None:
    filled(kafka)

    def wrap(sink: Sink, config: PipelineConfig) -> Sink:
        guard = Guarded(sink)
        guard.refuses = AssertionError() if "audit" in str(config.sink.path) else None
        return guard

    kafka.wrap = wrap
    with pytest.raises(PipelineFailed, match="1 of 3 datasets have stopped: audit: internal error: AssertionError"):
        await kafka.land(kafka.config(*TOPICS))
    kafka.assert_whole("shop_orders", "shop_payments")


async def test_a_slow_dataset_is_paused_and_the_others_land(
    scene: FanOutScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.2)
    sinks = guarded(scene)
    filled(scene)
    async with scene.running(scene.config(*TOPICS)) as fanout:
        await until(scene.whole, fanout.status)
        sinks[scene.folder("audit")].gate.clear()
        try:
            for _ in range(10):
                filled(scene)
                await until(lambda: scene.whole("shop_orders", "shop_payments"), fanout.status)
            topic = topic_of(fanout, "audit")
            await until(lambda: fanout.status()["datasets"][topic]["state"] == "slow", fanout.status)
            assert fanout.status()["queued_chunks"] == 0
        finally:
            sinks[scene.folder("audit")].gate.set()
        await until(scene.whole, fanout.status)
    scene.assert_whole()


async def test_a_diverged_or_void_roll_is_that_of_one_dataset(scene: FanOutScene) -> None:
    """A roll that is dropped is read again, and those of others go on."""
    filled(scene)
    async with scene.running(scene.config(*TOPICS), policy=OPEN) as fanout:
        await until(lambda: fanout.figures.rows_received == 450, fanout.status)
        await until(lambda: not fanout.queued, fanout.status)
        fanout.on_diverged(0, "a test says so")
        first = fanout.source.logs[0].topic
        await until(lambda: fanout.figures.rows_received == 600, fanout.status)
        others = [each for each in fanout.status()["datasets"] if each != first]
        assert len(others) == 2
    scene.assert_whole()


async def test_topics_that_come_later_have_datasets(scene: FanOutScene) -> None:
    if scene.system == "tubemq":
        pytest.skip("its topics are named")
    filled(scene, "audit")
    age = following(scene)
    config = scene.config(**age)
    async with scene.running(config) as fanout:
        await until(scene.whole, fanout.status)
        filled(scene, "shop_orders")
        await until(scene.whole, fanout.status)
    scene.assert_whole()


def following(scene: FanOutScene) -> dict[str, Any]:
    """The keys with which a source soon finds what has become of its topics."""
    return {"metadata_max_age": "200ms"} if scene.system in ("kafka", "tank") else {}


async def test_a_topic_that_is_deleted_harms_no_other(scene: FanOutScene) -> None:
    filled(scene)
    keys: dict[str, Any] = following(scene)
    named = TOPICS if scene.system == "tubemq" else ()
    async with scene.running(scene.config(*named, **keys)) as fanout:
        await until(scene.whole, fanout.status)
        scene.broker.delete_topic("audit")
        for _ in range(3):
            filled(scene, "shop_orders", "shop_payments")
            await until(scene.whole, fanout.status)
        assert fanout.ready
    scene.assert_whole()


async def test_a_topic_that_is_made_again_goes_on_in_its_dataset(scene: FanOutScene) -> None:
    """Another incarnation is another log of the same dataset."""
    if scene.system in ("tank", "tubemq"):
        pytest.skip("its topics have no incarnations")
    filled(scene)
    async with scene.running(scene.config(**following(scene))) as fanout:
        await until(scene.whole, fanout.status)
        scene.broker.delete_topic("audit")
        scene.broker.create_topic("audit", 2)
        filled(scene)
        await until(scene.whole, fanout.status)
        assert fanout.health is Health.HEALTHY, fanout.status()
    scene.assert_whole()


async def test_a_topic_that_comes_back_later_goes_on_in_its_dataset(scene: FanOutScene) -> None:
    if scene.system in ("tank", "tubemq"):
        pytest.skip("its topics have no incarnations")
    filled(scene)
    config = scene.config(**following(scene))
    await scene.land(config)
    scene.broker.delete_topic("audit")
    filled(scene, "shop_orders")
    await scene.land(config)
    scene.broker.create_topic("audit", 2)
    filled(scene)
    await scene.land(config)
    scene.assert_whole()


async def test_a_topic_that_has_lost_its_records_stops_for_itself(scene: FanOutScene) -> None:
    """A system without incarnations tells another topic of the name by its positions: its dataset says so aloud."""
    if scene.system not in ("tank", "tubemq"):
        pytest.skip("its topics have incarnations")
    filled(scene)
    async with scene.running(scene.config(*TOPICS, **following(scene))) as fanout:
        await until(scene.whole, fanout.status)
        scene.broker.delete_topic("audit")
        scene.broker.create_topic("audit", 2)
        scene.broker.produce("audit", [b"another"])
        for _ in range(3):
            filled(scene, "shop_orders", "shop_payments")
            await until(lambda: scene.whole("shop_orders", "shop_payments"), fanout.status)
        await until(lambda: fanout.health is Health.DEGRADED, fanout.status)
        assert any("audit" in each for each in fanout.impairments), fanout.impairments
    scene.assert_whole("shop_orders", "shop_payments")


async def test_a_sink_without_work_is_closed_and_opened_again(
    kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_S", 0.0)
    monkeypatch.setattr(module, "MOST_OPEN", 0)
    sinks = guarded(kafka)
    filled(kafka)
    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(kafka.whole, fanout.status)
        await until(lambda: fanout.status()["dataset_states"] == {"resting": 3}, fanout.status)
        before, other = sinks["audit"].opened, sinks["shop_orders"].opened
        filled(kafka, "audit")
        await until(kafka.whole, fanout.status)
        await until(lambda: sinks["audit"].closed == before + 1, fanout.status)
        assert sinks["audit"].opened == before + 1
        assert sinks["shop_orders"].opened == other
    kafka.assert_whole()


async def test_few_sinks_stay_open_without_work(kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_S", 0.0)
    monkeypatch.setattr(module, "MOST_OPEN", 2)
    sinks = guarded(kafka)
    filled(kafka)
    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(kafka.whole, fanout.status)
        await until(lambda: fanout.status()["dataset_states"] == {"running": 2, "resting": 1}, fanout.status)
        (rests,) = (topic for topic in TOPICS if fanout.parts[topic].state == "resting")
        opened = {topic: sinks[topic].opened for topic in TOPICS}
        filled(kafka, rests)
        await until(kafka.whole, fanout.status)
        await until(lambda: fanout.status()["dataset_states"] == {"running": 2, "resting": 1}, fanout.status)
        assert fanout.parts[rests].state == "running", "another one has had nothing to do for longer"
        assert sinks[rests].opened == opened[rests] + 1
        assert sum(sinks[topic].opened for topic in TOPICS) == sum(opened.values()) + 1
    kafka.assert_whole()


async def test_a_resting_dataset_that_cannot_be_opened_is_degraded_and_fills_no_memory(
    scene: FanOutScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_S", 0.0)
    monkeypatch.setattr(module, "MOST_OPEN", 0)
    monkeypatch.setattr(sinkfailures, "MOST_S", 0.5)
    sinks = guarded(scene)
    filled(scene)
    async with scene.running(scene.config(*TOPICS)) as fanout:
        await until(scene.whole, fanout.status)
        await until(lambda: fanout.status()["dataset_states"] == {"resting": 3}, fanout.status)
        sinks[scene.folder("audit")].refuses = OSError("its disk is gone")
        for _ in range(3):
            filled(scene)
            await until(lambda: scene.whole("shop_orders", "shop_payments"), fanout.status)
        await until(lambda: fanout.health is Health.DEGRADED, fanout.status)
        states = {"degraded": 1, "resting": 2}
        await until(lambda: fanout.status()["dataset_states"] == states, fanout.status)
        assert fanout.status()["queued_chunks"] == 0
        told = fanout.status()["datasets"][topic_of(fanout, "audit")]
        assert "its disk is gone" in told["degraded"][0]
        sinks[scene.folder("audit")].refuses = None
        await until(scene.whole, fanout.status)
        await until(lambda: fanout.health is Health.HEALTHY, fanout.status)
    scene.assert_whole()


async def test_a_dataset_that_could_never_be_opened_is_degraded(kafka: FanOutScene) -> None:
    sinks = guarded(kafka)
    filled(kafka)
    wrap = kafka.wrap

    def refusing(sink: Sink, config: PipelineConfig) -> Sink:
        guard = wrap(sink, config)
        if (name := Path(str(config.sink.path)).name) == "audit":
            sinks[name].refuses = SinkFailedError("its disk is gone")
        return guard

    kafka.wrap = refusing
    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(lambda: kafka.whole("shop_orders", "shop_payments"), fanout.status)
        await until(lambda: fanout.health is Health.DEGRADED, fanout.status)
        assert any("its disk is gone" in each for each in fanout.impairments)
        sinks["audit"].refuses = None
        await until(kafka.whole, fanout.status)
    kafka.assert_whole()


async def test_topics_whose_datasets_would_meet(kafka: FanOutScene) -> None:
    filled(kafka, "shop.orders", "shop_orders", "audit")
    config = kafka.config("shop.orders", "shop_orders", "audit")
    with pytest.raises(PipelineFailed, match=r"shop_orders and shop.orders would have datasets of one name"):
        await kafka.land(config)
    kafka.assert_whole("shop.orders", "audit")
    named = kafka.config("shop.orders", "shop_orders", "audit", sink={"names": {"shop_orders": "orders2"}})
    await kafka.land(named)
    assert kafka.landed("shop_orders", "orders2") == kafka.produced["shop_orders"]


async def test_a_dataset_that_exists_keeps_its_name(kafka: FanOutScene) -> None:
    filled(kafka, "shop_orders")
    await kafka.land(kafka.config())
    filled(kafka, "shop.orders")
    with pytest.raises(PipelineFailed, match=r"shop.orders and shop_orders would have datasets of one name"):
        await kafka.land(kafka.config())
    kafka.assert_whole("shop_orders")


async def test_a_dataset_of_another_topic_is_refused(kafka: FanOutScene) -> None:
    filled(kafka, "a", "b")
    await kafka.land(kafka.config("a", sink={"names": {"a": "x"}}))
    with pytest.raises(PipelineFailed, match="has records of a, not of b"):
        await kafka.land(kafka.config("b", sink={"names": {"b": "x"}}))


async def test_the_memory_of_all_datasets_is_bounded(kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rolls end early where all of them together hold too much, whatever their own limits are."""
    topics = [f"t{number}" for number in range(8)]
    kafka.create(*topics)
    for topic in topics:
        kafka.produced[topic].update((str(0), b"%d:" % number + b"." * 4000) for number in range(1000))
        kafka.broker.produce(topic, [b"%d:" % number + b"." * 4000 for number in range(1000)])
    monkeypatch.setattr(module, "HOLD_SHARE", 16)
    async with kafka.running(kafka.config(), policy=OPEN) as fanout:
        await until(lambda: fanout.figures.rows_received == 8000, fanout.status)
        await until(lambda: fanout._held < (64 << 20) // 16, fanout.status)
        assert fanout.figures.commits > len(topics)  # beside those of first positions
    kafka.assert_whole()


async def test_dead_letters_go_to_the_datasets_of_their_topics(
    kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    split: list[int] = []

    def noting(chunks: list[Chunk], groups: Any) -> Any:
        parts = split_chunks(chunks, groups)
        split.append(sum(len(part.dead_letters) for part in parts.values()))
        return parts

    monkeypatch.setattr(dealing, "split_chunks", noting)
    filled(kafka)
    for topic in ("audit", "shop_orders"):
        batch = encode_block_batch(encode_values([topic.encode()]), 1, base_timestamp=1)
        kafka.broker.append_damaged(topic, batch, 8 * (len(batch) - 1))  # type: ignore[attr-defined]
    async with kafka.running(kafka.config(*TOPICS)) as fanout:
        await until(lambda: fanout.figures.dead_letters == 2 and kafka.whole(), fanout.status)
    found = {
        topic: [(each.topic, each.partition) for each in dead_letters(str(kafka.root / topic))] for topic in TOPICS
    }
    assert sum(split) > 0
    assert found == {"shop_orders": [("shop_orders", "0")], "shop_payments": [], "audit": [("audit", "0")]}
    kafka.assert_whole()


async def test_chunks_of_many_topics_are_dealt(kafka: FanOutScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many topics come in one chunk, which no dataset may get as it is."""
    split: list[int] = []

    def noting(chunks: list[Chunk], groups: Any) -> Any:
        parts = split_chunks(chunks, groups)
        split.append(len(parts))
        spans = Counter(span for chunk in chunks for span in chunk.spans())
        assert Counter(span for part in parts.values() for span in part.spans()) == spans
        assert sum(part.rows for part in parts.values()) == sum(chunk.rows for chunk in chunks)
        return parts

    monkeypatch.setattr(dealing, "split_chunks", noting)
    topics = [f"t{number}" for number in range(20)]
    kafka.create(*topics)
    for topic in topics * 3:
        kafka.produce(topic, 7)
        kafka.produce(topic, 5, partition=1)
    await kafka.land(kafka.config())
    kafka.assert_whole()
    assert max(split) > 1
    assert {row[0] for topic in topics for row in values_in(kafka.root / topic)} == set(topics)


def test_a_column_of_one_topic_is_made_without_pandas() -> None:
    program = """
import sys
import pyarrow as pa
from fastwire_daemon.pipeline.fanout.dealing import _same
for kind in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
    column = _same("Übung", 3, pa.field("topic", kind))
    column.validate(full=True)
    assert column.type == kind and column.to_pylist() == ["Übung"] * 3
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
