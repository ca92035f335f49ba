"""Dispatch of the embedded Pulsar broker, and the effects of acknowledgements, seeks and closings on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Entry,
    Record,
    broker_entry_metadata,
    encode_batch_entry,
    encode_single_entry,
    split_payload,
)
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from tests.support.pulsar.raw_client import Peer, full, message_id

Command = pb.BaseCommand
NOW = 1_700_000_000_000
EARLIEST = message_id(-1 % (1 << 64), -1)
LATEST = message_id((1 << 63) - 1, (1 << 63) - 1)


@contextmanager
def serving(topic: str = "t", partitions: int = 0, **options: Any) -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(replace(PulsarOptions(), **options))) as broker:
        broker.create_topic(topic, partitions)
        yield broker
        assert broker.violations == []


def batches(*sizes: int) -> list[Entry]:
    """Entries of so many messages, published a second apart; 0 is one outside a batch."""
    entries = []
    for number, size in enumerate(sizes):
        records = [Record(value=b"%d.%d" % (number, place)) for place in range(max(size, 1))]
        when = NOW + 1000 * number
        if size:
            entries.append(encode_batch_entry(records, producer_name="p", sequence_id=number, publish_time=when))
        else:
            entries.append(encode_single_entry(records[0], producer_name="p", sequence_id=number, publish_time=when))
    return entries


def keyed(*keys: str) -> list[Entry]:
    return [
        encode_single_entry(Record(value=b"v", key=key), producer_name="p", sequence_id=at, publish_time=NOW)
        for at, key in enumerate(keys)
    ]


def test_permits_count_messages_and_entries_are_whole() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        broker.append("t", batches(3, 3, 0, 3))
        peer.subscribed("t")
        assert peer.is_silent()
        peer.flow(4)
        assert peer.messages(2) == [(3, 0), (3, 1)]
        assert peer.is_silent()
        (state,) = broker.consumers("t", "s")
        assert (state.granted, state.debited, state.permits, state.window, state.active) == (4, 6, -2, 4, True)
        peer.flow(2)  # makes up for what was too much
        assert peer.is_silent()
        peer.flow(1)
        assert peer.messages(1) == [(3, 2)]
        peer.flow(1)
        assert peer.messages(1) == [(3, 3)]
        assert broker.unacked("t", "s") == 10


def test_a_real_broker_reads_ahead() -> None:
    with serving(read_ahead=3) as broker, Peer(broker.url) as peer:
        broker.append("t", batches(5, 5, 5, 5))
        peer.subscribed("t")
        peer.flow(1)
        peer.messages(3)
        assert peer.is_silent()
        assert broker.consumers("t", "s")[0].permits == -14


def test_a_frame_has_what_was_stored() -> None:
    with serving(partitions=3) as broker, Peer(broker.url) as peer:
        (entry,) = batches(2)
        ((ledger, _),) = broker.append("t-partition-2", [entry])
        peer.subscribed("t-partition-2", consumer_id=300, consumer_epoch=4)
        peer.flow(1, consumer_id=300)
        command, body = peer.receive()
        wanted = pb.CommandMessage(
            consumer_id=300, message_id=pb.MessageIdData(ledgerId=ledger, entryId=0, partition=2), consumer_epoch=4
        )
        assert command.message == wanted
        assert body == entry.body


def test_broker_entry_metadata_is_for_those_who_want_it() -> None:
    with serving(broker_entry_metadata=True) as broker:
        broker.append("t", batches(2, 3))
        with Peer(broker.url, feature_flags=pb.FeatureFlags(supports_broker_entry_metadata=True)) as peer:
            peer.subscribed("t", "with")
            peer.flow(10)
            indexes = []
            for _ in range(2):
                _, body = peer.receive()
                written = broker_entry_metadata(body)
                assert written is not None
                indexes.append(written.index)
                assert split_payload(body)[0].producer_name == "p"
            assert indexes == [1, 4]
        with Peer(broker.url) as peer:
            peer.subscribed("t", "without")
            peer.flow(10)
            assert peer.receive()[1][:2] == b"\x0e\x01"


def test_acks_move_the_mark() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        broker.append("t", batches(2, 2, 2, 2))
        peer.subscribed("t")
        peer.flow(8)
        peer.messages(4)
        assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (8, (3, -1))
        peer.acked((3, 1))
        assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (6, (3, -1))
        peer.acked((3, 0))
        assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (4, (3, 1))
        peer.acked((3, 3), cumulative=True)
        assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (0, (3, 3))
        assert broker.unacked("t", "s") == 0
        peer.acked((3, -1), cumulative=True)  # what official clients say of the first entry's first half
    with running(PulsarDevBroker()) as other:
        with pytest.raises(KeyError, match="no topic persistent://public/default/t"):
            other.backlog("t", "s")


def test_what_is_not_acked_comes_again_on_the_next_connection() -> None:
    with serving() as broker:
        broker.append("t", batches(1, 1, 1))
        with Peer(broker.url) as peer:
            peer.subscribed("t")
            peer.flow(3)
            peer.messages(3)
            peer.acked((3, 1))
        with Peer(broker.url) as peer:
            while broker.consumers("t", "s"):
                pass
            peer.subscribed("t")
            peer.acked((3, 0))  # before it is sent again: legal, it was delivered once
            peer.flow(3)
            assert peer.messages(1) == [(3, 2)]
            assert peer.is_silent()


def test_elements_can_be_acked() -> None:
    with serving() as broker:
        broker.append("t", batches(70, 3))
        left = pb.CommandMessage(consumer_id=1, message_id=message_id(3, 0, partition=-1), ack_set=[-4, 63])
        with Peer(broker.url) as peer:
            peer.subscribed("t")
            peer.flow(73)
            peer.messages(2)
            peer.acked(message_id(3, 0, ack_set=[-2, 63], batch_size=70))
            peer.acked(message_id(3, 0, ack_set=[-3, 63]), message_id(3, 1, ack_set=[4]))
            assert broker.backlog("t", "s") == 69
            peer.send(
                Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1),
            )
            peer.flow(69)  # what the queue that was thrown away has to give back
            again = peer.message()
            assert again == left
            assert list(peer.message().ack_set) == [4]
            assert broker.consumers("t", "s")[0].debited == 73 + 69
            peer.acked(message_id(3, 1, ack_set=[4]), cumulative=True)
            assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (1, (3, 0))
            peer.acked((3, 1))
            assert broker.backlog("t", "s") == 0


def test_element_acks_can_be_off() -> None:
    with serving(batch_index_acks=False) as broker, Peer(broker.url) as peer:
        broker.append("t", batches(3))
        peer.subscribed("t")
        peer.flow(3)
        peer.messages(1)
        peer.acked(message_id(3, 0, ack_set=[6]))
        assert broker.backlog("t", "s") == 3


def test_shared_goes_round() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        broker.append("t", batches(*[0] * 10))
        peer.subscribed("t", kind="Shared")
        other.subscribed("t", kind="Shared", consumer_name="d")
        peer.flow(4)
        mine = peer.messages(4)
        other.flow(20)
        theirs = other.messages(6)
        assert sorted(mine + theirs) == [(3, at) for at in range(10)]
        assert [state.unacked for state in broker.consumers("t", "s")] == [4, 6]
        peer.acked(*mine[:2])
        other.send(
            Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(
                consumer_id=1, message_ids=[message_id(*theirs[5]), message_id(*theirs[0]), message_id(*mine[3])]
            ),
        )
        again = [other.message() for _ in range(2)]
        assert [(one.message_id.entryId, one.redelivery_count) for one in again] == [
            (theirs[0][1], 1),
            (theirs[5][1], 1),
        ]
        peer.send(
            Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=peer.next_id())
        )
        peer.take(Command.SUCCESS)
        assert other.messages(2) == mine[2:]


def test_priorities() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        broker.append("t", batches(*[0] * 4))
        peer.subscribed("t", kind="Shared", priority_level=1)
        other.subscribed("t", kind="Shared")
        other.flow(3)
        assert len(other.messages(3)) == 3
        peer.flow(10)
        assert len(peer.messages(1)) == 1


def test_too_much_unacked_stops_a_shared_consumer() -> None:
    with serving(max_unacked=10) as broker, Peer(broker.url) as peer:
        broker.append("t", batches(*[4] * 6))
        peer.subscribed("t", kind="Shared")
        peer.flow(1000)
        assert peer.messages(3) == [(3, 0), (3, 1), (3, 2)]
        assert peer.is_silent()
        (state,) = broker.consumers("t", "s")
        assert (state.unacked, state.blocked) == (12, True)
        peer.acked((3, 0))
        assert peer.is_silent()  # 8 are left, more than half of the limit
        peer.ack((3, 1))
        assert peer.messages(2) == [(3, 3), (3, 4)]
        peer.send(Command.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(request_id=50, consumer_id=1))
        stats = peer.take(Command.CONSUMER_STATS_RESPONSE).consumerStatsResponse
        assert (stats.blockedConsumerOnUnackedMsgs, stats.unackedMessages, stats.msgBacklog) == (True, 12, 4)
        assert (stats.type, stats.consumerName, stats.availablePermits) == ("Shared", "c", 980)


def test_keys_stay_together_and_in_order() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        keys = [f"key-{at % 7}" for at in range(70)]
        broker.append("t", keyed(*keys))
        peer.subscribed("t", kind="Key_Shared")
        other.subscribed("t", kind="Key_Shared", consumer_name="d")
        peer.flow(100)
        other.flow(100)
        seen: list[dict[str, list[int]]] = []
        for one in (peer, other):
            places = [at for _, at in one.drain()]
            seen.append({key: [at for at in places if keys[at] == key] for key in {keys[at] for at in places}})
        assert not seen[0].keys() & seen[1].keys()
        assert all(seen), "one consumer got nothing at all"
        for owner in seen:
            for places in owner.values():
                assert places == sorted(places) and len(places) == 10
        # A key that its consumer still has is not given to another one, who joined later.
        with Peer(broker.url) as third:
            third.subscribed("t", kind="Key_Shared", consumer_name="e")
            third.flow(100)
            broker.append("t", keyed(*keys[:7]))
            assert third.is_silent()
            mine = [(3, at) for places in seen[0].values() for at in places]
            theirs = [(3, at) for places in seen[1].values() for at in places]
            peer.ack(*mine)
            other.ack(*theirs)
            assert third.message().message_id.entryId >= 70


def test_sticky_ranges() -> None:
    def ranges(*pairs: tuple[int, int]) -> pb.KeySharedMeta:
        return pb.KeySharedMeta(keySharedMode="STICKY", hashRanges=[pb.IntRange(start=a, end=b) for a, b in pairs])

    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        broker.append("t", keyed(*[f"key-{at}" for at in range(30)]))
        peer.subscribed("t", kind="Key_Shared", keySharedMeta=ranges((0, 32767)))
        other.subscribe("t", kind="Key_Shared", keySharedMeta=ranges((32767, 40000)))
        assert other.take(Command.ERROR).error.error == pb.ConsumerAssignError
        other.subscribed("t", kind="Key_Shared", keySharedMeta=ranges((32768, 65535)))
        peer.flow(100)
        other.flow(100)
        mine, theirs = peer.drain(), other.drain()
        assert mine and theirs and sorted(mine + theirs) == [(3, at) for at in range(30)]


def test_failover_tells_who_is_served() -> None:
    with serving(partitions=2) as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        broker.append("t-partition-1", batches(0, 0, 0))
        peer.subscribe("t-partition-1", kind="Failover", consumer_name="a")
        assert peer.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        peer.take(Command.SUCCESS)
        peer.flow(2)
        peer.messages(2)
        other.subscribe("t-partition-1", kind="Failover", consumer_name="b")
        # Of partition 1 the second one by name is served; what the first one has not acked comes to it.
        assert other.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        assert not peer.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        other.take(Command.SUCCESS)
        peer.acked((3 + 2, 0))
        other.flow(10)
        assert [at for _, at in other.messages(2)] == [1, 2]
        assert [state.active for state in broker.consumers("t-partition-1", "s")] == [False, True]
        other.send(
            Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=other.next_id())
        )
        assert peer.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        peer.flow(2)
        assert [at for _, at in peer.messages(2)] == [1, 2]


def test_a_takeover_can_take_its_time() -> None:
    with serving(takeover_delay_s=0.1) as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        broker.append("t", batches(0, 0))
        peer.subscribed("t", kind="Failover", consumer_name="b")
        peer.flow(2)
        peer.take(Command.ACTIVE_CONSUMER_CHANGE)
        peer.messages(2)
        other.subscribed("t", kind="Failover", consumer_name="a")
        other.flow(2)
        peer.acked((3, 0))  # in time
        assert other.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        assert other.messages(1) == [(3, 1)]
        assert not peer.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active


def test_who_may_join() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        peer.subscribed("t")
        other.subscribe("t")
        assert other.take(Command.ERROR).error.error == pb.ConsumerBusy
        other.subscribe("t", kind="Shared")
        assert other.take(Command.ERROR).error.message == "Subscription is of different type"
        peer.send(
            Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=peer.next_id())
        )
        peer.take(Command.SUCCESS)
        other.subscribed("t", kind="Shared")  # alone one may change the type
        peer.send(
            Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=peer.next_id())
        )
        peer.take(Command.SUCCESS)  # what is not open counts as closed


def last_id(peer: Peer) -> pb.CommandGetLastMessageIdResponse:
    request = pb.CommandGetLastMessageId(consumer_id=1, request_id=peer.next_id())
    peer.send(Command.GET_LAST_MESSAGE_ID, getLastMessageId=request)
    return peer.take(Command.GET_LAST_MESSAGE_ID_RESPONSE).getLastMessageIdResponse


def test_the_last_id() -> None:
    with serving(ledger_entries=2) as broker, Peer(broker.url) as peer:
        peer.subscribed("t")
        empty = last_id(peer)
        assert empty.last_message_id == message_id(-1 % (1 << 64), -1, partition=-1, batch_index=-1)
        assert empty.consumer_mark_delete_position == message_id(3, -1)
        broker.append("t", batches(0))
        assert last_id(peer).last_message_id == message_id(3, 0, partition=-1)
        broker.append("t", batches(4, 2))
        assert last_id(peer).last_message_id == message_id(5, 0, partition=-1, batch_index=1)
        peer.flow(7)
        peer.messages(3)
        peer.acked((3, 1), cumulative=True)
        assert last_id(peer).consumer_mark_delete_position == message_id(3, 1)
        broker.unload("t")
        assert peer.take(Command.CLOSE_CONSUMER).close_consumer.consumer_id == 1
        request = pb.CommandGetLastMessageId(consumer_id=1, request_id=peer.next_id())
        peer.send(Command.GET_LAST_MESSAGE_ID, getLastMessageId=request)
        assert peer.take(Command.ERROR).error.error == pb.ConsumerNotFound
    with serving(tell_mark_delete=False) as broker, Peer(broker.url) as peer:
        peer.subscribed("t")
        assert not last_id(peer).HasField("consumer_mark_delete_position")


def seek(peer: Peer, **where: Any) -> None:
    """Seek, be closed, be told that it worked, subscribe again."""
    request_id = peer.next_id()
    peer.send(Command.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=request_id, **where))
    peer.take(Command.CLOSE_CONSUMER)
    assert peer.take(Command.SUCCESS).success.request_id == request_id
    peer.subscribed("t")
    peer.flow(1000)


def test_seeking() -> None:
    with serving(ledger_entries=3) as broker, Peer(broker.url) as peer:
        places = broker.append("t", batches(0, 2, 0, 4, 0))
        peer.subscribed("t")
        peer.flow(1000)
        peer.messages(5)
        peer.acked(places[4], cumulative=True)
        seek(peer, message_id=message_id(*places[3]))
        assert peer.messages(2) == places[3:]
        assert broker.backlog("t", "s") == 5
        seek(peer, message_id=EARLIEST)
        assert peer.messages(5) == places
        seek(peer, message_id=LATEST)
        assert peer.is_silent() and broker.backlog("t", "s") == 0
        seek(peer, message_publish_time=NOW + 1500)
        assert peer.messages(3) == places[2:]
        seek(peer, message_id=message_id(*places[3], ack_set=[0b1100]))
        assert list(peer.message().ack_set) == [0b1100]
        assert broker.backlog("t", "s") == 3


def test_seeking_on_failover_leaves_the_others_where_they_are() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        (place,) = broker.append("t", batches(0))
        peer.subscribe("t", kind="Failover", consumer_name="a")
        assert peer.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        peer.take(Command.SUCCESS)
        other.subscribe("t", kind="Failover", consumer_name="b")
        assert not other.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        other.take(Command.SUCCESS)
        request = pb.CommandSeek(consumer_id=1, request_id=other.next_id(), message_id=message_id(*place))
        other.send(Command.SEEK, seek=request)
        peer.take(Command.CLOSE_CONSUMER)
        assert other.take(Command.ACTIVE_CONSUMER_CHANGE).active_consumer_change.is_active
        other.take(Command.SUCCESS)
        other.flow(1)
        assert other.messages(1) == [place]


def test_time_is_the_brokers_where_it_notes_it() -> None:
    with serving(broker_entry_metadata=True) as broker, Peer(broker.url) as peer:
        places = broker.append("t", batches(0, 0))
        peer.subscribed("t", start_message_rollback_duration_sec=60, initialPosition="Latest")
        peer.flow(10)
        assert peer.messages(2) == places


def test_where_a_subscription_begins() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        places = broker.append("t", batches(0, 2, 0))
        wanted: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
            ({"initialPosition": "Latest"}, []),
            ({"durable": False, "start_message_id": EARLIEST}, places),
            ({"durable": False, "start_message_id": LATEST, "initialPosition": "Latest"}, []),
            ({"durable": False, "start_message_id": LATEST, "initialPosition": "Earliest"}, places),
            ({"durable": False, "start_message_id": message_id(3, 1, batch_index=0)}, places[1:]),
            ({"durable": False, "start_message_id": message_id(99, 0), "initialPosition": "Latest"}, []),
            ({"start_message_rollback_duration_sec": 60}, []),
        ]
        for number, (parts, found) in enumerate(wanted):
            peer.subscribed("t", f"s{number}", consumer_id=number, **parts)
            peer.flow(10, consumer_id=number)
            assert peer.messages(len(found)) == found
            assert peer.is_silent()
        assert broker.subscriptions("t") == [f"s{number}" for number in range(7)]
    with serving() as broker:
        with Peer(broker.url) as peer:
            peer.subscribed("t", durable=False, start_message_id=EARLIEST)
        while broker.subscriptions("t"):  # a reader's cursor ends with it
            pass


def test_unsubscribing() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        peer.subscribed("t", kind="Shared")
        other.subscribed("t", kind="Shared")
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=peer.next_id())
        peer.send(Command.UNSUBSCRIBE, unsubscribe=request)
        assert peer.take(Command.ERROR).error.request_id == request.request_id
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=peer.next_id(), force=True)
        peer.send(Command.UNSUBSCRIBE, unsubscribe=request)
        assert peer.take(Command.SUCCESS).success.request_id == request.request_id
        other.take(Command.CLOSE_CONSUMER)
        assert broker.subscriptions("t") == []


def test_the_end_of_a_topic() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        broker.append("t", batches(0, 0))
        peer.subscribed("t")
        peer.flow(1)
        peer.messages(1)
        broker.terminate("t")
        assert peer.is_silent()  # not everything was sent
        peer.flow(1)
        peer.messages(1)
        peer.ack((3, 0))
        assert peer.is_silent()  # not everything was acknowledged
        peer.ack((3, 1))
        assert peer.take(Command.REACHED_END_OF_TOPIC).reachedEndOfTopic.consumer_id == 1
        peer.ack((3, 0))
        assert peer.is_silent()  # it is said once


def test_an_unload_can_say_where_the_topic_went() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        peer.subscribed("t")
        broker.unload("t", "pulsar://other:6650")
        assert peer.take(Command.CLOSE_CONSUMER).close_consumer.assignedBrokerServiceUrl == "pulsar://other:6650"
        peer.subscribed("t")
        broker.close_consumers("t", "s")
        assert not peer.take(Command.CLOSE_CONSUMER).close_consumer.HasField("assignedBrokerServiceUrl")


def test_a_trimmed_log_goes_on_behind_the_hole() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        broker.append("t", batches(0, 0, 0, 0))
        peer.subscribed("t", kind="Shared")
        peer.flow(1)
        peer.messages(1)
        broker.trim("t", 3, 2)
        assert (broker.backlog("t", "s"), broker.mark_delete("t", "s")) == (2, (3, 1))
        assert broker.consumers("t", "s")[0].unacked == 0
        peer.flow(1)
        assert peer.messages(1) == [(3, 2)]
        with Peer(broker.url) as other:  # what goes to another consumer was not asked for again
            other.subscribed("t", kind="Shared", consumer_name="d")
            other.flow(10)
            other.messages(1)
            peer.send(
                Command.CLOSE_CONSUMER,
                close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=peer.next_id()),
            )
            assert other.message().redelivery_count == 0


def test_a_client_that_does_not_read_does_not_fill_the_broker() -> None:
    with serving() as broker, Peer(broker.url) as peer, Peer(broker.url) as other:
        big = encode_single_entry(Record(value=bytes(1 << 20)), producer_name="p", sequence_id=0, publish_time=NOW)
        broker.append("t", [big] * 64)
        peer.subscribed("t")
        peer.flow(1000)
        other.subscribed("t", "other")
        other.flow(1000)
        other.messages(64)  # one that reads is not held up by one that does not
        assert broker.consumers("t", "s")[0].debited < 32
        assert peer.messages(64) == [(3, at) for at in range(64)]


def test_names_that_are_none() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        for name in ("persistent://public/default/a/b", "short"):
            request = pb.CommandProducer(topic=name, producer_id=1, request_id=peer.next_id())
            peer.send(Command.PRODUCER, producer=request)
            assert peer.take(Command.ERROR).error.error == pb.InvalidTopicName


def test_full_names_are_needed_on_the_wire() -> None:
    with serving() as broker, Peer(broker.url) as peer:
        peer.send(Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1))
        answer = peer.take(Command.LOOKUP_RESPONSE).lookupTopicResponse
        assert (answer.response, answer.error) == (pb.CommandLookupTopicResponse.Failed, pb.InvalidTopicName)
        assert full("t") == "persistent://public/default/t"
