"""Answers, refusals and violations of the embedded Kafka broker, request by request."""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body, encode_request
from fastwire.kafka.producing.payload import Record, encode_batch, split_batches
from fastwire.kafka.protocol.connection import Key
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from fastwire_daemon.devbroker.kafka.groups import assigned_partitions
from fastwire_daemon.devbroker.kafka.requests import RELEASES, versions_of
from tests.support.kafka.raw_client import Peer
from tests.support.kafka.source_pipe import batches
from tests.support.waiting import eventually


@pytest.fixture
def broker() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions(nodes=2, session_ms=(10, 60_000)))) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
def peer(broker: KafkaDevBroker) -> Iterator[Peer]:
    peer = Peer(broker)
    yield peer
    peer.close()


def fetch_body(offset: int = 0, partition: int = 0, *, wait_ms: int = 0, **more: Any) -> Body:
    """A Fetch of one partition; what a partition's fields are called goes there."""
    one: Body = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    whole: Body = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1}
    for name, value in more.items():
        (one if name in ("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes") else whole)[name] = value
    return {"topics": [{"topic": "t", "partitions": [one]}]} | whole


def fetch(peer: Peer, offset: int = 0, partition: int = 0, version: int = 12, **more: Any) -> Body:
    """The answer about one partition."""
    answer = peer.ask(Key.FETCH, version, fetch_body(offset, partition, **more))
    found: Body = answer["responses"][0]["partitions"][0]
    return found


def join_body(member_id: str = "", **more: Any) -> Body:
    return {
        "group_id": "g",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    } | more


def member(peer: Peer, *partitions: int) -> Body:
    """A group of one member that reads these partitions; the fields that it says of itself."""
    member_id = peer.ask(Key.JOIN_GROUP, 5, join_body())["member_id"]
    joined = peer.ask(Key.JOIN_GROUP, 5, join_body(member_id))
    assert joined["leader"] == joined["member_id"] == member_id
    known = {"group_id": "g", "generation_id": joined["generation_id"], "member_id": member_id}
    assignment = struct.pack(f">hih1si{len(partitions)}ii", 0, 1, 1, b"t", len(partitions), *partitions, -1)
    peer.ask(Key.SYNC_GROUP, 3, known, assignments=[{"member_id": member_id, "assignment": assignment}])
    return known


def commit_body(offset: int, partition: int = 0, **more: Any) -> Body:
    one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    return {"group_id": "g", "topics": [{"name": "t", "partitions": [one]}]} | more


def commit(peer: Peer, *about: Any, **more: Any) -> int:
    answer = peer.ask(Key.OFFSET_COMMIT, 8, commit_body(*about, **more))
    return int(answer["topics"][0]["partitions"][0]["error_code"])


# --- broken rules


def skips(peer: Peer, broker: KafkaDevBroker) -> None:
    fetch(peer, 0)
    peer.send(Key.FETCH, 12, fetch_body(101))


def begins_below_0(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send(Key.FETCH, 12, fetch_body(-1))


def invents_an_epoch(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send(Key.FETCH, 12, fetch_body(0, current_leader_epoch=1))


def invents_a_session(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send(Key.FETCH, 12, fetch_body(0, session_id=77, session_epoch=1))


def forgets_what_it_never_asked_for(peer: Peer, broker: KafkaDevBroker) -> None:
    session_id = peer.ask(Key.FETCH, 12, fetch_body(0, session_epoch=0))["session_id"]
    forgotten = [{"topic": "t", "partitions": [1]}]
    body = fetch_body(100, session_id=session_id, session_epoch=1, forgotten_topics_data=forgotten)
    peer.send(Key.FETCH, 12, body)


def speaks_too_new_a_version(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send_bytes(encode_request(Key.OFFSET_FETCH, 10, 1, "peer", {}))


def invents_a_generation(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send(Key.HEARTBEAT, 3, member(peer, 0) | {"generation_id": 9})


def commits_more_than_there_is(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send(Key.OFFSET_COMMIT, 8, commit_body(101))


def commits_what_is_not_its_own(peer: Peer, broker: KafkaDevBroker) -> None:
    known = member(peer, 0)
    body = {"generation_id_or_member_epoch": known["generation_id"], "member_id": known["member_id"]}
    peer.send(Key.OFFSET_COMMIT, 8, commit_body(0, 1, **body))


def shares_out_to_strangers(peer: Peer, broker: KafkaDevBroker) -> None:
    known = member(peer, 0)
    peer.send(Key.SYNC_GROUP, 3, known | {"assignments": [{"member_id": "nobody", "assignment": b""}]})


def sends_a_negative_size(peer: Peer, broker: KafkaDevBroker) -> None:
    peer.send_bytes(b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("break_rule", "text"),
    [
        (skips, "Fetch of t-0 at offset 101, only what lies before 100 was sent"),
        (begins_below_0, "Fetch of t-0 at offset -1"),
        (invents_an_epoch, "Fetch of t-0 in epoch 1, which never was"),
        (invents_a_session, "Fetch in session 77, which never was"),
        (forgets_what_it_never_asked_for, "partition 1 is forgotten in session 1, which lacks it"),
        (speaks_too_new_a_version, "a request 9 of version 10, the broker speaks 1 to 9"),
        (invents_a_generation, "Heartbeat in generation 9 of group g, which has 1"),
        (commits_more_than_there_is, "offset 101 is committed of t-0, which never passed 100"),
        (commits_what_is_not_its_own, "an offset of t-1 is committed by a member that was not given it"),
        (shares_out_to_strangers, "assignments of group g for members that it does not have"),
        (sends_a_negative_size, "size at byte 0: of a request is -1"),
    ],
)
def test_who_breaks_a_rule_loses_the_connection(
    broker: KafkaDevBroker, peer: Peer, break_rule: Callable[[Peer, KafkaDevBroker], None], text: str
) -> None:
    broker.append("t", batches(0, 10))
    break_rule(peer, broker)
    assert peer.closed()
    assert broker.violations == [text]


def test_looking_up_where_to_begin_allows_a_jump(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    fetch(peer, 0)
    broker.append("t", batches(10, 10))
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    found = peer.ask(Key.LIST_OFFSETS, 5, {"topics": asked})["topics"][0]["partitions"][0]
    assert (found["offset"], found["leader_epoch"]) == (200, 0)
    assert fetch(peer, 200)["error_code"] == 0
    assert broker.violations == []


@pytest.mark.parametrize("appended", [False, True])
def test_the_end_of_a_damaged_batch_may_be_searched_for_behind_what_was_sent(appended: bool) -> None:
    with running(KafkaDevBroker(KafkaOptions(segment_batches=2))) as broker:
        broker.create_topic("t")
        first, second, third = batches(0, 3)
        broker.append("t", [first])
        if appended:
            broker.append_damaged("t", second, 0)
        else:
            broker.append("t", [second])
            broker.damage("t", 10, 70)
        broker.append("t", [third])
        peer = Peer(broker)
        assert len(fetch(peer, 0)["records"]) == len(first + second)  # the answer ends with the damaged batch
        assert fetch(peer, 25)["error_code"] == 0
        peer.close()
        assert broker.violations == []


def test_damage_elsewhere_allows_no_jump(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    fetch(peer, 0)
    broker.append("t", batches(10, 10))
    broker.damage("t", 150, 70)
    peer.send(Key.FETCH, 12, fetch_body(101))
    assert peer.closed()
    assert broker.violations == ["Fetch of t-0 at offset 101, only what lies before 100 was sent"]


# --- versions


def test_versions_that_are_too_new_are_answered_in_version_0(broker: KafkaDevBroker) -> None:
    with running(KafkaDevBroker(KafkaOptions(release="0.11"))) as old:
        peer = Peer(old)
        peer.send(Key.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
        assert peer.answer().hex() == "00000001" + "0023" + "00000001" + "0012" + "0000" + "0001"
        known = peer.ask(Key.API_VERSIONS, 0)["api_keys"]
        assert {one["api_key"]: one["max_version"] for one in known}[Key.FETCH] == 5
        peer.close()


def test_no_release_has_an_empty_range() -> None:
    for release in RELEASES:
        assert all(first <= last for first, last in versions_of(release).values())
    with pytest.raises(ValueError, match=r"no release '9\.9'"):
        versions_of("9.9")


# --- reading


def test_a_fetch_waits_for_records_and_holds_up_what_is_behind_it(broker: KafkaDevBroker, peer: Peer) -> None:
    first = peer.send(Key.FETCH, 4, fetch_body(0, wait_ms=20_000))
    second = peer.send(Key.METADATA, 4, {"topics": []})
    other = Peer(broker)
    other.ask(Key.METADATA, 4, {"topics": []})  # by now the others have arrived
    other.close()
    broker.append("t", batches(0, 1))
    frame = peer.answer()
    assert int.from_bytes(frame[:4]) == first
    assert b"0:9" in frame
    assert int.from_bytes(peer.answer()[:4]) == second


def test_two_batches_at_once_are_one_answer(broker: KafkaDevBroker, peer: Peer) -> None:
    number = peer.send(Key.FETCH, 4, fetch_body(0, wait_ms=20_000))

    def twice() -> None:
        for one in (1, 2):
            broker.append("t", [encode_batch([Record(value=b"%d" % one)])])

    eventually(lambda: bool(broker.held))
    broker.call(twice)
    assert int.from_bytes(peer.answer()[:4]) == number
    assert len(peer.ask(Key.METADATA, 4, {"topics": None})["topics"]) == 1


def test_an_empty_answer_when_the_time_is_over(peer: Peer) -> None:
    found = fetch(peer, 0, wait_ms=10)
    assert (found["error_code"], found["records"], found["high_watermark"]) == (0, b"", 0)


def test_errors_about_leaders_and_their_hints(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 1))
    broker.move_leader("t")
    answer = peer.ask(
        Key.FETCH,
        16,
        {
            **fetch_body(0),
            "topics": [
                {
                    "topic_id": broker.topics["t"].topic_id,
                    "partitions": [
                        {"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "partition_max_bytes": 1}
                    ],
                }
            ],
        },
    )
    found = answer["responses"][0]["partitions"][0]
    assert found["error_code"] == Code.FENCED_LEADER_EPOCH
    assert found["current_leader"] == {"leader_id": 1, "leader_epoch": 1}
    (node,) = answer["node_endpoints"]
    assert (node["node_id"], node["port"]) == (1, broker.ports[1])
    assert fetch(peer, 0, version=11)["error_code"] == Code.NOT_LEADER_OR_FOLLOWER
    other = Peer(broker, 1)
    assert fetch(other, 0, current_leader_epoch=1)["error_code"] == 0
    other.close()


def test_offsets_outside_of_the_log(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    broker.trim("t", 55)
    assert fetch(peer, 54)["error_code"] == Code.OFFSET_OUT_OF_RANGE
    assert fetch(peer, 101)["error_code"] == Code.OFFSET_OUT_OF_RANGE
    found = fetch(peer, 55)
    assert found["log_start_offset"] == 55
    assert next(split_batches(found["records"])).base_offset == 50


def test_epochs_tell_where_logs_part(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    broker.truncate("t", 65)
    broker.append("t", batches(50, 20))
    assert fetch(peer, 100, last_fetched_epoch=0)["diverging_epoch"] == {"epoch": 0, "end_offset": 60}

    def ends(epoch: int, current: int = -1) -> tuple[int, int, int]:
        one = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        answer = peer.ask(Key.OFFSET_FOR_LEADER_EPOCH, 3, {"topics": [{"topic": "t", "partitions": [one]}]})
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert ends(0) == (0, 0, 60)
    assert ends(1) == (0, 1, 260)
    assert ends(2) == (0, -1, -1)
    assert ends(0, current=0)[0] == Code.FENCED_LEADER_EPOCH
    assert ends(0, current=2)[0] == Code.UNKNOWN_LEADER_EPOCH


def test_limits_of_an_answer(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    size = len(batches(0, 1)[0])
    # The first batch comes whole, however little was asked for; then the limit is hard, and cuts.
    for room in (1, size - 1, size):
        assert len(fetch(peer, 0, partition_max_bytes=room)["records"]) == size
    found = fetch(peer, 0, partition_max_bytes=size + 20)["records"]
    assert len(found) == size + 20


def test_sessions(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 1))
    opened = peer.ask(Key.FETCH, 12, fetch_body(0, session_epoch=0))
    session_id = opened["session_id"]
    assert session_id > 0
    assert len(opened["responses"]) == 1

    def go_on(epoch: int, **more: Any) -> Body:
        return peer.ask(Key.FETCH, 12, fetch_body(10, session_id=session_id, session_epoch=epoch, **more))

    assert go_on(1)["responses"] == []
    assert go_on(7)["error_code"] == Code.INVALID_FETCH_SESSION_EPOCH
    broker.append("t", batches(1, 1))
    assert len(go_on(2)["responses"][0]["partitions"][0]["records"]) > 0
    ended = go_on(3, forgotten_topics_data=[{"topic": "t", "partitions": [0]}], topics=[])
    assert (ended["session_id"], ended["responses"]) == (0, [])
    assert go_on(4)["error_code"] == Code.FETCH_SESSION_ID_NOT_FOUND


# --- writing


def produce(peer: Peer, batch: bytes, **more: Any) -> Body:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    answer = peer.ask(Key.PRODUCE, 8, {"acks": -1, "topic_data": data} | more)
    found: Body = answer["responses"][0]["partition_responses"][0]
    return found


def sequenced(sequence: int, rows: int = 2, producer: int = 1000, epoch: int = 0) -> bytes:
    records = [Record(value=b"x")] * rows
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_a_throttled_fetch_is_answered_at_once_and_empty(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.append("t", batches(0, 10))
    broker.throttle(100)
    asked = fetch_body(0, session_id=0, session_epoch=0)
    answer = peer.ask(Key.FETCH, 12, asked)
    assert (answer["throttle_time_ms"], answer["responses"], answer["session_id"]) == (100, [], 0)
    assert broker.sessions == {}  # none was opened: the reader asks for everything again
    muted_at = time.monotonic()
    assert peer.ask(Key.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
    assert time.monotonic() - muted_at >= 0.09  # until then, the connection was not read
    session_id = peer.ask(Key.FETCH, 12, asked)["session_id"]
    broker.throttle(1)
    answer = peer.ask(Key.FETCH, 12, fetch_body(0, session_id=session_id, session_epoch=1))
    assert (answer["responses"], answer["session_id"]) == ([], session_id)  # it goes on with its next epoch
    answer = peer.ask(Key.FETCH, 12, fetch_body(0, session_id=session_id, session_epoch=2))
    assert len(answer["responses"]) == 1
    assert broker.violations == []


def test_idempotent_producers(broker: KafkaDevBroker, peer: Peer) -> None:
    given = peer.ask(Key.INIT_PRODUCER_ID, 0, {"transactional_id": None, "transaction_timeout_ms": 1})
    assert (given["producer_id"], given["producer_epoch"]) == (1000, 0)
    assert produce(peer, sequenced(0))["base_offset"] == 0
    assert produce(peer, sequenced(2))["base_offset"] == 2
    assert produce(peer, sequenced(0))["base_offset"] == 0  # again: what it got the first time
    assert broker.ends("t") == [4, 0]
    assert produce(peer, sequenced(9))["error_code"] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(peer, sequenced(3, epoch=1))["error_code"] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(peer, sequenced(0, epoch=1))["base_offset"] == 4
    assert produce(peer, sequenced(4))["error_code"] == Code.INVALID_PRODUCER_EPOCH
    assert produce(peer, sequenced(0, producer=1001))["error_code"] == Code.UNKNOWN_PRODUCER_ID
    peer.ask(Key.INIT_PRODUCER_ID, 0, {"transactional_id": None, "transaction_timeout_ms": 1})
    assert produce(peer, sequenced(9, producer=1001))["base_offset"] == 6  # nothing is known, so anything may follow
    assert produce(peer, sequenced(0, producer=1001))["error_code"] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_a_later_epoch_fences_a_producer(broker: KafkaDevBroker, peer: Peer) -> None:
    identity = {"transactional_id": "x", "transaction_timeout_ms": 1}
    given = peer.ask(Key.INIT_PRODUCER_ID, 0, identity)
    assert (given["producer_id"], given["producer_epoch"]) == (1000, 0)
    assert produce(peer, sequenced(0))["base_offset"] == 0
    given = peer.ask(Key.INIT_PRODUCER_ID, 0, identity)
    assert (given["producer_id"], given["producer_epoch"]) == (1000, 1)
    assert produce(peer, sequenced(2))["base_offset"] == 2  # the leader does not know yet
    owner = {"transactional_id": "x", "producer_id": 1000, "producer_epoch": 1}
    topics = [{"name": "t", "partitions": [0]}]
    for epoch, code in ((0, Code.INVALID_PRODUCER_EPOCH), (1, Code.NONE)):
        answer = peer.ask(Key.ADD_PARTITIONS_TO_TXN, 3, {**owner, "producer_epoch": epoch, "topics": topics})
        assert answer["results"] == [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]
    assert peer.ask(Key.INIT_PRODUCER_ID, 0, identity)["producer_epoch"] == 2
    assert broker.ends("t") == [5, 0]
    assert produce(peer, sequenced(4))["error_code"] == Code.INVALID_PRODUCER_EPOCH
    assert produce(peer, sequenced(0, epoch=2))["base_offset"] == 5


def test_batches_that_are_refused(broker: KafkaDevBroker, peer: Peer) -> None:
    (sound,) = batches(0, 1)
    assert produce(peer, sound[:-1] + b"\x01")["error_code"] == Code.CORRUPT_MESSAGE
    assert produce(peer, sound + sound)["error_code"] == Code.INVALID_RECORD
    assert produce(peer, batches(0, 1, size=200_000)[0])["error_code"] == Code.MESSAGE_TOO_LARGE
    assert produce(peer, sound, acks=2)["error_code"] == 21
    broker.move_leader("t", 0)
    assert produce(peer, sound)["error_code"] == Code.NOT_LEADER_OR_FOLLOWER
    assert broker.ends("t") == [0, 0]


# --- groups


def test_a_member_that_joins_makes_the_other_join_again(broker: KafkaDevBroker, peer: Peer) -> None:
    known = member(peer, 0, 1)
    other = Peer(broker)
    other_id = other.ask(Key.JOIN_GROUP, 5, join_body())["member_id"]
    other.send(Key.JOIN_GROUP, 5, join_body(other_id))
    while peer.ask(Key.HEARTBEAT, 3, known)["error_code"] == 0:
        pass
    assert peer.ask(Key.HEARTBEAT, 3, known)["error_code"] == Code.REBALANCE_IN_PROGRESS
    said = {"generation_id_or_member_epoch": known["generation_id"], "member_id": known["member_id"]}
    assert commit(peer, 0, **said) == 0  # what is given away is committed first
    joined = peer.ask(Key.JOIN_GROUP, 5, join_body(known["member_id"]))
    assert joined["generation_id"] == 2
    assert {one["member_id"] for one in joined["members"]} == {known["member_id"], other_id}
    assert commit(peer, 0, **said) == Code.ILLEGAL_GENERATION
    assert peer.ask(Key.LEAVE_GROUP, 3, {"group_id": "g", "members": [{"member_id": other_id}]})["error_code"] == 0
    other.close()


def test_who_is_silent_is_out(broker: KafkaDevBroker, peer: Peer) -> None:
    member_id = peer.ask(Key.JOIN_GROUP, 5, join_body(session_timeout_ms=50))["member_id"]
    peer.ask(Key.JOIN_GROUP, 5, join_body(member_id, session_timeout_ms=50))
    gone = threading.Event()
    while broker.call(lambda: bool(broker.groups["g"].members)):
        gone.wait(0.01)
    known = {"group_id": "g", "generation_id": 1, "member_id": member_id}
    assert peer.ask(Key.HEARTBEAT, 3, known)["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_gets_what_it_had(broker: KafkaDevBroker, peer: Peer) -> None:
    joined = peer.ask(Key.JOIN_GROUP, 5, join_body(group_instance_id="i"))
    known = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"], "group_instance_id": "i"}
    shares = [{"member_id": joined["member_id"], "assignment": b"mine"}]
    peer.ask(Key.SYNC_GROUP, 3, known, assignments=shares)
    again = peer.ask(Key.JOIN_GROUP, 5, join_body(group_instance_id="i"))
    assert again["generation_id"] == 1
    assert again["leader"] == joined["member_id"] != again["member_id"]
    synced = peer.ask(Key.SYNC_GROUP, 3, known | {"member_id": again["member_id"]})
    assert synced["assignment"] == b"mine"
    assert peer.ask(Key.HEARTBEAT, 3, known)["error_code"] == Code.FENCED_INSTANCE_ID
    assert broker.groups["g"].rebalances == 1


def test_commits_from_outside_while_there_are_members(broker: KafkaDevBroker, peer: Peer) -> None:
    assert commit(peer, 0) == 0
    known = member(peer, 0)
    assert commit(peer, 0) == Code.UNKNOWN_MEMBER_ID
    left = peer.ask(Key.LEAVE_GROUP, 2, {"group_id": "g", "member_id": known["member_id"]})
    assert left["error_code"] == 0
    assert commit(peer, 0) == 0


def test_groups_are_seen_to_by_one_node(broker: KafkaDevBroker, peer: Peer) -> None:
    found = peer.ask(Key.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})["coordinators"][0]
    assert (found["node_id"], found["port"]) == (0, broker.port)
    broker.move_coordinator(1)
    assert commit(peer, 0) == Code.NOT_COORDINATOR
    other = Peer(broker, 1)
    assert commit(other, 0) == 0
    other.close()


def test_members_that_have_no_protocol_in_common(broker: KafkaDevBroker, peer: Peer) -> None:
    member(peer, 0)
    other = Peer(broker)
    body = join_body(protocols=[{"name": "sticky", "metadata": b""}])
    body["member_id"] = other.ask(Key.JOIN_GROUP, 5, body)["member_id"]
    assert other.ask(Key.JOIN_GROUP, 5, body)["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL
    assert other.ask(Key.JOIN_GROUP, 5, join_body("stranger"))["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert other.ask(Key.JOIN_GROUP, 5, join_body(session_timeout_ms=1))["error_code"] == Code.INVALID_SESSION_TIMEOUT
    other.close()


# --- groups whose shares the broker makes


def beat(peer: Peer, member_id: str, epoch: int, owned: list[int] | None = None, **more: Any) -> tuple[int, Any]:
    """A member's epoch, and its partitions of t where the answer has any."""
    topic = [] if owned == [] else [{"topic_id": more.pop("topic_id", bytes(16)), "partitions": owned}]
    body = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "rebalance_timeout_ms": 1000}
    body["topic_partitions"] = None if owned is None else topic
    answer = peer.ask(Key.CONSUMER_GROUP_HEARTBEAT, 1, body | more)
    if answer["error_code"]:
        return answer["error_code"], None
    shares = answer["assignment"]
    found = None if shares is None else [n for one in shares["topic_partitions"] for n in one["partitions"]]
    return answer["member_epoch"], found


def test_a_share_moves_on_when_it_was_let_go(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.grow_topic("t", 3)
    topic_id = broker.topics["t"].topic_id
    assert beat(peer, "A", 0, [], subscribed_topic_names=["t"]) == (1, [0, 1, 2])
    assert beat(peer, "B", 0, [], subscribed_topic_names=["t"]) == (2, [])
    assert beat(peer, "A", 1) == (1, [0, 1])
    assert beat(peer, "B", 2) == (2, None)
    assert beat(peer, "A", 1, [0, 1], topic_id=topic_id) == (2, None)
    assert beat(peer, "B", 2) == (2, [2])
    said = {"generation_id_or_member_epoch": 1, "member_id": "B"}
    assert commit(peer, 0, 2, **said) == Code.STALE_MEMBER_EPOCH
    assert commit(peer, 0, 2, **said | {"generation_id_or_member_epoch": 2}) == 0
    assert commit(peer, 0) == Code.UNKNOWN_MEMBER_ID
    assert beat(peer, "C", 2) == (Code.UNKNOWN_MEMBER_ID, None)
    assert beat(peer, "B", 1) == (Code.FENCED_MEMBER_EPOCH, None)
    assert beat(peer, "A", -1) == (-1, None)
    assert beat(peer, "B", 2) == (3, [0, 1, 2])
    assert broker.violations == []


def test_who_missed_an_answer_is_told_again(broker: KafkaDevBroker, peer: Peer) -> None:
    broker.grow_topic("t", 3)
    topic_id = broker.topics["t"].topic_id
    everything = {"subscribed_topic_names": ["t"], "topic_id": topic_id}
    beat(peer, "A", 0, [], subscribed_topic_names=["t"])
    beat(peer, "B", 0, [], subscribed_topic_names=["t"])
    assert beat(peer, "A", 1) == (1, [0, 1])  # missed
    assert beat(peer, "A", 1) == (1, None)
    assert beat(peer, "A", 1, [0, 1, 2], **everything) == (1, [0, 1])
    assert beat(peer, "A", 1, [0, 1], topic_id=topic_id) == (2, None)  # missed: of the epoch before it goes on
    assert beat(peer, "A", 1, [0, 1], **everything) == (2, [0, 1])
    assert beat(peer, "B", 2) == (2, [2])  # missed
    assert beat(peer, "B", 2, [], subscribed_topic_names=["t"]) == (2, [2])
    beat(peer, "C", 0, [], subscribed_topic_names=["t"])
    assert beat(peer, "A", 2) == (2, [0])
    assert beat(peer, "A", 2, [0], topic_id=topic_id) == (3, None)
    assert beat(peer, "A", 2) == (Code.FENCED_MEMBER_EPOCH, None)  # it does not say what it owns
    assert beat(peer, "A", 2, [0], topic_id=topic_id) == (3, None)
    assert beat(peer, "A", 1, [0], topic_id=topic_id) == (Code.FENCED_MEMBER_EPOCH, None)
    assert broker.violations == []


def test_the_last_member_of_all_commits_too_late(broker: KafkaDevBroker, peer: Peer) -> None:
    assert beat(peer, "A", 0, [], subscribed_topic_names=["t"]) == (1, [0, 1])
    broker.call(lambda: broker.group("g").consumers.remove("A"))
    assert commit(peer, 0, generation_id_or_member_epoch=1, member_id="A") == Code.UNKNOWN_MEMBER_ID
    assert broker.violations == []


def test_who_owns_what_it_was_never_given_loses_the_connection(broker: KafkaDevBroker, peer: Peer) -> None:
    topic_id = broker.topics["t"].topic_id
    beat(peer, "A", 0, [], subscribed_topic_names=["t"])
    beat(peer, "B", 0, [], subscribed_topic_names=["t"])
    with pytest.raises(ConnectionError):
        beat(peer, "B", 2, [0], topic_id=topic_id)
    assert broker.violations == ["B owns what it was never given: [('t', 0)]"]


def test_assignments_are_read() -> None:
    golden = bytes.fromhex("000000000001000174000000020000000000000001ffffffff")
    assert assigned_partitions(golden) == {("t", 0), ("t", 1)}
    assert assigned_partitions(golden[:-8]) == set()
    assert assigned_partitions(b"anything") == set()


def test_the_backlog_counts_from_the_committed_offsets() -> None:
    broker = KafkaDevBroker()
    broker.create_topic("t", 2)
    broker.produce("t", [b"a", b"b", b"c"])
    broker.produce("t", [b"d", b"e"], 1)
    broker.group("g").offsets["t", 0] = 1, -1, ""
    assert broker.backlog("t", "g") == 4
    broker.trim("t", 2)
    assert broker.backlog("t", "g") == 3
