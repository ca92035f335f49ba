"""Mutated Fetch responses of Kafka against the scanner: rows, dead letters, damaged batches or ProtocolError.

    python -m tests.fuzz.kafka --seconds 600 --seed 1

What was found is a test (``tests/fastwire/kafka/test_scan.py``).
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from crc32c import crc32c

from fastwire.errors import ProtocolError
from fastwire.wire.pool import Pool
from tests.fuzz.hunt import Case, Subject, main
from tests.fuzz.pulsar import mutate
from tests.support.kafka.golden import Reading, fetch_response, golden, names

__all__ = ["run_block", "run_case"]

BLOCK = 2000
MOST_BYTES = 8192
VERSION = 12
MOST_MEMORY = 96 << 20
# Of a batch: its length and what comes before it, its magic, its checksum and what that is about (spec: kafka 6).
_LENGTH, _MAGIC, _CHECKSUM, _CHECKED = 8, 16, 17, 21


def _sources() -> list[bytes]:
    return [bytes_ for name in names("records") if len(bytes_ := golden("records", name)) <= MOST_BYTES]


def _resealed(batch: bytearray) -> bytes:
    """One batch whose length and checksum are true again, if it is of the kind that has them there."""
    if len(batch) > _CHECKED and batch[_MAGIC] == 2:
        batch[_LENGTH : _LENGTH + 4] = (len(batch) - _LENGTH - 4).to_bytes(4, "big")
        batch[_CHECKSUM:_CHECKED] = crc32c(memoryview(batch)[_CHECKED:]).to_bytes(4, "big")
    return bytes(batch)


def cases(seed: int) -> Iterator[Case]:
    """Responses; half of them sound around a batch that is not."""
    sources = _sources()
    chance = random.Random(seed).random
    for number in count(1):
        sound = sources[int(chance() * len(sources))]
        if chance() < 0.5:
            cut = int.from_bytes(sound[_LENGTH : _LENGTH + 4], "big") + _LENGTH + 4
            # The sizes that ``mutate`` makes true are of another protocol: what it writes there is undone.
            changed = mutate(bytes(8) + sound[8:cut], chance)
            changed[:8] = sound[:8]
            frame = fetch_response(_resealed(changed) + sound[cut:], version=VERSION, correlation_id=number)
        else:
            response = fetch_response(sound, version=VERSION, correlation_id=number)
            changed = mutate(response, chance)
            frame = (len(changed) - 4).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(changed[8:])
        yield [f"{byte:02x}" for byte in frame]


def run_case(words: Case, reached: Counter[str] | None = None) -> None:
    """Scan one response, as a whole and cut in two."""
    frame = bytes.fromhex("".join(words))
    reached = Counter() if reached is None else reached
    for cuts, on_corrupt in (((), "divert"), ((len(frame) // 2,), "stop")):
        pool = Pool(1 << 28)
        reading = Reading(version=VERSION, pool=pool, on_corrupt=on_corrupt)
        try:
            reading.read(frame, cuts)
        except ProtocolError:
            reached["protocol error"] += 1
        else:
            offsets = [row["offset"] for row in reading.rows]
            assert offsets == sorted(set(offsets))
            assert sum(span.rows for span in reading.spans) == len(offsets)
            reached["rows"] += bool(reading.rows)
            reached["dead letters"] += bool(reading.letters)
            reached["damaged batches"] += bool(reading.corrupt)
        assert pool.peak <= MOST_MEMORY, f"{pool.peak} bytes were out at once"


def run_block(seed: int, first: int, count: int) -> Counter[str]:
    """Run cases ``first`` to ``first + count``; returns how often what came of them."""
    reached: Counter[str] = Counter()
    for words in islice(cases(seed), first, first + count):
        run_case(words, reached)
    return reached


if __name__ == "__main__":
    sys.exit(main(Subject("tests.fuzz.kafka", "kafka", BLOCK, run_block, cases, run_case), __doc__))
