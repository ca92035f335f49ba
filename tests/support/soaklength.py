"""The length of the tests of `make soak`: all of it, or a share by which one sees that each of them still runs."""

import os

SHARE = float(os.environ.get("FASTWIRE_SOAK_SHARE") or "1")


def part_of(usual: int, least: int = 3) -> int:
    """Return how many of ``usual`` steps a test takes, ``least`` at least."""
    return max(least, round(usual * SHARE))


KILLS = part_of(200, least=20)  # of a campaign: in fewer, not everything happens that has to
