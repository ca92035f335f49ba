"""Cost of individual acknowledgements: a Shared subscription beside an Exclusive one, into ``discard``.

    python -m bench.shared [--json]

Exclusive acknowledges by position, Shared every entry, so the difference is the ack path and the bookkeeping of runs.
Beside it pulsar-client, which acknowledges each message, or only the last one now and then.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .child import Case, serving, show
from .pipeline import Figures, least_disturbed, ours, theirs

CASES = ((Case(100, 1000, "none"), 16_000_000), (Case(100, 1, "none"), 3_000_000))
THEIRS = 100_000


def measure(case: Case, messages: int) -> list[dict[str, Any]]:
    """Four consumers of the same messages; ``more_us`` is what individual acknowledgements add.

    Ours take turns, and the least disturbed run of each counts: a single one moves by more than there is to find.
    """
    rows: list[dict[str, Any]] = []

    def add(who: str, cpu: float) -> None:
        base = rows[-1]["cpu_us_per_message"] if len(rows) % 2 else None
        more = {} if base is None else {"more_us": round(cpu - base, 3)}
        rows.append({"bench": "shared", **case.fields(), "who": who, "cpu_us_per_message": round(cpu, 3), **more})

    with serving(case, messages) as told, tempfile.TemporaryDirectory(prefix="fastwire-bench-") as name:
        folder = Path(name)

        def turn() -> Iterator[tuple[str, Figures]]:
            for kind in ("exclusive", "shared"):
                yield f"fastwire {kind}", ours(told, 'type = "discard"', folder, kind)

        for who, figures in least_disturbed(turn).items():
            add(who, figures["cpu_us_per_row"])
        for how in ("batch_receive", "batch_receive_ack_each"):
            add(f"pulsar-client {how}", theirs(told, THEIRS, how, "discard", folder)["cpu_us_per_row"])
    return rows


def main() -> None:
    """Measure and print."""
    show([row for case, messages in CASES for row in measure(case, messages)])


if __name__ == "__main__":
    main()
