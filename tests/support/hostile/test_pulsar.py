"""Each hostile broker does the one bad thing that it is named for, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from fastwire.errors import CorruptEntryError, ProtocolError, UnsupportedError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record, encode_single_entry, split_payload
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.support.hostile import pulsar as hostile
from tests.support.pulsar.raw_client import Peer, full

Command = pb.BaseCommand
B = TypeVar("B", bound=PulsarDevBroker)


@contextmanager
def reading(broker: B, permits: int = 100) -> Iterator[tuple[B, Peer]]:
    """Nine entries, and a consumer that was sent them."""
    with running(broker):
        broker.create_topic("t")
        entries = [
            encode_single_entry(Record(value=b"value"), producer_name="p", sequence_id=at, publish_time=1)
            for at in range(9)
        ]
        broker.append("t", entries)
        with Peer(broker.url) as peer:
            peer.subscribed("t")
            peer.flow(permits)
            yield broker, peer
        assert broker.violations == []


def test_bad_crc() -> None:
    with reading(hostile.BadCrc(every=4)) as (_, peer):
        for at in range(9):
            _, body = peer.receive()
            if at in (3, 7):
                with pytest.raises(CorruptEntryError, match="ChecksumMismatch"):
                    split_payload(body)
            else:
                assert bytes(split_payload(body)[1]) == b"value"


def test_hostile_sizes() -> None:
    with reading(hostile.HostileSizes(every=5, num_messages_in_batch=-1)) as (_, peer):
        sizes = [split_payload(peer.receive()[1])[0].num_messages_in_batch for _ in range(9)]
        assert sizes == [1, 1, 1, 1, -1, 1, 1, 1, 1]
    with reading(hostile.HostileSizes()) as (_, peer):
        sizes = [split_payload(peer.receive()[1])[0].uncompressed_size for _ in range(3)]
        assert sizes == [5, 5, 0xFFFFFFFF]


@pytest.mark.parametrize("kind", sorted(hostile.BAD_FRAMES))
def test_bad_frames(kind: str) -> None:
    with reading(hostile.BadLengths(kind, every=2)) as (_, peer):
        peer.messages(1)
        frame = hostile.BAD_FRAMES[kind]
        assert peer.exactly(len(frame)) == frame
        peer.messages(8)  # behind it everything is sound, for whoever would read on


def test_bad_metadata_size() -> None:
    with reading(hostile.BadLengths("metadata", every=2)) as (_, peer):
        peer.messages(1)
        with pytest.raises(CorruptEntryError, match="metadata of 2147483647 bytes"):
            split_payload(peer.receive()[1])
        assert bytes(split_payload(peer.receive()[1])[1]) == b"value"


def test_unknown_commands() -> None:
    with reading(hostile.UnknownCommands(every=9)) as (_, peer):
        peer.messages(8)
        for _ in range(2):
            with pytest.raises(UnsupportedError):
                peer.receive()
        peer.take(Command.PING)
        peer.messages(1)


def test_cut_in_frame() -> None:
    with reading(hostile.CutInFrame(every=3)) as (broker, peer):
        peer.messages(2)
        with pytest.raises(EOFError):
            peer.receive()
        with Peer(broker.url) as again:
            again.subscribed("t")
            again.flow(100)
            again.messages(9)


def test_never_answers() -> None:
    broker = hostile.NeverAnswers(Command.LOOKUP, Command.PING, times=2)
    with running(broker), Peer(broker.url) as peer:
        lookup = pb.CommandLookupTopic(topic=full("t"), request_id=1)
        peer.send(Command.LOOKUP, lookupTopic=lookup)
        peer.send(Command.PING, ping=pb.CommandPing())
        assert peer.is_ignored()
        peer.send(Command.LOOKUP, lookupTopic=lookup)
        assert peer.take(Command.LOOKUP_RESPONSE).lookupTopicResponse.request_id == 1


def test_a_muted_broker_says_nothing_at_all() -> None:
    with running(PulsarDevBroker()) as broker, Peer(broker.url) as peer:
        broker.muted = True
        peer.send(Command.PING, ping=pb.CommandPing())
        assert peer.is_ignored()
        broker.muted = False
        peer.send(Command.PING, ping=pb.CommandPing())
        peer.take(Command.PONG)


def test_wrong_request_ids() -> None:
    with running(hostile.WrongRequestIds()) as broker, Peer(broker.url) as peer:
        request_id = peer.subscribe("t")
        assert peer.take(Command.SUCCESS).success.request_id == request_id + 1_000_000
        assert peer.take(Command.SUCCESS).success.request_id == request_id
    with running(hostile.WrongRequestIds(then_right=False, times=1)) as broker, Peer(broker.url) as peer:
        peer.subscribe("t")
        assert peer.take(Command.SUCCESS).success.request_id == 1_000_001
        peer.flow(1)
        assert peer.is_silent()


def test_closing_consumers() -> None:
    with reading(hostile.ClosingConsumers(every=3, times=2)) as (_, peer):
        closed = 0
        while closed < 2:
            command, _ = peer.receive()
            if command.type == Command.CLOSE_CONSUMER:
                closed += 1
                peer.subscribed("t")
                peer.flow(100)
        assert peer.drain()[-9:] == [(3, at) for at in range(9)]


def test_over_delivery() -> None:
    with reading(hostile.OverDelivery(extra=5), permits=2) as (broker, peer):
        assert len(peer.drain()) == 7
        peer.flow(4)
        peer.messages(2)
        assert broker.consumers("t", "s")[0].permits == 2


def test_repeats() -> None:
    with reading(hostile.Repeats(every=4)) as (broker, peer):
        assert [at for _, at in peer.messages(11)] == [0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8]
        assert broker.consumers("t", "s")[0].debited == 11


def test_the_reader_of_frames_notices_garbage() -> None:
    with reading(hostile.BadLengths("garbage", every=1)) as (_, peer):
        with pytest.raises(ProtocolError):
            peer.receive()
