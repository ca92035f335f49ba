"""Mutated Fetch responses of Kafka against the scanner: rows, dead letters, damaged batches or ProtocolError.

    python -m tests.fuzz.kafka --seconds 600 --seed 1

What was found is a test (``tests/fastwire/kafka/test_scan.py``).
"""

import random
import sys
from collections.abc import Iterator
from itertools import count

from crc32c import crc32c

from tests.fuzz.answers import Answers
from tests.fuzz.pulsar import mutate
from tests.support.kafka.golden import Reading, fetch_response, golden, names

MOST_BYTES = 8192
VERSION = 12
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


def frames(seed: int) -> Iterator[bytes]:
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
            yield fetch_response(_resealed(changed) + sound[cut:], version=VERSION, correlation_id=number)
        else:
            response = fetch_response(sound, version=VERSION, correlation_id=number)
            changed = mutate(response, chance)
            yield (len(changed) - 4).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(changed[8:])


ANSWERS = Answers(
    "tests.fuzz.kafka",
    "kafka",
    frames,
    lambda pool, on_corrupt: Reading(version=VERSION, pool=pool, on_corrupt=on_corrupt),
)


if __name__ == "__main__":
    sys.exit(ANSWERS.main(__doc__))
