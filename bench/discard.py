"""From the socket of a replaying server in another process to columns, which are thrown away: the daemon's ``discard``.

    python -m bench.discard [--json] [--quick]

Beside it pulsar-client in the same run, by ``receive`` and by ``batch_receive``, looking at no more than the payload.
CPU is that of the consumer's process, kernel included, from the first record to the last acknowledgement.
"""

import sys

from .child import Case, cases, show
from .pipeline import consume

WAYS = ("receive", "batch_receive")


def how_many(case: Case) -> tuple[int, int]:
    """Messages for us and for pulsar-client: about a second or two each."""
    if case.batch > 1:
        return (8_000_000 if case.size == 100 else 2_000_000), (1_000_000 if case.size == 100 else 400_000)
    return (1_000_000, 300_000) if case.size == 100 else (400_000, 200_000)


def main() -> None:
    """Measure and print."""
    chosen = [case for case in cases() if case.codec != "zstd"] if "--quick" in sys.argv else cases()
    rows = [
        row for case in chosen for row in consume("discard", case, *how_many(case), WAYS, 'type = "discard"', rounds=2)
    ]
    show(rows)


if __name__ == "__main__":
    main()
