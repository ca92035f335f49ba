"""A broker for fuzzing: it leads a conversation with a client by chance, and damages some of what it says."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import encode_command
from fastwire.pulsar.format.payload import Record, encode_batch_entry, encode_chunks, encode_single_entry
from fastwire.pulsar.producing.producer import Phase as Writing
from fastwire.pulsar.protocol.connection import State
from tests.fuzz.client import BATCHING, CHUNKING, ORDERED, SHARED, Client
from tests.fuzz.pulsar import TIME, encrypted, mutate
from tests.support.pulsar.frames import message_frame

T = TypeVar("T")

OF_CONSUMERS = ("stats", "last", "seek", "leave", "close", "hold", "again", "part")

_C = pb.BaseCommand
_ERRORS = (
    pb.UnknownError,
    pb.MetadataError,
    pb.PersistenceError,
    pb.AuthorizationError,
    pb.ConsumerBusy,
    pb.ServiceNotReady,
    pb.ProducerBlockedQuotaExceededError,
    pb.ChecksumError,
    pb.TopicNotFound,
    pb.TooManyRequests,
    pb.TopicTerminatedError,
    pb.NotAllowedError,
    pb.ProducerFenced,
)
_LOOKUPS = (
    pb.CommandLookupTopicResponse.Redirect,
    pb.CommandLookupTopicResponse.Connect,
    pb.CommandLookupTopicResponse.Failed,
)
_COUNTS = (pb.CommandPartitionedTopicMetadataResponse.Success, pb.CommandPartitionedTopicMetadataResponse.Failed)


class Broker:
    """Leads a conversation: the next word of it, by chance."""

    def __init__(self, client: Client, chance: Callable[[], float]) -> None:
        self._client = client
        self._chance = chance
        self._entry = 0

    def word(self) -> str:
        client, chance = self._client, self._chance
        connection = client.connection
        if connection is None:
            return "connect" if chance() < 0.9 else self._ours()
        if connection.state is State.HANDSHAKE:
            return self._feed(self._greeting()) if chance() < 0.9 else f"tick:{chance() * 30:.1f}"
        kind = chance()
        if kind < 0.35:
            return self._ours()
        if kind < 0.65 and client.asked:
            return self._feed(self._answer())
        if kind < 0.75 and client.sent:
            return self._feed(self._receipt())
        return self._feed(self._message() if kind < 0.9 else self._news())

    def _one(self, of: Sequence[T]) -> T:
        return of[int(self._chance() * len(of))]

    def _ours(self) -> str:
        chance = self._chance
        consumer, producer = self._one((ORDERED, SHARED)), self._one((BATCHING, CHUNKING))
        if chance() < 0.02:
            return "lost"
        if chance() < 0.15:
            return f"tick:{self._one((0.2, 0.2, 1.5, 1.5, 20.0, 31.0))}"
        size = self._one((0, 10, 40_000))
        writing = [number for number, one in self._client.producers.items() if one.phase is Writing.OPEN]
        if writing and chance() < 0.5:
            return f"send:{self._one(writing)}:{size}"
        return self._one(
            (
                *(f"subscribe:{consumer}",) * 4,
                *(f"open:{producer}",) * 4,
                *(f"send:{producer}:{size}",) * 6,
                *(f"{name}:{producer}" for name in ("flush", "shut")),
                *(
                    f"{name}:{consumer}"
                    for name in ("stats", "last", "seek", "leave", "close", "hold", "again", "part")
                ),
                *("lookup", "metadata", "list", "watch", "unwatch", "schema", "suspend", "resume"),
            )
        )

    def _feed(self, frame: bytes) -> str:
        chance = self._chance
        damaged = mutate(frame, chance) if chance() < 0.06 else frame
        return f"feed:{bytes(damaged).hex()}"

    def _number(self) -> int:
        """Return a number: a small one, or one at the edge of what fits."""
        return self._one((0, 1, 2, 5, 7, 8, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))

    def _error(self) -> pb.ServerError:
        return self._one(_ERRORS)

    def _greeting(self) -> bytes:
        chance = self._chance
        kind, command = chance(), _C(type=_C.CONNECTED)
        if kind < 0.8:
            command.connected.server_version = "b"
            command.connected.protocol_version = 11 if chance() < 0.02 else self._one((12, 14, 16, 17, 19, 21, 21, 30))
            command.connected.max_message_size = self._one((0, 100, 20_000, 20_000, 5 << 20, (1 << 31) - 1, -1))
            command.connected.feature_flags.supports_topic_watchers = kind < 0.4
        elif kind < 0.9:
            command.type = _C.AUTH_CHALLENGE
            command.authChallenge.challenge.auth_method_name = "token"
        else:
            command.type = _C.ERROR
            command.error.request_id, command.error.error, command.error.message = 0, self._error(), "no"
        return encode_command(command)

    def _answer(self) -> bytes:
        """To one of the questions, mostly to the oldest, mostly the right one."""
        client, chance = self._client, self._chance
        at = 0 if chance() < 0.8 else int(chance() * len(client.asked))
        asked, request_id = client.asked.pop(at) if chance() < 0.9 else client.asked[at]
        if chance() < 0.1:
            return encode_command(
                _C(type=_C.ERROR, error=pb.CommandError(request_id=request_id, error=self._error(), message="no"))
            )
        return encode_command(self._reply_to(asked, request_id))

    def _reply_to(self, asked: int, request_id: int) -> pb.BaseCommand:
        chance = self._chance
        if chance() < 0.02:
            asked = self._one((_C.LOOKUP, _C.SUBSCRIBE, _C.PRODUCER, _C.ACK))
        error = self._error() if chance() < 0.1 else None
        answer = _C()
        if asked == _C.LOOKUP:
            answer.type = _C.LOOKUP_RESPONSE
            found = answer.lookupTopicResponse
            found.request_id, found.response = request_id, self._one(_LOOKUPS)
            found.brokerServiceUrl = self._one(("pulsar://b:6650", "", "pulsar://[", "http://x"))
        elif asked == _C.PARTITIONED_METADATA:
            answer.type = _C.PARTITIONED_METADATA_RESPONSE
            parts = answer.partitionMetadataResponse
            parts.request_id, parts.response, parts.partitions = request_id, self._one(_COUNTS), int(chance() * 5)
        elif asked == _C.GET_LAST_MESSAGE_ID:
            answer.type = _C.GET_LAST_MESSAGE_ID_RESPONSE
            last = answer.getLastMessageIdResponse
            last.request_id = request_id
            last.last_message_id.ledgerId, last.last_message_id.entryId = self._number(), self._number()
        elif asked == _C.CONSUMER_STATS:
            answer.type = _C.CONSUMER_STATS_RESPONSE
            answer.consumerStatsResponse.request_id = request_id
            if error is not None:
                answer.consumerStatsResponse.error_code = error
        elif asked == _C.ACK:
            answer.type = _C.ACK_RESPONSE
            answer.ackResponse.consumer_id, answer.ackResponse.request_id = ORDERED, request_id
            if error is not None:
                answer.ackResponse.error = error
        elif asked == _C.PRODUCER:
            answer.type = _C.PRODUCER_SUCCESS
            made = answer.producer_success
            made.request_id, made.producer_name = request_id, "given"
            made.last_sequence_id = self._one((-1, -1, 5, (1 << 63) - 1, -(1 << 63)))
            made.producer_ready = chance() < 0.9
            made.topic_epoch = self._number()
        elif asked == _C.GET_TOPICS_OF_NAMESPACE:
            answer.type = _C.GET_TOPICS_OF_NAMESPACE_RESPONSE
            answer.getTopicsOfNamespaceResponse.request_id = request_id
            answer.getTopicsOfNamespaceResponse.topics.extend(("persistent://public/default/t-partition-0", "x", "//"))
        elif asked == _C.WATCH_TOPIC_LIST:
            answer.type = _C.WATCH_TOPIC_LIST_SUCCESS
            watched = answer.watchTopicListSuccess
            watched.request_id, watched.watcher_id, watched.topics_hash = request_id, 1, "00"
        elif asked == _C.GET_SCHEMA:
            answer.type = _C.GET_SCHEMA_RESPONSE
            answer.getSchemaResponse.request_id = request_id
            schema = answer.getSchemaResponse.schema
            schema.name, schema.schema_data, schema.type = "s", b"\0\0\0\2{}\xff\xff\xff\xff", pb.Schema.KEY_VALUE
        else:
            answer.type = _C.SUCCESS
            answer.success.request_id = request_id
        return answer

    def _receipt(self) -> bytes:
        client, chance = self._client, self._chance
        at = 0 if chance() < 0.9 else int(chance() * len(client.sent))
        producer, number = client.sent.pop(at) if chance() < 0.9 else client.sent[at]
        answer = _C(type=_C.SEND_RECEIPT)
        if chance() < 0.85:
            answer.send_receipt.producer_id, answer.send_receipt.sequence_id = producer, number
            answer.send_receipt.message_id.ledgerId, answer.send_receipt.message_id.entryId = 12, self._number()
        else:
            answer.type = _C.SEND_ERROR
            refused = answer.send_error
            refused.producer_id, refused.sequence_id, refused.error, refused.message = (
                producer,
                number,
                self._error(),
                "no",
            )
        return encode_command(answer)

    def _message(self) -> bytes:
        chance = self._chance
        if chance() < 0.9:
            self._entry += 1
        records = [Record(value=b"value"), Record(value=None, key="k"), Record(value=b"", properties=[("a", "b")])]
        kind, number = chance(), int(chance() * 3)
        if kind < 0.6:
            entry = encode_batch_entry(records, producer_name="p", sequence_id=self._entry, publish_time=TIME)
        elif kind < 0.8:
            entry = encode_single_entry(records[1], producer_name="p", sequence_id=self._entry, publish_time=TIME)
        else:
            entry = encode_chunks(
                Record(value=b"12345678"), chunk_bytes=3, producer_name="p", sequence_id=1, publish_time=TIME
            )[number]
        return message_frame(
            encrypted(entry.body) if chance() < 0.2 else entry.body,
            consumer=self._one((ORDERED, SHARED)),
            entry=self._entry,
            redelivery=int(chance() * 3),
            ack_set=(5,) if chance() < 0.1 else (),
            epoch=self._one((0, 1, 2)) if chance() < 0.2 else None,
        )

    def _news(self) -> bytes:
        """Out of turn."""
        kind = self._one(
            (
                _C.PING,
                _C.PONG,
                _C.AUTH_CHALLENGE,
                _C.CLOSE_PRODUCER,
                _C.CLOSE_CONSUMER,
                _C.ACTIVE_CONSUMER_CHANGE,
                _C.REACHED_END_OF_TOPIC,
                _C.TOPIC_MIGRATED,
                _C.WATCH_TOPIC_UPDATE,
                _C.SUCCESS,
            )
        )
        news = _C(type=kind)
        consumer = self._one((ORDERED, SHARED, 99))
        if kind == _C.PING:
            news.ping.SetInParent()
        elif kind == _C.PONG:
            news.pong.SetInParent()
        elif kind == _C.AUTH_CHALLENGE:
            news.authChallenge.SetInParent()
        elif kind == _C.CLOSE_PRODUCER:
            news.close_producer.producer_id, news.close_producer.request_id = self._one((BATCHING, CHUNKING, 99)), 1
        elif kind == _C.CLOSE_CONSUMER:
            news.close_consumer.consumer_id, news.close_consumer.request_id = consumer, 1
        elif kind == _C.ACTIVE_CONSUMER_CHANGE:
            news.active_consumer_change.consumer_id, news.active_consumer_change.is_active = consumer, True
        elif kind == _C.REACHED_END_OF_TOPIC:
            news.reachedEndOfTopic.consumer_id = consumer
        elif kind == _C.TOPIC_MIGRATED:
            news.topicMigrated.resource_id = consumer
            news.topicMigrated.resource_type = pb.CommandTopicMigrated.Consumer
            news.topicMigrated.brokerServiceUrl = "pulsar://b:6650"
        elif kind == _C.WATCH_TOPIC_UPDATE:
            news.watchTopicUpdate.watcher_id, news.watchTopicUpdate.topics_hash = 1, "00"
            news.watchTopicUpdate.new_topics.extend(("persistent://public/default/t1", "t://"))
        else:
            news.success.request_id = self._number()
        return encode_command(news)
