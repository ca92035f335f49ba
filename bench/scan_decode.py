"""Scan, checksum, decompression and decoding alone: bytes in memory to columns, no socket, no loop, no sink.

    python -m bench.scan_decode [--json] [--seconds N]

CPU time of the thread for the calls of ``scan`` and ``take_chunk``; the best of many rounds over about a MiB that lies
in the receive buffer, as it does behind a socket that is read in time.
"""

import sys
import time
from typing import Any

from fastwire.kafka.format.message import encode_response
from fastwire.kafka.producing import payload as kafka_payload
from fastwire.kafka.protocol.connection import Key
from fastwire.pulsar.format.payload import Compression, Record, encode_block_entry, encode_single_entry, encode_values
from fastwire.tank.format.message import MessageType, encode_frame
from fastwire.tank.producing.bundle import encode_values as encode_bundle
from fastwire.tank.protocol.consume import PartitionAnswer, encode_consume_answer
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.frame import encode_response as encode_tubemq
from fastwire.wire.writer import encode_varint
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader

from . import tubemq_batch
from .child import Case, cases, show
from .message import Messages
from .scan_rounds import CONSUMER, CORRELATION, FETCH_VERSION, GETS, SYSTEMS, TOPIC

TIME = 1_700_000_000_000
BYTES = 1 << 20


def pulsar_stream(case: Case) -> tuple[bytes, int]:
    """About a MiB of frames; with the number of entries."""
    messages, header, codec = Messages(case.size), MessageHeader(CONSUMER, 0), Compression[case.codec.upper()]
    frames: list[bytes] = []
    entries = size = 0
    while size < BYTES:
        numbers = range(entries * case.batch, (entries + 1) * case.batch)
        values = [messages.value(number) for number in numbers]
        keys = [messages.key(number) for number in numbers]
        if case.batch == 1:
            record = Record(value=values[0], key=keys[0].decode())
            entry = encode_single_entry(
                record, producer_name="bench-0", sequence_id=entries, publish_time=TIME, compression=codec
            )
        else:
            entry = encode_block_entry(
                encode_values(values, numbers[0], keys),
                case.batch,
                producer_name="bench-0",
                sequence_id=numbers[0],
                publish_time=TIME,
                compression=codec,
            )
        frames.append(header.encode((7, entries), len(entry.body)) + entry.body)
        entries += 1
        size += len(frames[-1])
    return b"".join(frames), entries


def kafka_stream(case: Case) -> tuple[bytes, int]:
    """A Fetch response of about a MiB; with the number of batches."""
    messages, codec = Messages(case.size), kafka_payload.Compression[case.codec.upper()]
    batches: list[bytes] = []
    size = 0
    while size < BYTES:
        first = len(batches) * case.batch
        numbers = range(first, first + case.batch)
        block = kafka_payload.encode_values(
            [messages.value(number) for number in numbers], [messages.key(number) for number in numbers]
        )
        batches.append(
            kafka_payload.encode_block_batch(
                block, case.batch, base_timestamp=TIME, base_offset=first, compression=codec
            )
        )
        size += len(batches[-1])
    told = {"partition_index": 0, "high_watermark": 1 << 40, "last_stable_offset": 1 << 40, "log_start_offset": 0}
    body = {"responses": [{"topic": TOPIC, "partitions": [{**told, "records": b"".join(batches)}]}]}
    return encode_response(Key.FETCH, FETCH_VERSION, CORRELATION, body), len(batches)


def tank_stream(case: Case) -> tuple[bytes, int]:
    """An answer to a consume request of about a MiB, whose messages have no keys; with the number of bundles."""
    messages = Messages(case.size)
    bundles: list[bytes] = []
    size = 0
    while size < BYTES:
        first = len(bundles) * case.batch
        values = [messages.value(number) for number in range(first, first + case.batch)]
        bundle = encode_bundle(values, TIME, compress=case.codec == "snappy")
        bundles.append(encode_varint(len(bundle)) + bundle)
        size += len(bundles[-1])
    part = PartitionAnswer(0, base=1, high_watermark=1 << 40, chunk=b"".join(bundles))
    answer = encode_consume_answer(CORRELATION, [(TOPIC, 1, [part])])
    return encode_frame(MessageType.CONSUME, answer), len(bundles)


def tubemq_stream(case: Case) -> tuple[bytes, int]:
    """The responses to some GETs, about a MiB, of messages without attributes; with the number of the responses."""
    messages = Messages(case.size)
    step = case.batch * tubemq_batch.ENTRY
    responses = [tubemq_batch.response(messages, case.batch, number * step, GETS * step) for number in range(GETS)]
    frames = [encode_tubemq(CORRELATION + number, Method.GET, each) for number, each in enumerate(responses)]
    return b"".join(frames), GETS


STREAMS = {"pulsar": pulsar_stream, "kafka": kafka_stream, "tank": tank_stream, "tubemq": tubemq_stream}


def of_system(system: str) -> list[Case]:
    """The cases of all systems, with the one codec that TANK has in the place of the others, or TubeMQ's own cases."""
    if system == "tubemq":
        return tubemq_batch.cases()
    if system != "tank":
        return cases()
    plain = [case for case in cases() if case.codec == "none"]
    return [*plain, *(Case(case.size, case.batch, "snappy") for case in plain if case.batch > 1)]


def measure(system: str, case: Case, seconds: float) -> dict[str, Any]:
    """The best round of ``seconds``."""
    data, entries = STREAMS[system](case)
    rounds = SYSTEMS[system](data)
    messages = entries * case.batch

    def one() -> int:
        """Nanoseconds of CPU for all messages once."""
        rows = rounds.scanner.rows
        rounds.fill()
        start = time.thread_time_ns()
        rounds.work()
        used = time.thread_time_ns() - start
        assert rounds.scanner.rows - rows == messages
        return used

    for _ in range(5):
        one()
    end = time.monotonic() + seconds
    best = one()
    while time.monotonic() < end:
        best = min(best, one())
    ns = best / messages
    return {
        "bench": "scan_decode",
        "system": system,
        **case.fields(),
        "ns_per_message": round(ns, 1),
        "ns_per_entry": round(best / entries, 1),
        "cpu_us_per_message": round(ns / 1000, 4),
        "payload_mb_per_s": round(case.size / ns * 1000),
        "wire_bytes_per_message": round(len(data) / messages, 1),
        "peak_pool_mib": round(rounds.pool.peak / 2**20, 1),
    }


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 1.5
    show([measure(system, case, seconds) for system in SYSTEMS for case in of_system(system)])


if __name__ == "__main__":
    main()
