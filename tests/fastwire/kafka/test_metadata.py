"""Metadata of a cluster, updated by answers that may be older than it."""

from typing import Any

from fastwire.grammar import parse_name_pattern
from fastwire.kafka.protocol.metadata import NO_ID, Leader, Metadata, Node, topic_id_text

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def answer(
    *partitions: tuple[int, int, int], topic_id: bytes | None = ID, error: int = 0, **more: Any
) -> dict[str, Any]:
    """About topic t: number, leader and epoch of each partition."""
    told = [
        {"error_code": 0, "partition_index": number, "leader_id": node, "leader_epoch": epoch, "replica_nodes": [node]}
        for number, node, epoch in partitions
    ]
    topic = {"error_code": error, "name": "t", "is_internal": False, "partitions": told}
    if topic_id is not None:
        topic["topic_id"] = topic_id
    brokers = [{"node_id": node, "host": f"h{node}", "port": 9092} for node in (1, 2)]
    return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic], **more}


def test_what_is_asked() -> None:
    assert Metadata.request(None)["topics"] is None
    assert Metadata.request(["a"]) == {"topics": [{"name": "a"}], "allow_auto_topic_creation": False}
    assert Metadata.request(["a"], create=True)["allow_auto_topic_creation"] is True


def test_an_answer() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4), (1, -1, 5)))
    assert metadata.nodes == {1: Node(1, "h1", 9092), 2: Node(2, "h2", 9092)}
    assert metadata.cluster_id == "c"
    assert metadata.topics["t"].leaders == {0: Leader(1, 4), 1: Leader(-1, 5)}
    metadata.update(answer((0, 1, 4), cluster_id=None))
    assert metadata.cluster_id == "c"
    assert metadata.topics["t"].leaders == {0: Leader(1, 4)}


def test_the_racks_of_replicas() -> None:
    metadata = Metadata()
    said = answer((0, 1, 4), (1, 2, 5), (2, 2, 5))
    said["topics"][0]["partitions"][2]["replica_nodes"] = [1, 2, 9]
    metadata.update(said)
    assert metadata.racks(["t"]) == {}
    for broker, rack in zip(said["brokers"], ("east", None), strict=True):
        broker["rack"] = rack
    metadata.update(said)
    assert metadata.racks(["t", "other"]) == {
        ("t", 0): frozenset({"east"}),
        ("t", 1): frozenset(),
        ("t", 2): frozenset({"east"}),
    }
    assert metadata.racks([]) == {}


def test_an_older_epoch_is_not_believed() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4), (1, 1, 4)))
    metadata.update(answer((0, 2, 3), (1, 2, 5)))
    assert metadata.topics["t"].leaders == {0: Leader(1, 4), 1: Leader(2, 5)}
    metadata.update(answer((0, 2, -1)))  # a broker too old to tell
    assert metadata.topics["t"].leaders[0] == Leader(2, -1)


def test_a_topic_made_again_begins_with_its_epochs() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 40)))
    metadata.update(answer((0, 2, 0), topic_id=OTHER_ID))
    assert metadata.topics["t"].topic_id == OTHER_ID
    assert metadata.topics["t"].leaders == {0: Leader(2, 0)}


def test_old_brokers_know_no_ids() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4), topic_id=None))
    assert metadata.topics["t"].topic_id == NO_ID


def test_an_error_replaces_what_was_known() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4)))
    metadata.update(answer(error=3, topic_id=NO_ID))
    assert (metadata.topics["t"].error, metadata.topics["t"].leaders) == (3, {})


def test_what_a_broker_does_not_know_is_missing_for_so_long() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4)), 10.0)
    nothing = answer() | {"topics": []}
    metadata.update(nothing, 20.0)  # an answer about others
    assert (metadata.topics["t"].error, metadata.missing_s("t", 20.0)) == (0, 0.0)
    metadata.update(nothing, 30.0, everything=True)
    metadata.update(answer(error=3), 40.0)
    assert (metadata.topics["t"].error, metadata.missing_s("t", 45.0)) == (3, 15.0)
    assert metadata.matching(parse_name_pattern("t|u")) == ["t"]
    metadata.update(answer((0, 1, 4)), 50.0)
    assert metadata.missing_s("t", 60.0) == 0.0
    metadata.update(nothing, 60.0, everything=True)
    metadata.update(nothing, 10_000.0, everything=True)
    assert metadata.topics == {}
    assert metadata.missing_s("t", 10_000.0) == float("inf")


def test_a_topic_without_a_name_is_passed_over() -> None:
    metadata = Metadata()
    said = answer((0, 1, 4))
    said["topics"][0]["name"] = None
    metadata.update(said)
    assert metadata.topics == {}


def test_a_hint_of_a_newer_leader() -> None:
    metadata = Metadata()
    metadata.update(answer((0, 1, 4)))
    assert not metadata.lead("t", 0, Leader(2, 4))  # no news
    assert not metadata.lead("t", 9, Leader(2, 5))
    assert not metadata.lead("other", 0, Leader(2, 5))
    assert metadata.lead("t", 0, Leader(2, 5))
    assert metadata.topics["t"].leaders[0] == Leader(2, 5)
    assert not metadata.lead("t", 0, Leader(3, 6))  # whose address nobody has told
    assert metadata.lead("t", 0, Leader(4, 7), [Node(4, "h4", 1)])
    assert metadata.nodes[4] == Node(4, "h4", 1)


def test_ids_as_tools_write_them() -> None:
    assert topic_id_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert topic_id_text(b"\xfb\xff" * 8) == "-__7__v_-__7__v_-__7_w"
