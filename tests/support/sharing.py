"""Distribution of tests to worker processes (``pytest -n``).

A file's tests stay together, so that what a module sets up is set up once. So do the files that need the same broker or
the same Spark: those take the longest to start, and one of each is what a machine of two cores can bear. The cases of a
test in ``APART`` go to different workers: each takes minutes, and they share nothing.
"""

import re

from xdist.scheduler import LoadScopeScheduling

__all__ = ["ByBroker", "scope", "turn"]

# What begins a path, and the name under which all that begin so are kept together. The first that fits counts. They
# are begun in this order, before everything else: they take the longest, and mostly wait.
TOGETHER = (
    ("tests/real/test_spark", "Spark"),
    ("tests/real/test_kafka", "Kafka"),
    ("tests/real/test_tubemq", "TubeMQ"),
    ("tests/real/", "Pulsar"),
    ("tests/spark/", "Spark"),
)
APART = (
    "tests/fuzz/test_fuzz",
    "tests/crash/test_campaign",
    "tests/model/test_model.py::test_every_single_fault_and_many_walks",
)
FIRST = (
    "Pulsar",
    "Kafka",
    "TubeMQ",
    "Spark",
    "tests/fuzz/",
    "tests/crash/test_campaign",
    "tests/crash/",
    "tests/stores/",
    "tests/model/",
    "tests/project/test_packaging",
    "tests/bench/test_instructions",
    # Of the unit tests those that wait the longest, or compute the most.
    "tests/daemon/systems/",
    "tests/fastwire/pulsar/test_mutation",
    "tests/daemon/cli/test_feed",
    "tests/daemon/devbroker/",
    "tests/daemon/testing/test_conformance",
    "tests/fastwire/pulsar/test_batch",
    "tests/daemon/cli/",
)


# Of a test that both systems have: the case that is Kafka's.
OF_KAFKA = re.compile(r"^tests/real/.*\[(\w+-)*(kafka|classic)(-\w+)*\]$")


def scope(nodeid: str) -> str:
    """The name of the tests that run one after the other in one worker with test ``nodeid``."""
    if OF_KAFKA.match(nodeid):
        return "Kafka"
    if nodeid.startswith(APART):
        return nodeid
    path = nodeid.partition("::")[0]
    return next((name for start, name in TOGETHER if path.startswith(start)), path)


def turn(nodeid: str) -> int:
    """When test ``nodeid`` is begun: a smaller number goes first."""
    name = scope(nodeid)
    return next((place for place, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


class ByBroker(LoadScopeScheduling):
    """Scopes by broker and file, in the order in which they were collected (give ``--no-loadscope-reorder``)."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
