"""pulsar-client doing a pipeline's work, as people write it by hand; run by the other benches as a child process.

    python -m bench.peer URL TOPIC MESSAGES receive|batch_receive|batch_receive_ack_each discard|FILE.parquet

Prints one JSON line: CPU from the first message to the last acknowledgement (and the file's footer) by message. The
Parquet file gets the columns that the client can tell (all but the sequence number), with the settings of our encoder.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pyarrow.parquet as pq

from fastwire.pulsar.columns import ROW
from fastwire_daemon.encoders.base import EncoderOptions, parse_compression
from fastwire_daemon.encoders.parquet import ParquetEncoder

from .pyarrow_writer import writer_settings

ROW_GROUP = 131_072
ACK_EVERY = 10_000
QUEUE = 10_000
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("ledger", pa.int64()),
        ("batchIndex", pa.int32()),
        ("eventTime", pa.timestamp("us", "UTC")),
        ("producer", pa.string()),
        ("orderingKey", pa.string()),
        ("schemaVersion", pa.binary()),
        ("redeliveryCount", pa.int32()),
    ]
)


def received(consumer: "pulsar.Consumer", how: str, messages: int) -> Iterator["pulsar.Message"]:
    """Messages one by one, however they are fetched."""
    if how == "receive":
        for _ in range(messages):
            yield consumer.receive(timeout_millis=30_000)
        return
    got = 0
    while got < messages:
        batch = consumer.batch_receive()
        got += len(batch)
        yield from batch


def acknowledged(consumer: "pulsar.Consumer", stream: Iterator["pulsar.Message"]) -> Iterator["pulsar.Message"]:
    """The same, with a cumulative acknowledgement of every partition now and then."""
    last: dict[str, pulsar.Message] = {}
    for number, message in enumerate(stream, 1):
        yield message
        if number % ACK_EVERY == 0 or number % 1000 == 1:
            last[message.topic_name()] = message
        if number % ACK_EVERY == 0:
            for each in last.values():
                consumer.acknowledge_cumulative(each)
            last.clear()


def row(message: "pulsar.Message") -> tuple[Any, ...]:
    """Return the fields of a message, in the order of SCHEMA."""
    place = message.message_id()
    event_time = message.event_timestamp()
    topic, _, partition = message.topic_name().rpartition("-partition-")
    return (
        message.partition_key().encode(),
        message.data(),
        topic,
        int(partition),
        place.entry_id(),
        message.publish_timestamp() * 1000,
        0,
        list(message.properties().items()) or None,
        place.ledger_id(),
        place.batch_index(),
        event_time * 1000 if event_time else None,
        message.producer_name(),
        message.ordering_key() or None,
        (message.schema_version() or "").encode() or None,
        message.redelivery_count(),
    )


def acknowledged_each(consumer: "pulsar.Consumer", stream: Iterator["pulsar.Message"]) -> Iterator["pulsar.Message"]:
    """The same with an acknowledgement of each message."""
    for message in stream:
        yield message
        consumer.acknowledge(message)


def write(path: str, stream: Iterator["pulsar.Message"]) -> None:
    """A Parquet file of all of them, a row group at a time."""
    options = EncoderOptions(
        compression=parse_compression("zstd:1", ParquetEncoder.compressions),
        columns=ROW.columns,
        row_group_rows=ROW_GROUP,
    )
    with pq.ParquetWriter(path, SCHEMA, **writer_settings(SCHEMA, options)) as writer:
        rows: list[tuple[Any, ...]] = []

        def flush() -> None:
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
            ]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            rows.clear()

        for message in stream:
            rows.append(row(message))
            if len(rows) == ROW_GROUP:
                flush()
        if rows:
            flush()


def main() -> None:
    """Consume and tell what it took."""
    url, topic, count, how, where = sys.argv[1:]
    messages = int(count)
    each = how.endswith("_ack_each")
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, logger=logger)
    consumer = client.subscribe(
        topic,
        f"bench-{how}",
        consumer_type=pulsar.ConsumerType.Shared if each else pulsar.ConsumerType.Exclusive,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=QUEUE,
        max_total_receiver_queue_size_across_partitions=4 * QUEUE,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(5000, 8 << 20, 100),
    )
    stream = (acknowledged_each if each else acknowledged)(consumer, received(consumer, how, messages))
    next(stream)
    cpu, wall = time.process_time(), time.perf_counter()
    if where == "discard":
        size = sum(len(message.data()) for message in stream)
        assert size
    else:
        write(where, stream)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"rows": messages, "cpu_us_per_row": cpu / messages * 1e6, "rows_per_s": round(messages / wall)}))
    consumer.close()
    client.close()


if __name__ == "__main__":
    main()
