"""The messages of the benches."""

import random


class Messages:
    """JSON documents of one size, half of each random hex; keys of 12 bytes. The same ones each time."""

    def __init__(self, size: int, seed: int = 1) -> None:
        self._size = size
        self._random = random.Random(seed)

    def value(self, number: int) -> bytes:
        """The next document; ``number`` stands in it."""
        text = self._random.randbytes(self._size // 4).hex()
        return f'{{"id":{number:09},"trace":"{text}","note":"'.ljust(self._size - 2, ".").encode() + b'"}'

    def key(self, number: int) -> bytes:
        return b"key-%08d" % (number % 100_000)
