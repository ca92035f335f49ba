"""A topic as a sink whose configuration names no delivery: what is chosen, why, and what a change costs."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastwire.kafka.format.error import Code
from fastwire.position import Log
from fastwire_daemon.cli.check.checks import promise
from fastwire_daemon.config import PipelineConfig, parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.net.endpoint import ConnectionRefused
from fastwire_daemon.pipeline.topicchoice import topic_sink
from fastwire_daemon.pipeline.topicdefault import DefaultTopicSink
from fastwire_daemon.pipeline.topicledger import LedgerTopicSink
from fastwire_daemon.pipeline.topicsink import RememberingTopicSink, TopicSink
from fastwire_daemon.runtime.errors import SinkFailedError, Superseded
from fastwire_daemon.runtime.outside import waiting
from fastwire_daemon.systems.kafka import ledger
from fastwire_daemon.systems.produced import ProduceError
from tests.daemon.pipeline.test_topicledger import CONFIG, checked, configured
from tests.support.topic_copies import append, copied, produce, run
from tests.support.waiting import eventually

NAMED = 'delivery = "exactly-once"\n'
EXACTLY, AT_LEAST = "delivery is exactly once", "delivery is at least once"


@pytest.fixture
def source() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 2)
        yield broker


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions(release=getattr(request, "param", "4.1")))) as broker:
        broker.create_topic("copy", 2)
        yield broker


def unnamed(folder: Path, source: Any, target: Any, more: str = "") -> Path:
    """A configuration without ``delivery``."""
    config = configured(folder, source, target, more=more)
    config.write_text(config.read_text().replace(NAMED, "", 1))
    return config


def pipeline(more: str = "", kind: str = "kafka", url: str = "") -> PipelineConfig:
    url = url or f"{kind}://127.0.0.1:2"
    text = CONFIG.format(source="kafka://127.0.0.1:1", url=url, start="earliest", idle="1s", more=more)
    text = text.replace(NAMED, "", 1).replace('type = "kafka"', f'type = "{kind}"')
    return parse_config(text, {}).pipelines["mirror"]


def test_it_is_exactly_once_where_the_brokers_allow_it(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0", "a1")
    config = unnamed(tmp_path, source, target)
    assert "exactly once: the brokers of the topic allow it" in checked(config, 0)
    assert "fastwire-positions" not in target.topics
    assert EXACTLY in run(config)
    # The positions decide, and no offset of the group.
    source.groups.clear()
    append(source, 0, "a2")
    run(config)
    assert copied(target) == ["a0", "a1", "a2"]
    assert target.violations == []


@pytest.mark.parametrize(
    ("target", "forbidden"),
    [("4.1", "transactional ids"), ("2.1", "fastwire-positions"), ("4.1", "read fastwire-positions")],
    indirect=["target"],
)
def test_rights_that_come_and_go_cost_no_record(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker, forbidden: str
) -> None:
    config, expected = unnamed(tmp_path, source, target), []
    for turn in range(5):
        expected += (now := [f"{turn}-{n}" for n in range(10)])
        append(source, 0, *now[:5])
        append(source, 1, *now[5:])
        if turn % 2 == 0:
            target.forbidden.add(forbidden)
            said = run(config)
            assert AT_LEAST in said and "AUTHORIZATION_FAILED" in said
        else:
            target.forbidden.clear()
            assert EXACTLY in run(config)
    target.forbidden.clear()
    assert "the group of the source stands behind the positions" in run(config)
    assert Counter(copied(target)) == Counter(expected)


@pytest.mark.parametrize("refused", [Code.INVALID_CONFIG, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_what_the_brokers_never_take_is_a_reason(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker, refused: Code
) -> None:
    if refused == Code.INVALID_CONFIG:
        target.forbidden.add("settings")
    else:
        target.refuse_batches(refused)
    append(source, 0, "a0")
    said = run(unnamed(tmp_path, source, target))
    assert AT_LEAST in said and refused.name in said
    assert copied(target) == ["a0"]


@pytest.mark.parametrize("release", ["3.9", "4.1"])
def test_the_controller_makes_the_topic_of_the_positions(tmp_path: Path, source: KafkaDevBroker, release: str) -> None:
    with running(KafkaDevBroker(KafkaOptions(release=release, nodes=2))) as target:
        target.controller = 1
        target.create_topic("copy", 1)
        append(source, 0, "a0")
        config = unnamed(tmp_path, source, target)
        assert "exactly once: the brokers of the topic allow it" in checked(config, 0)
        assert EXACTLY in run(config)
        assert copied(target) == ["a0"]


def test_a_pipeline_that_was_at_least_once_goes_on_without_a_gap_or_a_copy(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0", "a1")
    former = unnamed(tmp_path, source, target, 'delivery = "at-least-once"')
    run(former)
    assert "fastwire-positions" not in target.topics
    append(source, 0, "a2")
    assert EXACTLY in run(unnamed(tmp_path, source, target))
    append(source, 0, "a3")
    run(unnamed(tmp_path, source, target, 'delivery = "at-least-once"'))  # an older release, say
    append(source, 0, "a4")
    assert EXACTLY in run(unnamed(tmp_path, source, target))
    assert copied(target) == [f"a{n}" for n in range(5)]


@pytest.mark.parametrize("kind", ["pulsar", "tubemq"])
def test_daemons_of_both_kinds_share_a_group_of_any_system(tmp_path: Path, target: KafkaDevBroker, kind: str) -> None:
    values = [f"{number:02}" for number in range(40)]
    with running({"pulsar": PulsarDevBroker, "tubemq": TubeMQDevBroker}[kind]()) as source:
        source.create_topic("orders", 1)
        for turn in range(4):
            produce(source, "orders", [{"value": value} for value in values[turn * 10 : turn * 10 + 10]])
            run(unnamed(tmp_path, source, target, 'delivery = "at-least-once"' if turn % 2 else ""))
        run(unnamed(tmp_path, source, target))
    assert copied(target) == values


def test_a_pipeline_with_a_folder_of_positions_stays_with_it(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0")
    config = unnamed(tmp_path, source, target, f'path = "{tmp_path / "memory"}"')
    said = run(config)
    assert AT_LEAST in said and "the positions are at sink.path" in said
    assert "at least once: " in checked(config, 0)
    assert copied(target) == ["a0"] and "fastwire-positions" not in target.topics


def test_a_topic_that_would_lose_the_positions_is_not_used(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0")
    target.create_topic("fastwire-positions", 1)
    config = unnamed(tmp_path, source, target)
    why = "cleanup.policy=delete: retention would delete positions"
    said = checked(config, 0)
    assert "at least once, because" in said and why in said
    said = run(config)
    assert AT_LEAST in said and why in said
    assert copied(target) == ["a0"]


def test_the_positions_of_another_source_are_not_used(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0")
    run(unnamed(tmp_path, source, target))
    with running(KafkaDevBroker()) as other:
        other.create_topic("orders", 1)
        append(other, 0, "b0")
        said = run(unnamed(tmp_path, other, target))
    assert AT_LEAST in said and "positions of another cluster would count as committed" in said
    assert sorted(copied(target)) == ["a0", "b0"]


def test_a_cluster_that_cannot_have_a_coordinator_is_written_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinators' topic wants three replicas, and the only broker answers that no coordinator is available."""
    monkeypatch.setattr(ledger, "COORDINATOR_S", 0.1)
    with running(KafkaDevBroker(KafkaOptions(auto_create=False))) as target:
        target.create_topic("copy", 1)
        target.forbidden.add("coordinators")
        config = pipeline(url=target.url)
        sink = topic_sink(config)
        assert isinstance(sink, DefaultTopicSink)
        sink.open()
        assert sink.chosen is not None and not sink.chosen.exactly_once
        sink.close()
        # It is a matter of time where that topic exists, or the broker does not know its topics yet.
        for known in (True, False):
            if known:
                target.create_topic("__transaction_state", 1)
            else:
                target.topics.clear()
            sink = topic_sink(config)
            with pytest.raises(SinkFailedError, match="COORDINATOR_NOT_AVAILABLE"):
                sink.open()
            sink.close()


def test_a_coordinator_that_is_hidden_at_the_start_is_waited_for() -> None:
    with running(KafkaDevBroker(KafkaOptions(auto_create=False))) as target:
        target.create_topic("copy", 1)
        target.forbidden.add("coordinators")
        sink = topic_sink(pipeline(url=target.url))
        assert isinstance(sink, DefaultTopicSink)
        opening = threading.Thread(target=sink.open)
        opening.start()
        eventually(
            lambda: "a coordinator of transactions" in (waiting(sink.threads, 0.0) or ""), "a wait with a reason"
        )
        target.forbidden.clear()
        opening.join()
        assert sink.chosen is None
        sink.close()


def test_what_is_decided_by_the_configuration() -> None:
    assert isinstance(topic_sink(pipeline()), DefaultTopicSink)
    assert isinstance(topic_sink(pipeline('delivery = "exactly-once"')), LedgerTopicSink)
    assert isinstance(topic_sink(pipeline('delivery = "at-least-once"')), TopicSink)
    assert isinstance(topic_sink(pipeline('path = "/x"')), RememberingTopicSink)
    assert isinstance(topic_sink(pipeline(kind="pulsar")), TopicSink)
    assert pipeline().sink.roll.age == 1.0
    assert pipeline('roll.age = "5s"').sink.roll.age == 5.0
    assert pipeline('delivery = "exactly-once"').sink.roll.age == 60.0
    assert pipeline("roll.rows = 7").sink.roll.age == 1.0
    text = CONFIG.format(source="pulsar://127.0.0.1:1", url="kafka://127.0.0.1:2", start="earliest", idle="1s", more="")
    text = text.replace(NAMED, "", 1).replace("start =", 'subscription_type = "shared"\nstart =')
    shared = parse_config(text, {}).pipelines["mirror"]
    assert shared.at_least_once_because and shared.sink.roll.age == 60.0
    assert "if the brokers of the topic allow transactions" in promise(pipeline())
    assert "at least once" in promise(pipeline('delivery = "at-least-once"'))


def test_brokers_that_are_away_decide_nothing() -> None:
    sink = topic_sink(pipeline())
    assert isinstance(sink, DefaultTopicSink)

    @asynccontextmanager
    async def unsure() -> Any:
        raise ProduceError(f"no coordinator: {Code.COORDINATOR_NOT_AVAILABLE}") from ConnectionRefused("gone")
        yield

    sink._outlet._make_writer = unsure

    def interrupt() -> None:
        eventually(lambda: sink.waiting, "a wait")
        sink.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(SinkFailedError, match="was stopped while it waited"):
        sink.open()
    interrupting.join()
    assert sink.chosen is None
    sink.close()


@pytest.mark.parametrize("moment", ["prove", "claim"])
def test_pipelines_of_one_name_that_start_together_do_not_share_positions(
    tmp_path: Path, target: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Their sources are different clusters, whose logs have the same name without topic ids."""
    before = KafkaOptions(release="2.1")
    with running(KafkaDevBroker(before)) as one, running(KafkaDevBroker(before)) as other:
        for broker, value in ((one, "a0"), (other, "b0")):
            broker.create_topic("orders", 1)
            append(broker, 0, value)
        config = unnamed(tmp_path, one, target)
        sink = topic_sink(parse_config(unnamed(tmp_path, other, target).read_text(), {}).pipelines["mirror"])
        unnamed(tmp_path, one, target)
        assert isinstance(sink, DefaultTopicSink)
        if moment == "prove":
            prove = sink._prove
            monkeypatch.setattr(sink, "_prove", lambda: (run(config), prove()))
            sink.open()
        else:
            sink.open()
            assert EXACTLY in run(config)
            with pytest.raises(Superseded):
                sink.claim({Log("kafka", sink.cluster, "orders", "0"): None})
        assert sink.chosen is not None
        sink.close()
        assert EXACTLY in run(config)  # the first one goes on


def test_a_cluster_that_was_made_again_at_the_same_hosts_is_copied_at_least_once(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    append(source, 0, "a0")
    config = unnamed(tmp_path, source, target)
    assert EXACTLY in run(config)
    source.options = replace(source.options, cluster_id="made again")
    append(source, 0, "a1")
    said = run(config)
    assert AT_LEAST in said and "another group or subscription if the cluster was made again" in said
    assert copied(target) == ["a0", "a1"]


def test_an_offset_of_the_log_before_a_break_is_not_followed(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    """The log behind the break begins before it, and its own first offset was not committed yet."""
    config = unnamed(tmp_path, source, target)
    config.write_text(config.read_text().replace("start =", 'on_truncation = "continue"\nstart ='))
    first, second = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(10)]
    append(source, 0, *first)
    run(config)
    source.truncate("orders", 4)
    assert "reading goes on behind a break" in run(config)
    source.groups["mirror"].offsets["orders", 0] = (10, -1, "")  # without its epoch, as tools commit it
    append(source, 0, *second)
    assert "may be that of the log before a break" in run(config)
    assert copied(target) == first + second


def test_an_offset_behind_the_end_of_the_log_is_not_followed(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    config = unnamed(tmp_path, source, target)
    append(source, 0, "a0", "a1")
    run(config)
    append(source, 0, "a2")
    source.groups["mirror"].offsets["orders", 0] = (9, -1, "")
    assert "the group's offset lies behind the end of the log" in run(config)
    assert copied(target) == ["a0", "a1", "a2"]


def test_the_group_of_another_cluster_at_the_same_hosts_moves_no_positions(
    tmp_path: Path, target: KafkaDevBroker
) -> None:
    """A name that leads to another cluster for a while, whose logs have the same names without topic ids."""
    values = [f"a{n}" for n in range(7)]
    with running(KafkaDevBroker(KafkaOptions(release="2.1"))) as source:
        source.create_topic("orders", 1)
        append(source, 0, *values[:2])
        config = unnamed(tmp_path, source, target)
        assert EXACTLY in run(config)
        append(source, 0, *values[2:])
        own, offsets = source.options, source.groups["mirror"].offsets
        source.options = replace(own, cluster_id="another one")
        offsets["orders", 0] = (5, -1, "")
        assert AT_LEAST in run(config)
        source.options = own
        offsets["orders", 0] = (2, -1, "")
        assert EXACTLY in run(config)
    assert copied(target) == [*values[:2], *values[5:], *values[2:]]
