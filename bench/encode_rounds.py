"""The Parquet encoder over prepared rows and as little else as possible: what ``instructions`` runs under valgrind.

    python -m bench.encode_rounds ROUNDS CASE […]

Each case is encoded once, and then so many times while valgrind counts. Pages are not compressed: the
codec is not ours.
"""

import sys

from .counting import counted
from .encoded import CASES, encode

__all__: list[str] = []


def main() -> None:
    """So many rounds of each."""
    for name in sys.argv[2:]:
        batches = CASES[name]()
        encode(batches, "none", len)
        with counted():
            for _ in range(int(sys.argv[1])):
                encode(batches, "none", len)


if __name__ == "__main__":
    main()
