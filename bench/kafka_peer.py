"""Other consumers of Kafka at a pipeline's work, as people write them by hand; a child process of ``bench.kafka``.

    python -m bench.kafka_peer SERVERS TOPIC PARTITIONS MESSAGES BATCH BATCH_BYTES WHO

WHO is confluent-kafka, aiokafka, subscribe or raw. Prints one JSON line: CPU from the first records to the last by
message, looking at no more than the value. ``raw`` reads whole responses from a socket a partition and computes their
CRC-32C: the floor under everybody who checks them.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable

import crc32c

from fastwire.kafka.format.message import encode_request
from fastwire.kafka.protocol.connection import Key

FETCH_BYTES = 1 << 20
BUFFER = FETCH_BYTES + (64 << 10)


class Meter:
    """Counts from the first records on."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self._messages = 0
        self._cpu = self._wall = 0.0

    def took(self, messages: int) -> bool:
        """So many more have come; whether there are more to come."""
        self.left -= messages
        if self._wall:
            self._messages += messages
        else:
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self.left > 0

    def tell(self) -> None:
        """Print what it took."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        rows = self._messages
        print(json.dumps({"rows": rows, "cpu_us_per_row": cpu / rows * 1e6, "rows_per_s": round(rows / wall)}))


def confluent(servers: str, topic: str, partitions: int, meter: Meter) -> None:
    """The official client of librdkafka, with the pause between fetches that it has too long by default."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": FETCH_BYTES,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    size = 0
    more = True
    while more:
        found = consumer.consume(10_000, timeout=30)
        for message in found:
            size += len(message.value() or b"")
        more = meter.took(len(found))
    meter.tell()
    consumer.close()


def aio(servers: str, topic: str, partitions: int, meter: Meter) -> None:
    """The client for asyncio, records by ``getmany``."""
    from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-not-found, import-untyped, unused-ignore]

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest", group_id=None
        )
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await consumer.start()
        size = 0
        more = True
        while more:
            count = 0
            for messages in (await consumer.getmany(timeout_ms=30_000)).values():
                count += len(messages)
                for message in messages:
                    size += len(message.value)
            more = meter.took(count)
        meter.tell()
        await consumer.stop()

    asyncio.run(run())


def subscribed(servers: str, topic: str, partitions: int, meter: Meter) -> None:
    """The asyncio client of this project, each chunk as an Arrow batch, which is acknowledged."""
    import pyarrow as pa

    from fastwire_daemon.client import connect

    async def run() -> None:
        size = 0
        client = connect(f"kafka://{servers}")
        async with client.subscribe(topic, "bench", columns=["value"], group_protocol="none") as consumer:
            async for chunk in consumer:
                size += pa.record_batch(chunk)["value"].nbytes
                await chunk.ack_to()
                if not meter.took(chunk.rows):
                    break
            meter.tell()

    asyncio.run(run())


def raw(servers: str, topic: str, partitions: int, batch_bytes: int, batch: int, meter: Meter) -> None:
    """Frames, and their sums."""
    host, _, port = servers.rpartition(":")
    socks = [socket.create_connection((host, int(port))) for _ in range(partitions)]
    view = memoryview(bytearray(BUFFER))
    offsets = [0] * partitions

    def ask(number: int) -> None:
        asked = {"partition": number, "fetch_offset": offsets[number], "partition_max_bytes": FETCH_BYTES}
        body = {
            "replica_id": -1,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "topics": [{"topic": topic, "partitions": [asked]}],
        }
        socks[number].sendall(encode_request(Key.FETCH, 12, offsets[number], "raw", body))

    def read(number: int) -> int:
        sock = socks[number]
        filled = 0
        while filled < 4 or filled < 4 + int.from_bytes(view[:4], "big"):
            came = sock.recv_into(view[filled:])
            if not came:
                raise SystemExit("the server has closed the connection")
            filled += came
        crc32c.crc32c(view[4:filled])
        found = filled // batch_bytes * batch
        offsets[number] += found
        return found

    for number in range(partitions):
        ask(number)
    more = True
    while more:
        for number in range(partitions):
            found = read(number)
            ask(number)  # an answer comes while others are read
            more = meter.took(found) and more
    meter.tell()


def main() -> None:
    """Consume and tell what it took."""
    servers, topic, partitions, messages, batch, batch_bytes, who = sys.argv[1:]
    meter = Meter(int(messages))
    if who == "raw":
        raw(servers, topic, int(partitions), int(batch_bytes), int(batch), meter)
        return
    ways: dict[str, Callable[[str, str, int, Meter], None]] = {
        "confluent-kafka": confluent,
        "aiokafka": aio,
        "subscribe": subscribed,
    }
    ways[who](servers, topic, int(partitions), meter)


if __name__ == "__main__":
    main()
