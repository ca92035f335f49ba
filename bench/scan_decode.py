"""Scan, checksum, decompression and decoding alone: bytes in memory to columns, no socket, no loop, no sink.

    python -m bench.scan_decode [--json] [--seconds N]

CPU time of the thread for the calls of ``scan`` and ``take_chunk``; the best of many rounds over about a MiB that lies
in the receive buffer, as it does behind a socket that is read in time.
"""

import sys
import time
from typing import Any

from fastwire.position import Log
from fastwire.pulsar.payload import Compression, Record, encode_block_entry, encode_single_entry, encode_values
from fastwire.pulsar.scan import Scanner, Stop
from fastwire.pulsar.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader

from .child import Case, cases, show
from .message import Messages

CONSUMER = 1
TIME = 1_700_000_000_000
BYTES = 1 << 20


def stream(case: Case) -> tuple[bytes, int, int]:
    """About a MiB of frames; with the number of entries and of messages."""
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
    return b"".join(frames), entries, entries * case.batch


class Bench:
    """A scanner and what it is given over and over."""

    def __init__(self, case: Case) -> None:
        self.data, self.entries, self.messages = stream(case)
        self.slots = SlotTable([Log("pulsar", "bench", "persistent://public/default/bench", "0")])
        self.slots.add(CONSUMER, 0, ordered=True)
        self.slots.attach(CONSUMER, 1)
        self.pool = Pool(1 << 30)
        self.scanner = Scanner(self.slots, self.pool, 1, buffer_bytes=2 << 20)

    def fill(self) -> None:
        """What a socket would do."""
        view = self.scanner.get_buffer()
        view[: len(self.data)] = self.data
        view.release()
        self.scanner.received(len(self.data))

    def work(self) -> None:
        """What is measured."""
        scanner = self.scanner
        while (stop := scanner.scan()) != Stop.NEED_BYTES:
            if stop == Stop.CHUNK_FULL:
                chunk = scanner.take_chunk()
                assert chunk is not None
                chunk.release()
            else:
                scanner.resume()

    def round(self) -> int:
        """Nanoseconds of CPU for all messages once."""
        self.slots.void_staged(CONSUMER)  # the same positions are new again
        rows = self.scanner.rows
        self.fill()
        start = time.thread_time_ns()
        self.work()
        used = time.thread_time_ns() - start
        assert self.scanner.rows - rows == self.messages
        return used


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """The best round of ``seconds``."""
    bench = Bench(case)
    for _ in range(5):
        bench.round()
    end = time.monotonic() + seconds
    best = bench.round()
    while time.monotonic() < end:
        best = min(best, bench.round())
    ns = best / bench.messages
    return {
        "bench": "scan_decode",
        **case.fields(),
        "ns_per_message": round(ns, 1),
        "ns_per_entry": round(best / bench.entries, 1),
        "cpu_us_per_message": round(ns / 1000, 4),
        "payload_mb_per_s": round(case.size / ns * 1000),
        "wire_bytes_per_message": round(len(bench.data) / bench.messages, 1),
        "peak_pool_mib": round(bench.pool.peak / 2**20, 1),
    }


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 1.5
    show([measure(case, seconds) for case in cases()])


if __name__ == "__main__":
    main()
