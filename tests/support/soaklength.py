"""The length of the tests of `make soak`: all of it, or a share by which one sees that each of them still runs."""

import os

__all__ = ["KILLS", "SHARE", "part_of"]

SHARE = float(os.environ.get("FASTWIRE_SOAK_SHARE") or "1")


def part_of(usual: int) -> int:
    """Return how many of ``usual`` steps a test takes, three at least."""
    return max(3, round(usual * SHARE))


KILLS = part_of(200)  # of a campaign
