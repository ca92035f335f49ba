"""Cost of acknowledging a whole chunk on a Shared subscription, for a message: slots, grouping, ACK frames.

``python -m bench.acks [--json]``; batches of 1,000 messages, and entries of one message.
"""

import json
import sys
from time import perf_counter_ns

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import Stop
from fastwire.position import Log
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.pulsar.protocol.ack import encode_ack_runs
from fastwire.pulsar.protocol.consumer import Acks
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader

ROUNDS, ROWS = 50, 16_000


def main() -> None:
    rows = []
    for batch in (1000, 1):
        best = min(_round(batch, start * ROWS) for start in range(ROUNDS))  # the least disturbed one
        rows.append({"messages_a_batch": batch, "ack_us_a_message": round(best / ROWS / 1000, 4)})
    if "--json" in sys.argv:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['messages_a_batch']:>6} a batch: {row['ack_us_a_message']:.4f} µs a message")


def _round(batch: int, first: int) -> int:
    slots = SlotTable([Log("pulsar", "bench", "persistent://public/default/t", "-1")])
    slots.add(0, 0, ordered=False)
    slots.attach(0, 1)
    chunk = _chunk(slots, batch, first)
    acks = Acks()
    start = perf_counter_ns()
    runs = [(ledger, at, last) for _, ledger, at, last in chunk.entries()]
    slots.set_landed_runs(0, runs)
    acks.individual(runs, 0.0)
    _, waiting = acks.take()
    frames = encode_ack_runs(0, waiting)
    slots.release_runs(0, runs)  # the receipt
    taken = perf_counter_ns() - start
    assert frames
    return taken


def _chunk(slots: SlotTable, batch: int, first: int) -> Chunk:
    records = [Record(value=bytes(100))] * batch
    body = encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=1).body
    header = MessageHeader(0, -1)
    data = b"".join(header.encode((7, first + at), len(body)) + body for at in range(ROWS // batch))
    scanner = Scanner(slots, Pool(1 << 30), 1)
    while data:
        room = scanner.get_buffer()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        scanner.received(size)
        stop = scanner.scan()
        assert stop == Stop.NEED_BYTES, stop
    chunk = scanner.take_chunk()
    assert chunk is not None and chunk.rows == ROWS
    return chunk


if __name__ == "__main__":
    main()
