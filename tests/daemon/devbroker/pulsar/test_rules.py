"""The dev broker enforces the protocol: whoever breaks a rule is told, loses the connection, and is on the list."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, Record, encode_batch_entry, encode_send, encode_single_entry
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from tests.support import golden
from tests.support.pulsar.raw_client import Peer, full, message_id

Command = pb.BaseCommand
NOW = 1_700_000_000_000


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return factory


@contextmanager
def serving(**options: Any) -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(replace(PulsarOptions(), **options))) as broker:
        yield broker


@pytest.fixture
def broker(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(), loop_factory=loop_factory) as broker:
        broker.create_topic("t")
        yield broker


def batches(*sizes: int) -> list[Entry]:
    """Entries of so many messages; 0 is one outside a batch."""
    entries = []
    for number, size in enumerate(sizes):
        records = [Record(value=b"%d.%d" % (number, place)) for place in range(max(size, 1))]
        if size:
            entry = encode_batch_entry(records, producer_name="p", sequence_id=100 * number, publish_time=NOW + number)
        else:
            entry = encode_single_entry(records[0], producer_name="p", sequence_id=100 * number, publish_time=NOW)
        entries.append(entry)
    return entries


# --- broken rules


def subscribe_twice(peer: Peer) -> None:
    peer.subscribed("t")
    peer.subscribe("t")


def flow_of_nothing(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(0)


def flow_above_the_window(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(10)
    peer.messages(3)  # 1 + 3 + 2 messages
    peer.flow(7)


def ack_of_what_is_not_there(peer: Peer) -> None:
    peer.subscribed("t")
    peer.ack((3, 99))


def ack_of_what_was_not_delivered(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(1)
    peer.messages(1)
    peer.ack((3, 1))


def ack_after_close(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(1)
    peer.messages(1)
    peer.send(Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=peer.next_id()))
    peer.take(Command.SUCCESS)
    peer.ack((3, 0))


def cumulative_on_shared(peer: Peer) -> None:
    peer.subscribed("t", kind="Shared")
    peer.flow(1)
    peer.messages(1)
    peer.ack((3, 0), cumulative=True)


def cumulative_of_two(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(4)
    peer.messages(2)
    peer.ack((3, 0), (3, 1), cumulative=True)


def ack_of_nothing(peer: Peer) -> None:
    peer.subscribed("t")
    peer.ack()


def ack_with_an_empty_set(peer: Peer) -> None:
    peer.subscribed("t")
    peer.flow(4)
    peer.messages(2)
    peer.ack(message_id(3, 1, ack_set=[0]))


def request_id_again(peer: Peer) -> None:
    peer.subscribed("t")
    seek = pb.CommandSeek(consumer_id=1, request_id=1, message_id=message_id(3, 0))
    peer.send(Command.SEEK, seek=seek)


def connect_again(peer: Peer) -> None:
    peer.send(Command.CONNECT, connect=pb.CommandConnect(client_version="peer"))


def answer_of_a_broker(peer: Peer) -> None:
    peer.send(Command.SEND_RECEIPT, send_receipt=pb.CommandSendReceipt(producer_id=1, sequence_id=1))


def send_without_producer(peer: Peer) -> None:
    peer.send_bytes(encode_send(7, batches(1)[0]))


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (subscribe_twice, "SUBSCRIBE for consumer 1, which is open on this connection: close it first"),
        (flow_of_nothing, "FLOW of 0 permits for consumer 1"),
        (flow_above_the_window, "FLOW of 7 gives consumer 1 11 permits, its window is 10"),
        (lambda peer: peer.flow(1, consumer_id=9), "FLOW for consumer 9, which is not open"),
        (lambda peer: peer.ack((3, 0), consumer_id=9), "ACK for consumer 9, which is not open"),
        (ack_of_what_is_not_there, "ACK of 3:99, which persistent://public/default/t does not have"),
        (ack_of_what_was_not_delivered, "ACK of 3:1, which was never delivered on 's'"),
        (ack_after_close, "ACK for consumer 1, which is not open"),
        (cumulative_on_shared, "cumulative ACK on the Shared subscription 's'"),
        (cumulative_of_two, "cumulative ACK of 2 ids"),
        (ack_of_nothing, "ACK without a message id"),
        (ack_with_an_empty_set, "ACK of 3:1 with an empty ack_set: an entry that is done is acked without one"),
        (request_id_again, "SEEK with request id 1, which was used before"),
        (connect_again, "a second CONNECT"),
        (answer_of_a_broker, "SEND_RECEIPT is no command for a broker"),
        (send_without_producer, "SEND of producer 7, which is not open"),
    ],
)
def test_a_broken_rule_ends_the_connection(
    broker: PulsarDevBroker, break_it: Callable[[Peer], None], text: str
) -> None:
    broker.append("t", batches(1, 3, 2))
    with Peer(broker.url) as peer:
        break_it(peer)
        assert peer.closed_with() == f"protocol violation: {text}"
    assert broker.violations == [text]


def test_flow_has_to_wait_for_the_answer_to_subscribe() -> None:
    with serving(subscribe_delay_s=0.2) as broker:
        with Peer(broker.url) as peer:
            peer.subscribe("t")
            peer.flow(10)
            assert "FLOW for consumer 1 before its SUBSCRIBE was answered" in peer.closed_with()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("00000003 00000000", "totalSize at byte 0: 3 is not within 4 and 5253120"),
        ("7fffffff 00000000", "totalSize at byte 0: 2147483647 is not within 4 and 5253120"),
        ("00000008 00000005 00000000", "commandSize at byte 4: 5 in a frame of 8"),
        ("00000008 00000004 ffffffff", "BaseCommand at byte 8"),
        ("00000006 00000002 080b", "FLOW without"),
    ],
)
def test_broken_framing_ends_the_connection(broker: PulsarDevBroker, data: str, text: str) -> None:
    with Peer(broker.url) as peer:
        peer.send_bytes(bytes.fromhex(data))
        assert text in peer.closed_with()
    assert len(broker.violations) == 1 and text in broker.violations[0]


def test_nothing_before_connected(broker: PulsarDevBroker) -> None:
    with Peer(broker.url, connect=False) as peer:
        peer.send_bytes(golden.load("pulsar_e03_lookup"))
        assert peer.closed_with() == "protocol violation: LOOKUP before CONNECTED"


def test_lookups_have_numbers_of_their_own(broker: PulsarDevBroker) -> None:
    """The official C++ client counts them apart."""
    with Peer(broker.url) as peer:
        peer.subscribed("t")
        peer.send(Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=full("t"), request_id=1))
        peer.take(Command.LOOKUP_RESPONSE)
    assert broker.violations == []


def test_what_was_on_the_way_when_the_broker_closed_is_no_broken_rule(broker: PulsarDevBroker) -> None:
    broker.append("t", batches(1, 1))
    with Peer(broker.url) as peer:
        peer.subscribed("t")
        peer.flow(1)
        peer.messages(1)
        broker.unload("t")
        peer.take(Command.CLOSE_CONSUMER)
        peer.flow(1)
        peer.ack((3, 0))
        request_id = peer.next_id()
        peer.ack((3, 0), request_id=request_id)
        assert peer.take(Command.ACK_RESPONSE).ackResponse.error == pb.ConsumerNotFound
        peer.subscribed("t")
        peer.flow(5)
        assert peer.messages(2) == [(3, 0), (3, 1)]
    assert broker.violations == []


# --- connection


def test_the_worked_frames_are_understood(broker: PulsarDevBroker) -> None:
    broker.create_topic("ev")
    broker.append("ev", batches(0, 3))
    with Peer(broker.url, connect=False) as peer:
        peer.send_bytes(golden.load("pulsar_e01_connect"))
        assert peer.receive()[0].connected.protocol_version == 21
        peer.send_bytes(golden.load("pulsar_e03_lookup"))
        found = peer.take(Command.LOOKUP_RESPONSE).lookupTopicResponse
        assert (found.response, found.brokerServiceUrl) == (pb.CommandLookupTopicResponse.Connect, broker.url)
        peer.send_bytes(golden.load("pulsar_e04_subscribe"))
        assert peer.take(Command.SUCCESS).success.request_id == 2
        peer.send_bytes(golden.load("pulsar_e05_flow"))
        assert [at for _, at in peer.messages(2)] == [0, 1]
        peer.send_bytes(golden.load("pulsar_e09_ping"))
        command, _ = peer.receive()
        assert command.SerializeToString() == golden.load("pulsar_e10_pong")[8:]
    assert broker.violations == []


def test_versions_and_flags() -> None:
    flags = pb.FeatureFlags(supports_topic_watchers=True)
    with serving(protocol_version=15, max_message_size=1000, feature_flags=flags) as broker:
        with Peer(broker.url) as peer:
            assert peer.connected is not None
            assert (peer.connected.protocol_version, peer.connected.max_message_size) == (15, 1000)
            assert peer.connected.feature_flags == flags
        with Peer(broker.url, protocol_version=12) as peer:
            assert peer.connected is not None and peer.connected.protocol_version == 12
            peer.send_bytes((11_241).to_bytes(4, "big") + (4).to_bytes(4, "big"))
            assert "not within 4 and 11240" in peer.closed_with()


def test_tokens() -> None:
    with serving(token="secret") as broker:
        for wrong in ({}, {"auth_method_name": "token", "auth_data": b"guess"}, {"auth_data": b"secret"}):
            with Peer(broker.url, connect=False) as peer:
                answer = peer.connect(**wrong)
                assert answer.error.error == pb.AuthenticationError
                assert peer.closed_with() == ""
        with Peer(broker.url, auth_method_name="token", auth_data=b"secret") as peer:
            broker.challenge()
            assert peer.take(Command.AUTH_CHALLENGE).authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
            response = pb.AuthData(auth_method_name="token", auth_data=b"secret")
            peer.send(Command.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse(response=response))
            assert peer.is_silent()
            response.auth_data = b"stale"
            peer.send(Command.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse(response=response))
            assert peer.closed_with() == "Failed to authenticate"
        assert broker.violations == []


def test_a_silent_client_is_pinged_and_dropped() -> None:
    with serving(keep_alive_s=0.25) as broker:
        with Peer(broker.url) as peer:
            for _ in range(2):
                peer.take(Command.PING)
                peer.send(Command.PONG, pong=pb.CommandPong())
            peer.take(Command.PING)
            with pytest.raises((EOFError, ConnectionError)):
                peer.receive()


def test_a_connection_can_be_cut_in_mid_frame(broker: PulsarDevBroker) -> None:
    broker.append("t", batches(1, 1, 1))
    with Peer(broker.url) as peer:
        peer.subscribed("t")
        broker.cut_after(100)
        peer.flow(10)
        assert len(peer.exactly(100)) == 100
        with pytest.raises(EOFError):
            peer.exactly(1)
    with Peer(broker.url) as peer:
        peer.subscribed("t")
        peer.flow(10)
        peer.messages(3)


def test_a_restart_keeps_what_is_stored(broker: PulsarDevBroker) -> None:
    broker.append("t", batches(2))
    url = broker.url
    with Peer(url) as peer:
        broker.restart(down_s=0.01)
        with pytest.raises((EOFError, ConnectionError)):
            peer.receive()
    assert broker.url == url and broker.messages("t") == 2
    with Peer(url) as peer:
        peer.subscribed("t")
        peer.flow(2)
        peer.messages(1)


def test_it_serves_as_a_process() -> None:
    code = """
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import serve

broker = PulsarDevBroker(PulsarOptions(token="x"))
broker.create_topic("t", 2)
serve(broker, 0, ready=lambda url: print(url, flush=True))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with Peer(url, auth_method_name="token", auth_data=b"x") as peer:
            assert partitions_of(peer, "t").partitions == 2
        process.terminate()
        assert process.wait(60) == 0


def test_a_stopped_broker_can_still_be_asked() -> None:
    with serving() as broker:
        broker.create_topic("t")
    broker.append("t", batches(2))
    assert broker.messages("t") == 2


# --- topics


def partitions_of(peer: Peer, topic: str, **parts: Any) -> pb.CommandPartitionedTopicMetadataResponse:
    request = pb.CommandPartitionedTopicMetadata(topic=full(topic), request_id=peer.next_id(), **parts)
    peer.send(Command.PARTITIONED_METADATA, partitionMetadata=request)
    return peer.take(Command.PARTITIONED_METADATA_RESPONSE).partitionMetadataResponse


def test_partitions(broker: PulsarDevBroker) -> None:
    broker.create_topic("parts", 3)
    with Peer(broker.url) as peer:
        assert partitions_of(peer, "parts").partitions == 3
        assert partitions_of(peer, "t").partitions == 0
        assert partitions_of(peer, "missing", metadata_auto_creation_enabled=False).error == pb.TopicNotFound
        assert partitions_of(peer, "made").response == pb.CommandPartitionedTopicMetadataResponse.Success
        request_id = peer.subscribe("parts")
        error = peer.take(Command.ERROR).error
        assert (error.request_id, error.error) == (request_id, pb.NotAllowedError)
        peer.subscribe("parts-partition-3")
        assert peer.take(Command.ERROR).error.error == pb.TopicNotFound
        peer.subscribed("parts-partition-2")


def test_topics_are_made_only_where_that_is_allowed() -> None:
    with serving(auto_create=False) as broker:
        with Peer(broker.url) as peer:
            assert partitions_of(peer, "new").error == pb.TopicNotFound
            peer.send(Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=full("new"), request_id=peer.next_id()))
            assert peer.take(Command.LOOKUP_RESPONSE).lookupTopicResponse.error == pb.TopicNotFound
            peer.subscribe("new")
            assert peer.take(Command.ERROR).error.error == pb.TopicNotFound
    with serving(auto_create_partitions=4) as broker:
        with Peer(broker.url) as peer:
            assert partitions_of(peer, "new").partitions == 4


def test_redirects(broker: PulsarDevBroker) -> None:
    broker.redirect("pulsar://127.0.0.1:1", times=2)
    with Peer(broker.url) as peer:
        seen = []
        for _ in range(3):
            peer.send(Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=full("t"), request_id=peer.next_id()))
            answer = peer.take(Command.LOOKUP_RESPONSE).lookupTopicResponse
            seen.append((answer.response, answer.brokerServiceUrl, answer.authoritative))
    kinds = pb.CommandLookupTopicResponse
    elsewhere = (kinds.Redirect, "pulsar://127.0.0.1:1", True)
    assert seen == [elsewhere, elsewhere, (kinds.Connect, broker.url, True)]


def test_topics_of_a_namespace(broker: PulsarDevBroker) -> None:
    broker.create_topic("parts", 2)
    broker.create_topic("persistent://other/ns/x")

    def ask(**parts: Any) -> pb.CommandGetTopicsOfNamespaceResponse:
        request = pb.CommandGetTopicsOfNamespace(request_id=peer.next_id(), namespace="public/default", **parts)
        peer.send(Command.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
        return peer.take(Command.GET_TOPICS_OF_NAMESPACE_RESPONSE).getTopicsOfNamespaceResponse

    with Peer(broker.url) as peer:
        everything = ask()
        names = [full("parts-partition-0"), full("parts-partition-1"), full("t")]
        assert list(everything.topics) == names and everything.changed and not everything.filtered
        assert not ask(topics_hash=everything.topics_hash).changed
        found = ask(topics_pattern="persistent://public/default/pa.*")
        assert list(found.topics) == names[:2] and found.filtered
        assert not ask(topics_pattern="public/default/" + "x" * 50).filtered


def test_a_topic_without_a_schema_has_none(broker: PulsarDevBroker) -> None:
    with Peer(broker.url) as peer:
        peer.send(Command.GET_SCHEMA, getSchema=pb.CommandGetSchema(request_id=6, topic=full("t")))
        assert peer.take(Command.GET_SCHEMA_RESPONSE).getSchemaResponse.error_code == pb.TopicNotFound


def test_a_topic_made_again_is_another_one(broker: PulsarDevBroker) -> None:
    before = broker.append("t", batches(1))
    with Peer(broker.url) as peer:
        peer.subscribed("t")
        broker.delete_topic("t")
        peer.take(Command.CLOSE_CONSUMER)
        broker.create_topic("t")
        after = broker.append("t", batches(1))
        assert after[0][0] > before[0][0] and after[0][1] == 0
        peer.subscribed("t")
        peer.flow(1)
        assert peer.messages(1) == after
        peer.ack(before[0])  # from before: gone, and no broken rule
        peer.acked(after[0])
    assert broker.violations == [] and broker.backlog("t", "s") == 0


def test_ledgers_change() -> None:
    with serving(ledger_entries=2) as broker:
        broker.create_topic("t")
        places = broker.append("t", batches(1, 1, 1))
        assert [entry for _, entry in places] == [0, 1, 0]
        assert places[0][0] == places[1][0] < places[2][0]
        broker.unload("t")
        assert broker.append("t", batches(1))[0][0] > places[2][0]
        broker.trim("t", *places[2])
        assert len(broker.positions("t")) == 2
        with Peer(broker.url) as peer:
            peer.subscribed("t")
            peer.flow(10)
            assert peer.messages(2)[0] == places[2]


# --- producers


def test_producing(broker: PulsarDevBroker) -> None:
    with Peer(broker.url) as peer:
        assert peer.produce("t", batches(0, 5)) == [(3, 0), (3, 1)]
        assert broker.positions("t") == [(3, 0, 1), (3, 1, 5)]
        damaged = replace(batches(1)[0], body=batches(1)[0].body[:-1] + b"?")
        peer.send_bytes(encode_send(1, damaged))
        assert peer.take(Command.SEND_ERROR).send_error.error == pb.ChecksumError
        broker.unload("t")
        peer.take(Command.CLOSE_PRODUCER)
        peer.send_bytes(encode_send(1, batches(1)[0]))  # was on the way
        broker.terminate("t")
        peer.send(Command.PRODUCER, producer=pb.CommandProducer(topic=full("t"), producer_id=1, request_id=99))
        assert peer.take(Command.ERROR).error.error == pb.TopicTerminatedError
    assert broker.violations == []
    assert broker.messages("t") == 6


def test_an_exclusive_producer_is_alone(broker: PulsarDevBroker) -> None:
    def ask(producer_id: int, mode: str, name: str = "") -> int:
        request = pb.CommandProducer(
            topic=full("t"), producer_id=producer_id, request_id=peer.next_id(), producer_access_mode=mode
        )
        if name:
            request.producer_name = name
        peer.send(Command.PRODUCER, producer=request)
        answer = peer.take(Command.PRODUCER_SUCCESS, Command.ERROR)
        return answer.error.error if answer.type == Command.ERROR else -1

    with Peer(broker.url) as peer:
        assert ask(1, "Exclusive", "a") == -1
        assert ask(2, "Shared") == pb.ProducerBusy
        assert ask(2, "Exclusive") == pb.ProducerFenced
        peer.send(
            Command.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=peer.next_id())
        )
        peer.take(Command.SUCCESS)
        assert ask(1, "Shared", "a") == -1
        assert ask(2, "Shared", "a") == pb.ProducerBusy
