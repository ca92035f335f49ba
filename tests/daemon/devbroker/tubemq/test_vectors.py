"""The embedded Master and Broker answer the golden requests as the real ones did."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, decode_response, encode_frame
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.devbroker.tubemq.broker import BROKER, HANDLERS, MASTER
from fastwire_daemon.devbroker.tubemq.connection import TubeMQConnection
from tests.daemon.devbroker.tubemq.embedded import Embedded
from tests.support.tubemq.client import Link, answer_of
from tests.support.tubemq.golden import EXAMPLES, content_of

GOLDEN = {one.name: one for one in EXAMPLES if "message" in one.entry}
TOKEN = 1795248762351
LOOP = asyncio.new_event_loop()
IDS = (2159096963520266240, 2159092028103720960, 2159086881189396480)


@pytest.fixture(name="cluster")
def serving() -> Iterator[Embedded]:
    """The topic of the golden frames, with its three messages, read as from the file."""
    with running(TubeMQDevBroker(TubeMQOptions(from_file=True))) as broker:
        broker.create_topic("gold", 2)
        broker.visit_token = TOKEN
        broker.append("gold", b"hello")
        broker.append("gold", b"world", attributes={"$msgType$": "aaa", "$msgTime$": "202601011200"})
        broker.append("gold", b"B" * 20_000, 1)
        for message, number in zip(broker.topics["gold"].stores[0].messages, IDS, strict=True):
            message.id = number
        yield Embedded(broker)
        assert broker.violations == []


def exchange(peer: socket.socket, frame: bytes) -> bytes:
    """Send a frame as it is, and return the frame of one block that comes back."""
    peer.sendall(frame)
    with peer.makefile("rb") as file:
        head = file.read(16)
        return head + file.read(int.from_bytes(head[12:]))


def ask(link: Link, name: str, **fields: Any) -> Message:
    """Send a golden request, with other ``fields``."""
    example = GOLDEN[f"{name}_request"]
    body = example.body
    for key, value in fields.items():
        setattr(body, key, value)
    return answer_of(link.ask(Method(example.entry["method"]), body))


def real(name: str) -> Any:
    return GOLDEN[f"{name}_response"].body


def register(link: Link, number: int, group: str) -> None:
    body = GOLDEN["e04_request"].body
    assert isinstance(body, pb.RegisterRequestC2B)
    body.partitionId, body.groupName = number, group
    answer_of(link.ask(Method.BROKER_REGISTER, body))


def test_registration_get_and_commit_byte_for_byte(cluster: Embedded) -> None:
    with socket.create_connection(("127.0.0.1", cluster.broker_port)) as peer:
        for name in ("e04", "e05"):
            assert exchange(peer, GOLDEN[f"{name}_request"].frame) == GOLDEN[f"{name}_response"].frame, name
        # The real read ended where its file did, before the message of the other partition.
        wanted = bytearray(GOLDEN["e06_response"].frame)
        wanted[-3] = 84
        assert exchange(peer, GOLDEN["e06_request"].frame) == wanted


def test_heartbeat_and_the_end_of_a_registration(cluster: Embedded) -> None:
    with Link(cluster.broker_port) as link:
        for number in (0, 1):
            register(link, number, "fw")
        held = [f"1:127.0.0.1:{cluster.broker_port}#gold:{number}" for number in (0, 9)]
        body = GOLDEN["e10_request"].body
        assert isinstance(body, pb.HeartBeatRequestC2B)
        body.partitionInfo[:] = held
        wanted = real("e10")
        wanted.failureInfo[:] = [f"411:{held[1]}"]
        assert answer_of(link.ask(Method.BROKER_HEARTBEAT, body)) == wanted
        assert ask(link, "e11") == real("e11")


def test_the_end_byte_for_byte(cluster: Embedded) -> None:
    with Link(cluster.broker_port) as link:
        register(link, 1, "fw3")
    cluster.broker.topics["gold"].stores[0].messages[2].partition = 0
    with socket.create_connection(("127.0.0.1", cluster.broker_port)) as peer:
        exchange(peer, GOLDEN["e07_request"].frame)
        assert exchange(peer, GOLDEN["e08_request"].frame) == GOLDEN["e08_response"].frame


def test_a_read_from_memory_skips_with_404() -> None:
    with running(TubeMQDevBroker()) as broker:
        broker.create_topic("gold", 2)
        broker.produce("gold", [b"x"] * 3)
        with Link(broker.ports[1]) as link:
            register(link, 1, "fw3")
        with socket.create_connection(("127.0.0.1", broker.ports[1])) as peer:
            content = content_of(exchange(peer, GOLDEN["e07_request"].frame))
    answer, wanted = decode_response(content, Method.GET), real("e22")
    assert isinstance(answer, pb.GetMessageResponseB2C)
    assert answer.minLimitTime > 0
    wanted.minLimitTime = answer.minLimitTime
    assert answer == wanted


def test_the_master_of_a_client_balanced_group(cluster: Embedded) -> None:
    ids = {"brokerConfigId": cluster.broker.broker_list_id, "topicMetaInfoId": cluster.broker.topic_list_id}
    with Link(cluster.master_port) as link:
        for name in ("e13", "e14", "e15"):
            wanted = real(name)
            for field, value in ids.items():
                if field in wanted.DESCRIPTOR.fields_by_name and wanted.HasField(field):
                    setattr(wanted, field, value)
            if name == "e13":
                wanted.brokerConfigList[:] = [f"1:127.0.0.1:{cluster.broker_port}"]
                answer = ask(link, name)
            elif name == "e14":
                answer = ask(link, name, brokerConfigId=ids["brokerConfigId"])
            else:
                answer = ask(link, name)
            assert answer == wanted, name


def test_the_master_of_a_server_balanced_group(cluster: Embedded) -> None:
    with Link(cluster.master_port) as link:
        assert ask(link, "e01") == real("e01")
        answer, wanted = ask(link, "e02"), real("e02")
        assert isinstance(answer, pb.HeartResponseM2C)
        assert sorted(answer.event.subscribeInfo) == [
            text.replace("18123", str(cluster.broker_port)) for text in sorted(wanted.event.subscribeInfo)
        ]
        assert answer.event.opType == wanted.event.opType
        assert not answer.event.HasField("status")
        result = GOLDEN["e03_request"].body
        assert isinstance(result, pb.HeartRequestC2M)
        result.event.rebalanceId = answer.event.rebalanceId
        result.subscribeInfo[:] = answer.event.subscribeInfo
        assert answer_of(link.ask(Method.CONSUMER_HEARTBEAT, result)) == real("e03")
        assert ask(link, "e12") == real("e12")


def test_the_master_of_a_producer_and_its_messages(cluster: Embedded) -> None:
    with Link(cluster.master_port) as link, Link(cluster.broker_port) as broker:
        answer, wanted = ask(link, "e16"), real("e16")
        assert isinstance(answer, pb.RegisterResponseM2P)
        wanted.brokerCheckSum, wanted.appdConfig.configId = answer.brokerCheckSum, answer.appdConfig.configId
        wanted.brokerInfos[:] = [f"1:127.0.0.1:{cluster.broker_port}"]
        assert answer == wanted
        stored = ask(broker, "e17")
        assert isinstance(stored, pb.SendMessageResponseB2P)
        assert (stored.appendOffset, stored.errMsg) == (84, str(stored.messageId))


@given(st.sampled_from(sorted(name for name in GOLDEN if name.endswith("request"))), st.data())
def test_no_request_makes_the_broker_fail(name: str, data: st.DataObject) -> None:
    content = bytearray(content_of(GOLDEN[name].frame))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    broker = TubeMQDevBroker()
    broker.ports = [1, 2]
    broker._loop = LOOP
    broker.create_topic("gold", 2)
    for services in (MASTER, BROKER):
        connection = TubeMQConnection(broker, services, HANDLERS)
        connection.data_received(encode_frame(1, bytes(content)))
    assert [each for each in broker.violations if each.startswith("the broker failed")] == []


@pytest.mark.parametrize("number", [-1, -10_000, 2, 9_999, 10_000, 2**31 - 1])
def test_partitions_that_do_not_exist(number: int, cluster: Embedded) -> None:
    with Link(cluster.broker_port) as link:
        body = GOLDEN["e04_request"].body
        assert isinstance(body, pb.RegisterRequestC2B)
        body.partitionId = number
        answer = answer_of(link.ask(Method.BROKER_REGISTER, body))
        assert isinstance(answer, pb.RegisterResponseB2C)
        assert answer.errCode == 500
