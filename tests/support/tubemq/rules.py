"""Rules of TubeMQ Brokers and producers that hold for the real ones and for the embedded one alike (spec: tubemq).

Each function drives a cluster and fails where a rule does not hold; the test modules of both run all of ``RULES``, and
those of groups (``grouprules``).
"""

import time
import uuid
from collections.abc import Callable

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, encode_frame
from fastwire.tubemq.format.text import read_broker, read_producer_topic
from fastwire.tubemq.groups.master import ClientSettings, State
from fastwire.tubemq.producing.producer import Producer
from tests.support.tubemq.client import (
    HOST,
    Cluster,
    Link,
    Reader,
    Start,
    answer_of,
    client_name,
    refusal,
    send,
)

Rule = Callable[[Cluster], None]
RULES: list[Rule] = []

ENTRY = 28  # bytes of an index entry


def into(rules: list[Rule]) -> Callable[[Rule], Rule]:
    """Return the decorator that adds a rule to ``rules``."""

    def rule(function: Rule) -> Rule:
        rules.append(function)
        return function

    return rule


rule = into(RULES)


def group() -> str:
    """Return the name of a group that no other test uses."""
    return f"g{uuid.uuid4().hex[:12]}"


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [(b"%d " % number).ljust(size, b"x") for number in range(count)]


# --- frames


@rule
def serial_numbers_come_back(cluster: Cluster) -> None:
    with Link(cluster.broker_port) as link:
        body = pb.CommitOffsetRequestC2B(clientId="c", topicName="none", partitionId=0, groupName="none")
        assert link.call(Method.COMMIT, body, pb.CommitOffsetResponseB2C).errCode in (401, 403)


@rule
def a_request_may_come_in_blocks_of_one_byte(cluster: Cluster) -> None:
    with Link(cluster.broker_port) as link:
        body = pb.CommitOffsetRequestC2B(clientId="c", topicName="none", partitionId=0, groupName="none")
        link.call(Method.COMMIT, body, pb.CommitOffsetResponseB2C)
        whole = bytes(link.sent)
        link.sent.clear()
        link.raw(encode_frame(9, whole[16:], block_bytes=1))
        link.call(Method.COMMIT, body, pb.CommitOffsetResponseB2C)
        assert link.received.count(b"\xff\x7f\xf4\xfe\0\0\0\x09") == 1


@rule
def a_request_without_a_timeout_is_not_answered(cluster: Cluster) -> None:
    inner = pb.CommitOffsetRequestC2B(clientId="c", topicName="none", partitionId=0, groupName="none")
    parts = (
        pb.RpcConnHeader(flag=0),
        pb.RequestHeader(serviceType=2, protocolVer=3),
        pb.RequestBody(method=Method.COMMIT, request=inner.SerializeToString()),
    )
    data = b"".join(bytes([part.ByteSize()]) + part.SerializeToString() for part in parts)
    with Link(cluster.broker_port) as link:
        link.raw(encode_frame(9, data))
        assert link.ask(Method.COMMIT, inner)
        assert int.from_bytes(link.received[4:8]) == 1  # the answer to the second request came first


@rule
def an_unknown_service_and_a_message_without_fields_are_refused(cluster: Cluster) -> None:
    body = pb.CloseRequestP2M(clientId="c")
    with Link(cluster.broker_port) as link:
        refused = refusal(link.ask(Method.PRODUCER_CLOSE, body))  # the Broker has no such service
        assert not refused.fatal
        assert "No service 1 found" in refused.text
    with Link(cluster.master_port) as link:
        refused = refusal(link.ask(Method.CONSUMER_CLOSE, body))  # lacks the group
        assert refused.fatal
        assert "groupName" in refused.text


# --- producers


@rule
def a_producer_learns_brokers_and_partitions(cluster: Cluster) -> None:
    topic, client = cluster.fresh_topic(), client_name()
    with Link(cluster.master_port) as link:
        registered = link.call(
            Method.PRODUCER_REGISTER,
            pb.RegisterRequestP2M(clientId=client, topicList=[topic], brokerCheckSum=-1, hostName=HOST),
            pb.RegisterResponseM2P,
        )
        assert (registered.success, registered.errCode) == (True, 200)
        (broker,) = map(read_broker, registered.brokerInfos)
        assert (broker.id, broker.host, broker.port) == (1, HOST, cluster.broker_port)
        beat = pb.HeartRequestP2M(
            clientId=client, brokerCheckSum=registered.brokerCheckSum, hostName=HOST, topicList=[topic]
        )
        beaten = link.call(Method.PRODUCER_HEARTBEAT, beat, pb.HeartResponseM2P)
        assert not beaten.brokerInfos  # the check sum is the same
        (metas, most) = read_producer_topic(beaten.topicInfos[0])
        assert [(one.topic, one.broker_id, one.stores, one.partitions) for one in metas] == [(topic, 1, 1, 2)]
        assert most is None
        closed = link.call(Method.PRODUCER_CLOSE, pb.CloseRequestP2M(clientId=client), pb.CloseResponseM2P)
        assert closed.success
        beaten = link.call(Method.PRODUCER_HEARTBEAT, beat, pb.HeartResponseM2P)
        assert beaten.errCode == 411


@rule
def a_producer_stores_in_all_partitions_in_turn(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    producer = Producer(ClientSettings(client_id=client_name(), host=HOST, topics=(topic,)))
    with Link(cluster.master_port) as master, Link(cluster.broker_port) as broker:
        for now in (0.0, 0.0, 10.0):  # the registration, and two heartbeats that both bring the partitions
            made = producer.take_request(now)
            assert made is not None
            producer.answered(answer_of(master.ask(*made)), now)
        assert producer.message_bytes(topic) >= 1 << 20
        for value in numbered(6):
            place = producer.choose(topic, 10.0)
            assert place is not None
            stored = broker.call(Method.SEND, producer.request(place, value), pb.SendMessageResponseB2P)
            assert producer.sent(place, stored, 10.0)
        producer.close(10.0)
        made = producer.take_request(10.0)
        assert made is not None
        producer.answered(answer_of(master.ask(*made)), 10.0)
        assert producer.state is State.CLOSED
    with Reader(cluster, topic, group()) as reader:
        for number in (0, 1):
            reader.register(number)
            assert len(reader.drain(number)) == 3 * (number + 1)
        assert sorted(reader.values()) == numbered(6)


@rule
def offsets_are_those_of_the_store(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    first = send(cluster, topic, [b"a", b"b"], 0)
    second = send(cluster, topic, [b"c"], 1)
    assert [one.appendOffset for one in (*first, *second)] == [0, ENTRY, 2 * ENTRY]
    assert all(one.success and one.errMsg == str(one.messageId) for one in first)


@rule
def what_a_broker_does_not_store(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    (nowhere,) = send(cluster, topic, [b"x"], 7)
    assert nowhere.errCode == 403
    (unknown,) = send(cluster, "nowhere", [b"x"])
    assert unknown.errCode == 403
    with Link(cluster.broker_port) as link:
        request = pb.SendMessageRequestP2B(
            clientId=client_name(), topicName=topic, partitionId=0, data=b"x", flag=0, checkSum=1, sentAddr=1
        )
        assert link.call(Method.SEND, request, pb.SendMessageResponseB2P).errCode == 403
        request.checkSum = -1
        assert link.call(Method.SEND, request, pb.SendMessageResponseB2P).errCode == 200
        request.data = b""
        assert link.call(Method.SEND, request, pb.SendMessageResponseB2P).errCode == 400
    with Reader(cluster, topic, group()) as reader:
        reader.register()
        assert reader.drain() == [b"x"]


@rule
def an_empty_value_is_stored_behind_an_empty_list_of_attributes(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    (stored,) = send(cluster, topic, [b""])
    assert stored.errCode == 200
    with Reader(cluster, topic, group()) as reader:
        reader.register()
        assert reader.drain() == [b""]
        assert [row["headers"] for row in reader.link.rows] == [None]


# --- reading


@rule
def messages_come_back_as_they_were_sent(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    values = [b"hello", b"\x00\xff" * 20_000, b"y"]
    attributes = [{}, {"$msgType$": "aaa", "$msgTime$": "202601011200", "k": "v"}, {}]
    sent = send(cluster, topic, values, attributes=attributes)
    with Reader(cluster, topic, group()) as reader:
        registered = reader.register()
        assert (registered.currOffset, registered.maxOffset) == (0, 3 * ENTRY)
        assert reader.drain() == values
        rows = reader.link.rows
        assert [row["messageId"] for row in rows] == [one.messageId for one in sent]
        assert [row["msgType"] for row in rows] == ["", "aaa", ""]
        assert [row["eventTime"] is not None for row in rows] == [False, True, False]
        assert [(row["offset"], row["row"]) for row in rows] == [(0, 0), (0, 1), (0, 2)]
        assert rows[1]["headers"][2] == {"key": "k", "value": b"v"}


@rule
def a_get_skips_what_other_partitions_have(cluster: Cluster) -> None:
    """The broker moves the position behind the skipped entries, also where it answers 404."""
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(3), 0)
    with Reader(cluster, topic, group()) as stock, Reader(cluster, topic, group()) as manual:
        for reader, mode in ((stock, False), (manual, True)):
            reader.register(1)
            while (fetched := reader.get(1, manual=mode)).code == 200:
                assert fetched.messages == 0
            assert (fetched.code, fetched.messages, fetched.offset) == (404, 0, -1)
        send(cluster, topic, [b"late"], 1)
        for reader, mode in ((stock, False), (manual, True)):
            fetched = reader.get(1, manual=mode)
            assert (fetched.code, fetched.messages, fetched.offset, fetched.moved) == (200, 1, 3 * ENTRY, False)
            assert reader.values() == [b"late"]


@rule
def the_end_of_a_partition(cluster: Cluster) -> None:
    with Reader(cluster, cluster.fresh_topic(), group()) as reader:
        reader.register()
        end = reader.get()
        assert (end.code, end.messages, end.offset, end.max_offset, end.lag_bytes) == (404, 0, -1, -1, -1)


@rule
def a_batch_ends_with_the_message_that_fills_it(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(30, 50_000))
    with Reader(cluster, topic, group()) as reader:
        reader.register()
        sizes = [reader.get().messages for _ in range(3)]
        assert sizes[0] in (7, 11)  # 327,680 bytes from a file and 524,288 from memory, of 50,052 each
        assert sizes[1] == 11
        assert sizes[2] == min(11, 30 - sizes[0] - 11)


@rule
def stock_mode_confirms_with_the_next_get(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(20, 50_000))
    with Reader(cluster, topic, group()) as reader:
        reader.register()
        assert reader.get(manual=False).offset == 0
        assert reader.get(manual=False, last_consumed=False).offset == 0
        later = reader.get(manual=False, last_consumed=True).offset
        assert later > 0
        committed = reader.commit(consumed=False)
        assert committed.currOffset == later  # rolled back
        assert reader.get(manual=False).offset == later
        assert reader.commit().currOffset == 20 * ENTRY


@rule
def manual_mode_confirms_with_commit_alone(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(30, 50_000))
    name = group()
    with Reader(cluster, topic, name) as reader:
        reader.register()
        serials = [reader.plan(last_consumed=True) for _ in range(3)]
        offsets = [reader.link.fetched(serial).offset for serial in serials]
        assert offsets in ([0, 7 * ENTRY, 18 * ENTRY], [0, 11 * ENTRY, 22 * ENTRY])
        assert reader.values() == numbered(30, 50_000)[: len(reader.values())]
        assert len(reader.values()) in (29, 30)
        assert reader.register().currOffset == 0  # what was fetched is not confirmed
        assert reader.get().offset == 0
        assert reader.commit(consumed=False).currOffset == 0
        assert reader.get().offset == 0
        reader.get()
        confirmed = reader.commit().currOffset
        assert confirmed % ENTRY == 0
        assert confirmed > 0
        assert reader.unregister().errCode == 200
    with Reader(cluster, topic, name) as reader:
        assert reader.register().currOffset == confirmed


@rule
def a_commit_answers_where_the_next_get_begins(cluster: Cluster) -> None:
    """A 404 at the end moves nothing, so a GET that begins elsewhere has been moved by somebody."""
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(5), 0)
    send(cluster, topic, numbered(3), 1)
    with Reader(cluster, topic, group()) as reader:
        reader.register()
        for sent in (5, 6):
            reader.wait(sent)
            while not reader.get().at_end:
                pass
            confirmed = reader.commit().currOffset
            assert confirmed >= sent * ENTRY
            for _ in range(3):
                assert reader.get().at_end
            send(cluster, topic, [b"later"], 0)
            deadline = time.monotonic() + 20
            while (fetched := reader.get()).code != 200:
                assert time.monotonic() < deadline
            assert (fetched.offset, fetched.moved) == (confirmed, False)


@rule
def a_registration_seeks(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(10))
    with Reader(cluster, topic, group()) as reader:
        assert reader.register(offset=100).currOffset == 84
        assert reader.get().offset == 84
        assert reader.register(offset=10**9).currOffset == 10 * ENTRY
        assert reader.register(offset=0).currOffset == 0
        assert reader.register().currOffset == 0
        assert reader.register(start=Start.ALWAYS_END).currOffset == 10 * ENTRY


@rule
def a_new_group_starts_where_it_says(cluster: Cluster) -> None:
    topic = cluster.fresh_topic()
    send(cluster, topic, numbered(4))
    for start, offset in ((Start.OLDEST, 0), (Start.END, 4 * ENTRY), (Start.ALWAYS_END, 4 * ENTRY)):
        with Reader(cluster, topic, group()) as reader:
            assert reader.register(start=start).currOffset == offset


@rule
def the_end_of_a_registration_may_confirm_the_last_batch(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    send(cluster, topic, numbered(5))
    for confirm, offset in ((False, 0), (True, 5 * ENTRY)):
        with Reader(cluster, topic, name) as reader:
            assert reader.register().currOffset == 0
            assert reader.get(manual=False).messages == 5
            assert reader.unregister(confirm=confirm).errCode == 200
            assert reader.unregister().errCode == 411
        with Reader(cluster, topic, name) as reader:
            assert reader.register().currOffset == offset
            reader.unregister()


@rule
def a_partition_has_one_owner_in_a_group(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    send(cluster, topic, numbered(3))
    with Reader(cluster, topic, name) as owner, Reader(cluster, topic, name) as other:
        assert owner.register().errCode == 200
        assert other.register().errCode == 410
        assert other.get().code == 412
        assert other.commit().errCode == 401
        assert other.unregister().errCode == 412
        assert other.get(1).code == 411
        assert other.register(1).errCode == 200
        failed = other.heartbeat(0, 1)
        assert (failed.success, failed.hasPartFailure) == (True, True)
        (told,) = failed.failureInfo
        assert told == f"412:{other.partition(0)}"
        missing = owner.heartbeat(0, 9)
        assert list(missing.failureInfo) == [f"411:{owner.partition(9)}"]
        assert other.register(7).errCode == 500
        assert owner.unregister().errCode == 200
        assert other.register().errCode == 200


@rule
def filters_choose_by_type(cluster: Cluster) -> None:
    types = ("aaa", "bbb", "aaa", "")
    attributes = [{"$msgType$": one} if one else {} for one in types]
    topic = cluster.flushed_topic()
    before = send(cluster, topic, numbered(4), attributes=attributes)[0].appendOffset
    with Reader(cluster, topic, group(), types=["aaa"]) as reader:
        assert reader.register(offset=before).errCode == 200
        assert reader.wait(2) == [b"0 ", b"2 "]
