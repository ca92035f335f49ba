"""Requests of a connection: how they are written, which answer is whose, and what becomes of those without one."""

from itertools import count
from typing import Any

import pytest

from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.protocol.event import Reply, TimedOut
from fastwire.pulsar.protocol.request import Kind, SubscribeRequest
from tests.support import golden
from tests.support.pulsar.connection_scene import CONSUMER, TOPIC, C, Wire


def test_replies_find_their_requests_in_any_order() -> None:
    ids = count(50)
    wire = Wire(request_ids=ids)
    wire.ready()
    connection = wire.connection
    lookup = connection.lookup(TOPIC, wire.now, authoritative=True, listener="inner")
    parts = connection.partitioned_metadata(TOPIC, wire.now)
    last = connection.get_last_message_id(CONSUMER, wire.now)
    assert [lookup, parts, last] == [50, 51, 52]
    asked = wire.heard()
    assert asked[0].lookupTopic.authoritative
    assert asked[0].lookupTopic.advertised_listener_name == "inner"
    assert asked[0].lookupTopic.topic == TOPIC
    assert connection.awaiting
    answer = pb.CommandGetLastMessageIdResponse(request_id=last)
    answer.last_message_id.ledgerId = answer.last_message_id.entryId = 5
    (event,) = wire.say(C.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
    assert (event.request_id, event.kind, event.error) == (last, Kind.GET_LAST_MESSAGE_ID, None)
    found = pb.CommandLookupTopicResponse(
        request_id=lookup, response=pb.CommandLookupTopicResponse.Connect, brokerServiceUrl="pulsar://x"
    )
    (event,) = wire.say(C.LOOKUP_RESPONSE, lookupTopicResponse=found)
    assert event.command.lookupTopicResponse.brokerServiceUrl == "pulsar://x"
    success = pb.CommandPartitionedTopicMetadataResponse.Success
    counted = pb.CommandPartitionedTopicMetadataResponse(request_id=parts, response=success, partitions=4)
    (event,) = wire.say(C.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=counted)
    assert (event.kind, event.error) == (Kind.PARTITIONED_METADATA, None)
    assert not connection.awaiting


def test_each_way_to_say_no() -> None:
    wire = Wire()
    wire.ready()
    connection = wire.connection

    cases: list[tuple[int | None, pb.BaseCommand.Type, str, Any, str]] = [
        (
            connection.lookup(TOPIC, 0.0),
            C.LOOKUP_RESPONSE,
            "lookupTopicResponse",
            pb.CommandLookupTopicResponse(
                response=pb.CommandLookupTopicResponse.Failed, error=pb.ServiceNotReady, message="later"
            ),
            "ServiceNotReady",
        ),
        # Without a kind it must not pass for the default, which is a redirect to nowhere.
        (
            connection.lookup(TOPIC, 0.0),
            C.LOOKUP_RESPONSE,
            "lookupTopicResponse",
            pb.CommandLookupTopicResponse(message="?"),
            "UnknownError",
        ),
        (
            connection.partitioned_metadata(TOPIC, 0.0),
            C.PARTITIONED_METADATA_RESPONSE,
            "partitionMetadataResponse",
            pb.CommandPartitionedTopicMetadataResponse(
                response=pb.CommandPartitionedTopicMetadataResponse.Failed, error=pb.TopicNotFound
            ),
            "TopicNotFound",
        ),
        (
            connection.consumer_stats(CONSUMER, 0.0),
            C.CONSUMER_STATS_RESPONSE,
            "consumerStatsResponse",
            pb.CommandConsumerStatsResponse(error_code=pb.ConsumerNotFound),
            "ConsumerNotFound",
        ),
        (
            connection.ack_cumulative(CONSUMER, Position(1, 2), 0.0),
            C.ACK_RESPONSE,
            "ackResponse",
            pb.CommandAckResponse(consumer_id=CONSUMER, error=pb.MetadataError),
            "MetadataError",
        ),
        (
            connection.seek(CONSUMER, 0.0, publish_time_ms=5),
            C.ERROR,
            "error",
            pb.CommandError(error=pb.NotAllowedError, message="no"),
            "NotAllowedError",
        ),
    ]
    for request_id, kind, name, body, error in cases:
        body.request_id = request_id
        (event,) = wire.say(kind, **{name: body})
        assert isinstance(event, Reply)
        assert event.error is not None
        assert event.error.name == error


def test_an_answer_of_the_wrong_kind_breaks_the_connection() -> None:
    wire = Wire()
    wire.ready()
    request_id = wire.connection.lookup(TOPIC, wire.now)
    with pytest.raises(ProtocolError, match=f"SUCCESS answers request {request_id}, a LOOKUP"):
        wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def test_answers_that_nobody_asked_for_are_dropped() -> None:
    wire = Wire()
    wire.ready()
    assert wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=77)) == []
    assert wire.say(C.ERROR, error=pb.CommandError(request_id=77, error=pb.UnknownError, message="")) == []
    assert wire.say(C.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=1)) == []


def test_requests_time_out_one_by_one_and_late_answers_are_dropped() -> None:
    wire = Wire(operation_timeout_s=30.0)
    wire.ready()
    first = wire.connection.lookup(TOPIC, wire.now)
    second = wire.connection.close_consumer(CONSUMER, wire.now + 5)
    wire.now += 20
    wire.say(C.PONG, pong=pb.CommandPong())
    assert wire.connection.tick(1029.9) == ()
    assert wire.connection.tick(1030.0) == [TimedOut(first, Kind.LOOKUP)]
    assert wire.connection.tick(1036.0) == [TimedOut(second, Kind.CLOSE_CONSUMER)]
    assert not wire.connection.awaiting
    assert wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=second)) == []


def test_subscribe_says_what_a_daemon_wants() -> None:
    wire = Wire()
    wire.ready()
    want = SubscribeRequest(
        topic=TOPIC,
        subscription="s",
        subscription_type=pb.CommandSubscribe.Key_Shared,
        consumer_id=9,
        consumer_name="n",
    )
    request_id = wire.connection.subscribe(want, wire.now)
    (command,) = wire.heard()
    asked = command.subscribe
    assert (asked.topic, asked.subscription, asked.consumer_id, asked.consumer_name) == (TOPIC, "s", 9, "n")
    assert asked.request_id == request_id
    assert asked.durable
    assert asked.initialPosition == pb.CommandSubscribe.Earliest
    assert asked.keySharedMeta.keySharedMode == pb.AUTO_SPLIT
    wire = Wire()
    wire.ready(version=13)
    with pytest.raises(UnsupportedError, match="Key_Shared needs protocol version 14"):
        wire.connection.subscribe(want, wire.now)


def test_seek_to_a_place_or_a_time() -> None:
    wire = Wire()
    wire.ready()
    wire.connection.seek(CONSUMER, wire.now, position=Position(4, 5))
    wire.connection.seek(CONSUMER, wire.now, position=PULSAR_EARLIEST)
    wire.connection.seek(CONSUMER, wire.now, publish_time_ms=0)
    place, earliest, time = (command.seek for command in wire.heard())
    assert (place.message_id.ledgerId, place.message_id.entryId) == (4, 5)
    assert (earliest.message_id.ledgerId, earliest.message_id.entryId) == (2**64 - 1, 2**64 - 1)
    assert time.HasField("message_publish_time")
    assert not time.HasField("message_id")
    with pytest.raises(ValueError):
        wire.connection.seek(CONSUMER, wire.now)
    with pytest.raises(ValueError):
        wire.connection.seek(CONSUMER, wire.now, position=Position(1, 1), publish_time_ms=1)


def test_acks_have_receipts_where_brokers_give_them() -> None:
    wire = Wire()
    wire.ready()
    receipt = wire.connection.ack_cumulative(CONSUMER, Position(7, 8), wire.now)
    runs = wire.connection.ack_runs(CONSUMER, [(7, 0, 1499)], wire.now)
    assert receipt is not None
    assert len(runs) == 2
    one, *others = (command.ack for command in wire.heard())
    assert (one.ack_type, one.request_id) == (pb.CommandAck.Cumulative, receipt)
    assert [len(other.message_id) for other in others] == [1000, 500]
    assert [other.request_id for other in others] == runs
    assert wire.connection.receipts_outstanding == 3
    assert not wire.connection.awaiting  # nobody waits for them
    wire.say(C.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=CONSUMER, request_id=receipt))
    assert wire.connection.receipts_outstanding == 2
    wire = Wire()
    wire.ready(version=16)
    assert wire.connection.ack_cumulative(CONSUMER, Position(7, 8), wire.now) is None
    assert wire.connection.ack_runs(CONSUMER, [(7, 0, 3)], wire.now) == []
    assert not any(command.ack.HasField("request_id") for command in wire.heard())


def test_flow_is_never_nothing() -> None:
    wire = Wire()
    wire.ready()
    wire.connection.flow(7, 1000)
    assert b"".join(wire.connection.take_outbound()) == golden.load("pulsar_e05_flow")
    with pytest.raises(ValueError):
        wire.connection.flow(7, 0)
