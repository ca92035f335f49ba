"""Free ports for servers that must be told their port before they start."""

import os
import random
import socket

# Below the kernel's ephemeral range (32768 and up), so that no outgoing connection takes a port between the choice
# and the server's bind.
LOWEST, HIGHEST = 15_000, 32_000

# Workers of one run (gw0, gw1, …) choose from ports of their own, for the same reason.
LANES = 8
LANE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % LANES

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """``count`` different ports on which nothing listens; this process is never given one of them twice."""
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.randrange(LOWEST + LANE, HIGHEST, LANES)
        if port not in _given and _can_bind(port):
            _given.add(port)
            chosen.append(port)
    return chosen


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
