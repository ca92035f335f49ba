"""Commands that brokers send without a request: events for consumers, for producers, for the lists of topics."""

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.event import (
    ActiveChanged,
    ConsumerClosed,
    EndOfTopic,
    ProducerClosed,
    ProducerMigrated,
    ProducerQueued,
    Reply,
    SendConfirmed,
    SendRefused,
    TopicMigrated,
    TopicsChanged,
)
from fastwire.pulsar.protocol.request import Kind
from tests.support import golden
from tests.support.pulsar.connection_scene import TOPIC, C, Wire


def test_notices_become_events() -> None:
    wire = Wire()
    wire.ready()
    closed = pb.CommandCloseConsumer(consumer_id=3, request_id=0, assignedBrokerServiceUrl="pulsar://n")
    assert wire.say(C.CLOSE_CONSUMER, close_consumer=closed) == [ConsumerClosed(3, "pulsar://n", "")]
    change = pb.CommandActiveConsumerChange(consumer_id=3, is_active=True)
    assert wire.say(C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change) == [ActiveChanged(3, True)]
    end = pb.CommandReachedEndOfTopic(consumer_id=3)
    assert wire.say(C.REACHED_END_OF_TOPIC, reachedEndOfTopic=end) == [EndOfTopic(3)]
    moved = pb.CommandTopicMigrated(
        resource_id=3, resource_type=pb.CommandTopicMigrated.Consumer, brokerServiceUrlTls="pulsar+ssl://n"
    )
    assert wire.say(C.TOPIC_MIGRATED, topicMigrated=moved) == [TopicMigrated(3, "", "pulsar+ssl://n")]
    changed = pb.CommandWatchTopicUpdate(watcher_id=1, new_topics=["a", "b"], deleted_topics=["c"], topics_hash="h")
    (event,) = wire.say(C.WATCH_TOPIC_UPDATE, watchTopicUpdate=changed)
    assert event == TopicsChanged(1, ("a", "b"), ("c",), "h")


def test_what_brokers_say_to_producers() -> None:
    wire = Wire()
    wire.ready()
    place = pb.MessageIdData(ledgerId=7, entryId=8)
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=2, message_id=place)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 2, Position(7, 8))]
    nowhere = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=3, message_id=nowhere)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 3, Position(-1, -1))]
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=4)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 4, Position(-1, -1))]
    refusal = pb.CommandSendError(producer_id=1, sequence_id=5, error=pb.ChecksumError, message="no")
    (event,) = wire.say(C.SEND_ERROR, send_error=refusal)
    assert isinstance(event, SendRefused)
    assert (event.producer_id, event.sequence_id, str(event.error)) == (1, 5, "ChecksumError: no")
    closed = pb.CommandCloseProducer(producer_id=1, request_id=0, assignedBrokerServiceUrlTls="pulsar+ssl://n")
    assert wire.say(C.CLOSE_PRODUCER, close_producer=closed) == [ProducerClosed(1, "", "pulsar+ssl://n")]
    moved = pb.CommandTopicMigrated(
        resource_id=1, resource_type=pb.CommandTopicMigrated.Producer, brokerServiceUrl="pulsar://n"
    )
    assert wire.say(C.TOPIC_MIGRATED, topicMigrated=moved) == [ProducerMigrated(1, "pulsar://n", "")]


def ask_for_a_producer(wire: Wire) -> int:
    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=request_id)
        return C(type=C.PRODUCER, producer=ask)

    request_id = wire.connection.request(Kind.PRODUCER, command, wire.now)
    (said,) = wire.heard()
    assert said.producer.request_id == request_id
    return request_id


def test_a_producer_may_have_to_wait_its_turn() -> None:
    """The first answer says only that; the second one is the answer, however late it comes."""
    wire = Wire()
    wire.ready()
    request_id = ask_for_a_producer(wire)
    assert wire.connection.awaiting
    success = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=False)
    assert wire.say(C.PRODUCER_SUCCESS, producer_success=success) == [ProducerQueued(request_id)]
    assert not wire.connection.awaiting
    wire.now += 29
    wire.say(C.PONG, pong=pb.CommandPong())
    wire.now += 2
    assert wire.connection.tick(wire.now) == ()
    success.producer_ready = True
    (event,) = wire.say(C.PRODUCER_SUCCESS, producer_success=success)
    assert isinstance(event, Reply)
    assert (event.request_id, event.kind, event.error) == (request_id, Kind.PRODUCER, None)
    assert wire.say(C.PRODUCER_SUCCESS, producer_success=success) == []  # it is answered
    request_id = ask_for_a_producer(wire)
    success = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=False)
    wire.say(C.PRODUCER_SUCCESS, producer_success=success)
    error = pb.CommandError(request_id=request_id, error=pb.ProducerFenced, message="")
    (event,) = wire.say(C.ERROR, error=error)
    assert isinstance(event, Reply)
    assert event.error is not None


def test_a_ping_is_answered_at_once() -> None:
    wire = Wire()
    wire.ready()
    assert wire.feed(golden.load("pulsar_e09_ping")) == []
    assert b"".join(wire.connection.take_outbound()) == golden.load("pulsar_e10_pong")
