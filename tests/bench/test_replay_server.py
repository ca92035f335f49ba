"""The replaying server of the benches speaks enough for a plain client and for the official one."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import split_payload
from tests.support.pulsar.raw_client import Peer
from tests.support.source_tree import ROOT

Command = pb.BaseCommand


@contextmanager
def replaying(*arguments: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, str(ROOT / "bench" / "replay_server.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            last = json.loads(process.stdout.read())
            assert process.wait(60) == 0
            assert last["cpu_s"] > 0


def test_permits_are_honoured() -> None:
    with replaying("--messages", "1000", "--batch", "30", "--partitions", "2", "--codec", "lz4") as told:
        assert (told["messages"], told["entries"]) == (1020, 34)
        with Peer(told["url"]) as peer:
            request = pb.CommandPartitionedTopicMetadata(topic=told["topic"], request_id=100)
            peer.send(Command.PARTITIONED_METADATA, partitionMetadata=request)
            assert peer.take(Command.PARTITIONED_METADATA_RESPONSE).partitionMetadataResponse.partitions == 2
            for partition in range(2):
                peer.subscribed(f"{told['topic']}-partition-{partition}", consumer_id=partition)
            peer.flow(31, consumer_id=1)
            for entry in range(2):
                command, body = peer.receive()
                wanted = pb.MessageIdData(ledgerId=7, entryId=(1 << 14) + entry, partition=1)
                assert (command.message.consumer_id, command.message.message_id) == (1, wanted)
                metadata, _ = split_payload(body)
                assert (metadata.num_messages_in_batch, metadata.compression) == (30, pb.LZ4)
            assert peer.is_silent()
            peer.flow(29, consumer_id=1)  # all that was granted is sent
            assert peer.is_silent()
            peer.flow(10_000, consumer_id=1)
            assert len(peer.drain()) == 15
            peer.acked((7, 1 << 14), consumer_id=1)
            peer.send(Command.PING, ping=pb.CommandPing())
            peer.take(Command.PONG)
            last = pb.CommandGetLastMessageId(consumer_id=1, request_id=200)
            peer.send(Command.GET_LAST_MESSAGE_ID, getLastMessageId=last)
            found = peer.take(Command.GET_LAST_MESSAGE_ID_RESPONSE).getLastMessageIdResponse
            assert (found.last_message_id.entryId, found.last_message_id.batch_index) == ((1 << 14) + 16, 29)
            stats = pb.CommandConsumerStats(consumer_id=1, request_id=300)
            peer.send(Command.CONSUMER_STATS, consumerStats=stats)
            assert peer.take(Command.CONSUMER_STATS_RESPONSE).consumerStatsResponse.request_id == 300
            peer.flow(10_000, consumer_id=0)
            assert len(peer.drain()) == 17


def test_the_official_client_reads_everything() -> None:
    for batch in ("0", "1", "100"):
        with replaying("--messages", "3000", "--batch", batch, "--size", "9000") as told:
            client = pulsar.Client(told["url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            consumer = client.subscribe(told["topic"], "s")
            seen = set()
            for _ in range(told["messages"]):
                message = consumer.receive(10_000)
                assert len(message.data()) == 9000
                place = message.message_id()
                seen.add((message.topic_name(), place.entry_id(), place.batch_index()))
                consumer.acknowledge(message)
            assert len(seen) == 3000
            consumer.close()
            client.close()
