"""The scan loop over prepared frames and as little else as possible: what ``instructions`` runs under valgrind.

python -m bench.scan_rounds FILE ROUNDS
"""

import sys
from pathlib import Path

from fastwire.position import Log
from fastwire.pulsar.scan import Scanner, Stop
from fastwire.pulsar.slot import SlotTable
from fastwire.wire.pool import Pool

CONSUMER = 1


def main() -> None:
    """The same frames again and again, each time new."""
    data, rounds = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    slots = SlotTable([Log("pulsar", "bench", "persistent://public/default/bench", "0")])
    slots.add(CONSUMER, 0, ordered=True)
    slots.attach(CONSUMER, 1)
    scanner = Scanner(slots, Pool(1 << 30), 1, buffer_bytes=2 << 20)
    for _ in range(rounds):
        slots.void_staged(CONSUMER)
        view = scanner.get_buffer()
        view[: len(data)] = data
        view.release()
        scanner.received(len(data))
        while (stop := scanner.scan()) != Stop.NEED_BYTES:
            if stop == Stop.CHUNK_FULL:
                chunk = scanner.take_chunk()
                assert chunk is not None
                chunk.release()
            else:
                scanner.resume()


if __name__ == "__main__":
    main()
