"""Streams whose topics and partitions come and go, end early, or are others of the same name."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")


from fastwire.position import Position
from fastwire_daemon.net.endpoint import LinkLost
from fastwire_daemon.spark.source.ranges import DataLossError
from tests.daemon.spark.source.datasource.playing import through_text
from tests.support.spark_scene import SCENES, KafkaScene, Serve, TankScene, serve


def test_new_partitions_begin_at_their_beginning(serving: Serve, query: Any) -> None:
    with serving() as scene:
        scene.create("many", 1)
        scene.append(0, 3, "many", 0)
        one = query(scene, subscribe="many", topicRefreshIntervalMs="0", **scene.group("s"))
        scene.append(3, 3, "many", 0)
        assert one.go() == [3, 4, 5]
        scene.grow("many", 2)
        scene.append(100, 3, "many", 1)
        assert one.plan()
        assert one.ends[-1]["new"] == {scene.name("many"): {"1": scene.text(scene.beginning)}}
        one.stop()
        scene.append(103, 3, "many", 1)
        one.start()  # the same again, whatever is there by now
        assert one.read[-1] == [100, 101, 102]
        assert one.go() == [103, 104, 105]
        assert "new" not in one.ends[-1]


def test_a_topic_that_is_deleted(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        scene.create("u")
        strict = query(scene, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0")
        lenient = query(
            scene, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0", failOnDataLoss="false"
        )
        assert strict.go() == lenient.go() == list(range(10))
        scene.append(100, 1, "u")
        scene.delete("t")
        with pytest.raises(DataLossError, match=f"{scene.t}: does not exist any more"):
            strict.plan()
        assert lenient.go() == [100]
        assert lenient.at["p"].keys() == {scene.topic, scene.name("u")}  # never dropped without a word
        scene.create("t")
        scene.append(200, 2)
        assert lenient.go() == [200, 201]


def test_a_topic_that_is_made_again_at_once(query: Any) -> None:
    """Kafka's topics have ids; all partitions begin anew, also those that have nothing yet."""
    with serve(KafkaScene()) as scene:
        scene.create("many", 2)
        scene.append(0, 10, "many", 0)
        scene.append(100, 10, "many", 1)
        strict, lenient = (
            query(scene, subscribe="many", startingOffsets="earliest", failOnDataLoss=f) for f in ("true", "false")
        )
        assert strict.go() == lenient.go() == [*range(10), *range(100, 110)]
        scene.append(10, 1, "many", 0)
        assert strict.plan()
        scene.delete("many")
        scene.create("many", 2)
        scene.append(20, 3, "many", 0)
        for again in (strict.run, strict.plan):
            with pytest.raises(DataLossError, match="many: was deleted and made again"):
                again()
        assert lenient.go() == [20, 21, 22]
        assert lenient.ends[-1]["new"] == {"many": {"0": "0", "1": "0"}}
        assert lenient.ends[-1]["p"] == {"many": {"0": "30@0", "1": "0"}}
        scene.append(120, 12, "many", 1)
        assert lenient.go() == list(range(120, 132))
        assert "new" not in lenient.ends[-1]


def test_a_topic_that_is_made_again_without_an_identity(query: Any) -> None:
    """TANK's topics have no ids: a log that ends before what was read is another one, from its beginning on."""
    with serve(TankScene()) as scene:
        scene.create("many", 2)
        scene.append(0, 10, "many", 0)
        scene.append(100, 10, "many", 1)
        more = {"subscribe": "many", "startingOffsets": "earliest"}
        strict, lenient, ending = (query(scene, failOnDataLoss=fail, **more) for fail in ("true", "false", "false"))
        assert strict.go() == lenient.go() == ending.go() == [*range(10), *range(100, 110)]
        scene.delete("many")
        scene.create("many", 2)
        scene.append(20, 3, "many", 0)
        ending.reader.prepareForTriggerAvailableNow()
        with pytest.raises(DataLossError, match="many partition 0 ends at 31, before 101, up to where it was read"):
            strict.plan()
        for one in (lenient, ending):
            assert one.go() == [20, 21, 22]
            assert one.ends[-1]["new"] == {"many": {"0": "1", "1": "1"}}
        scene.append(120, 12, "many", 1)
        assert lenient.go() == list(range(120, 132))
        # So a table tells the positions of one log from those of the other.
        assert [each.get("inc") for each in lenient.ends] == [None, {"many": "1"}, {"many": "1"}]
        assert ending.go() == []


@pytest.mark.parametrize("system", ["pulsar", "tank"])
@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_another_cluster_is_told_by_a_record(system: str, planned: bool, strict: bool, query: Any) -> None:
    """Its log of that name goes on behind what was read; ``planned``: the driver has died before it read a batch."""
    with serve(SCENES[system](), 10) as scene, serve(SCENES[system]()) as other:
        other.append(100, 30)
        one = query(scene, startingOffsets="earliest", failOnDataLoss=str(strict).lower())
        assert one.go() == list(range(10))
        scene.append(10, 5)
        if planned:
            assert one.plan()
        one.stop()
        one.scene = other
        if strict:
            with pytest.raises(DataLossError, match=r"has another record at .* names another cluster than before"):
                _goes_on(one)
            return
        one.start()
        assert one.go() == list(range(100, 130))
        assert one.ends[-1]["inc"] == {other.topic: "1"}


def _goes_on(query: Any) -> None:
    query.start()
    query.plan()


@pytest.mark.parametrize("system", ["pulsar", "tank"])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_record_that_cannot_be_read_is_compared_later(
    system: str, restarted: bool, query: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches are not held up, and what has been read of the log before is not forgotten for what is read now."""
    monkeypatch.setattr("fastwire_daemon.spark.source.witness.RENEWED_S", 0.0)
    with serve(SCENES[system](), 10) as scene, serve(SCENES[system]()) as other:
        one = query(scene, startingOffsets="earliest")
        assert one.go() == list(range(10))
        one.stop()
        other.append(100, 30)
        one.scene = other
        one.start()
        with monkeypatch.context() as silent:
            silent.setattr(type(one.reader._broker), "_compare", _nothing_comes)
            silent.setattr("fastwire_daemon.spark.source.broker.PATIENCE_S", 0.05)
            assert one.go() == list(range(110, 130))
        assert "it is compared later" in caplog.text
        assert one.ends[-1]["wit"] == one.ends[0]["wit"]
        other.append(130, 1)
        if restarted:
            one.stop()
        with pytest.raises(DataLossError, match="has another record at"):
            _goes_on(one) if restarted else one.plan()


async def _nothing_comes(*_: Any) -> Any:
    raise LinkLost("the broker sends nothing")


@pytest.mark.parametrize("system", ["pulsar", "tank"])
@pytest.mark.parametrize("trimmed", [True, False])
def test_a_cluster_that_has_the_record_or_has_lost_it_is_the_same(system: str, trimmed: bool, query: Any) -> None:
    with serve(SCENES[system](), 20) as scene:
        one = query(scene, startingOffsets="earliest", failOnDataLoss="false")
        assert one.go() == list(range(20))
        assert list(one.ends[-1]["wit"]) == [scene.topic]
        scene.append(20, 10)
        if trimmed:
            scene.trim(20)
        one.stop()
        one.start()
        assert one.go() == list(range(20, 30))


def test_a_topic_that_is_deleted_before_its_batch_is_read(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        for fail in ("true", "false"):
            one = query(scene, startingOffsets="earliest", failOnDataLoss=fail)
            assert one.plan()
            scene.delete("t")
            if fail == "true":
                with pytest.raises(DataLossError, match=r"does not exist any more|does not know the topic"):
                    one.run()
            else:
                one.run()
                assert one.read == [[]]
            scene.create("t")
            scene.append(0, 10)


@pytest.mark.parametrize("group", ["", "s"])
def test_what_retention_takes_is_said(serving: Serve, query: Any, group: str) -> None:
    with serving(10) as scene:
        strict = query(scene, startingOffsets="earliest", **(scene.group(group) if group else {}))
        assert strict.go() == list(range(10))
        assert not strict.plan()
        scene.append(10, 30)
        scene.trim(30)
        assert strict.plan()
        with pytest.raises(DataLossError, match=r"where it begins, is gone|what lay before was deleted"):
            strict.run()
        strict.stop()
        strict.more["failOnDataLoss"] = "false"
        strict.start()
        assert strict.read[-1] == list(range(30, 40))


def test_what_was_read_may_go_where_a_subscription_holds_the_rest(serving: Serve, query: Any) -> None:
    """A ledger that is read and closed is deleted at once, by default."""
    with serving(20) as scene:
        one = query(scene, startingOffsets="earliest", **scene.group("s"))
        assert one.go() == list(range(20))
        assert not one.plan()
        scene.append(20, 5)
        scene.trim(20)
        assert one.go() == list(range(20, 25))


def test_a_topic_that_ends_before_what_was_read(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, startingOffsets="earliest")
        one.go()
        further = Position(scene.at(9).a + 5, 5)
        one.ends[-1]["p"][scene.topic][str(scene.index)] = scene.text(further)
        with pytest.raises(DataLossError, match=f"ends at {scene.text(scene.at(9))}, before {scene.text(further)}"):
            one.plan()


def test_a_checkpoint_that_was_changed(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, startingOffsets="earliest")
        one.plan()
        end = through_text(one.ends[-1])
        end["p"] = {}
        with pytest.raises(DataLossError, match="the checkpoint was changed"):
            one.reader.partitions(one.initial, end)
