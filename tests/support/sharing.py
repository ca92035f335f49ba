"""Distribution of tests to worker processes (``pytest -n``).

A file's tests stay together, so that what a module sets up is set up once. So do the files that need the same broker or
the same session of Spark: those take the longest to start. What has a broker, a cluster or processes of Spark of its
own stands alone: it mostly waits, and so may run beside the others. The cases of a test in ``APART`` go to different
workers: each takes long, and they share nothing.
"""

import re

from xdist.scheduler import LoadScopeScheduling

# Patterns of the beginning of a test's name, each with the name of its group. The first that fits counts.
TOGETHER = (
    (r"tests/real/test_tubemq_guarded", "guarded TubeMQ"),
    (r"tests/real/test_kafka_cluster", "Kafka cluster"),
    (r"tests/real/test_(kinds|listening)", "special Pulsar"),
    (r"tests/spark/test_(crash|source_cluster)", "processes of Spark"),
    (r"tests/real/test_spark", "Spark"),
    (r"tests/spark/", "Spark"),
    (r"tests/real/test_kafka", "Kafka"),
    # Kafka's case of a test that runs for several systems.
    (r"tests/real/.*\[(\w+-)*(kafka|classic)(-\w+)*\]$", "Kafka"),
    (r"tests/crash/.*_real_broker\[(static|none|classic|consumer)(-|\])", "Kafka"),
    (r"tests/real/test_tubemq", "TubeMQ"),
    (r"tests/real/", "Pulsar"),
    (r"tests/crash/.*_real_broker\[", "Pulsar"),
)
APART = (
    "tests/fuzz/test_fuzz",
    "tests/crash/test_campaign",
    "tests/model/test_model",
    "tests/project/test_docs_commands.py::test_what_a_page_shows_works",
)
# Begun in this order, before everything else: what takes the longest, and mostly waits; then what computes long.
FIRST = (
    "Spark",
    "TubeMQ",
    "Pulsar",
    "Kafka",
    "processes of Spark",
    "special Pulsar",
    "guarded TubeMQ",
    "Kafka cluster",
    "tests/fuzz/",
    "tests/crash/test_campaign",
    "tests/crash/",
    "tests/stores/",
    "tests/model/",
    "tests/project/test_packaging",
    "tests/project/test_docs_commands",
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


def scope(nodeid: str) -> str:
    """The name of the tests that run one after the other in one worker with test ``nodeid``."""
    if nodeid.startswith(APART):
        return nodeid
    return next((name for start, name in TOGETHER if re.match(start, nodeid)), nodeid.partition("::")[0])


def turn(nodeid: str) -> int:
    """When test ``nodeid`` is begun: a smaller number goes first."""
    name = scope(nodeid)
    return next((place for place, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


class ByBroker(LoadScopeScheduling):
    """Scopes by broker and file, in the order in which they were collected (give ``--no-loadscope-reorder``)."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
