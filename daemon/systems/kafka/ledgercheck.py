"""Topics, coordinator and rights of a transactional writer: how they are made, and looked at without a trace."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

from fastwire.errors import FastwireError, UnsupportedError, causes
from fastwire.kafka.format.error import RETRY, BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.protocol.connection import Key

from ...config import Connection
from ...runtime.outside import waits_for
from ..ledger import LedgerFinding, LedgerOptions, LedgerRefused
from .cluster import ClientCluster, Cluster
from .fence import patiently
from .settings import ClientSettings, client_fields

TOPIC = 2  # a resource type
POLICY = "cleanup.policy"
CREATE_MS = 30_000
DEFAULT_REPLICAS = 4  # the version of CreateTopics from which on a broker knows how many
OLD_REPLICAS = 3
CHECK_S = 5.0
STATE_TOPIC = "__transaction_state"
POSITIONS = {
    POLICY: "compact",
    "min.compaction.lag.ms": "3600000",  # of owners, each must be seen by the next ones
    "segment.ms": "86400000",
}
LETTERS = {
    POLICY: "delete",
    "retention.ms": "-1",  # until someone has looked at them
    "max.message.bytes": str(100 << 20),  # most are there because another topic takes less
}
REFUSED = {
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Code.INVALID_TRANSACTION_TIMEOUT,
    Code.INVALID_REPLICATION_FACTOR,
    Code.INVALID_CONFIG,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Code.POLICY_VIOLATION,
    Code.UNSUPPORTED_VERSION,
}
"""The errors that say that a client cannot have transactions with positions, and not that it cannot have them now."""


class _Right(IntEnum):
    """Numbers of the operations in the rights of a topic (spec: kafka 14.2)."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


async def topic_config(cluster: Cluster, topic: str, name: str) -> str | None:
    """Return a setting of a topic; None if the brokers do not tell it. Raises FastwireError."""
    link = await cluster.any()
    if not link.connection.speaks(Key.DESCRIBE_CONFIGS):
        return None
    asked = {"resources": [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": [name]}]}
    (answer,) = (await link.ask(Key.DESCRIBE_CONFIGS, asked))["results"]
    found = {one["name"]: one["value"] for one in answer["configs"]} if not answer["error_code"] else {}
    value = found.get(name)
    return None if value is None else str(value)


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Raise LedgerRefused for what brokers refuse within the block whatever is tried again; ``what`` it was about."""
    try:
        yield
    except FastwireError as exc:
        cause = next((each for each in causes(exc) if isinstance(each, BrokerError | UnsupportedError)), None)
        if isinstance(cause, UnsupportedError) or (isinstance(cause, BrokerError) and cause.code in REFUSED):
            raise LedgerRefused(f"{what}: {exc}") from exc
        raise


async def create_topic(
    cluster: Cluster, topic: str, what: str, configs: Mapping[str, str], *, only_ask: bool = False
) -> None:
    """Make a topic of one partition, for ``what``, if it does not exist. Raises FastwireError.

    With ``only_ask`` the brokers check whether they would.
    """
    await cluster.refresh([topic])
    known = cluster.metadata.topics.get(topic)
    if known is not None and known.error == Code.NONE:
        return
    link = await cluster.controller()  # before KRaft the others refuse
    by_default = link.connection.version_of(Key.CREATE_TOPICS) >= DEFAULT_REPLICAS
    replicas = -1 if by_default else min(OLD_REPLICAS, len(cluster.metadata.nodes))
    asked = {
        "topics": [
            {
                "name": topic,
                "num_partitions": 1,
                "replication_factor": replicas,
                "assignments": [],
                "configs": [{"name": name, "value": value} for name, value in configs.items()],
            }
        ],
        "timeout_ms": CREATE_MS,
        "validate_only": only_ask,
    }
    answer = await link.ask(Key.CREATE_TOPICS, asked)
    for one in answer["topics"]:
        if one["error_code"] not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
            advice = f"the topic {topic} for {what}; make it with one partition and {POLICY}={configs[POLICY]}"
            raise BrokerError(one["error_code"], advice, one.get("error_message"))


async def find_coordinator(cluster: Cluster, name: str, topic: str, most_s: float) -> None:
    """Raise LedgerRefused if the cluster of ``topic`` has no coordinator of transactions within ``most_s`` seconds.

    Raises FastwireError if it has none now.
    """
    try:
        with refusals("transactional ids fastwire-…"):
            (await cluster.any()).connection.version_of(Key.INIT_PRODUCER_ID)
            with waits_for(f"a coordinator of transactions beside {topic}", most_s):
                await patiently(lambda: cluster.transaction_coordinator(name), most_s)
    except BrokerError as exc:
        if exc.code != Code.COORDINATOR_NOT_AVAILABLE:
            raise
        there, state = await _described(cluster, topic, STATE_TOPIC)
        # A broker that has just started may know no topic at all.
        if there["error_code"] or state["error_code"] != Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise LedgerRefused(
            f"{exc}: for {most_s:g} s the brokers have not made {STATE_TOPIC}, because there are fewer than "
            "transaction.state.log.replication.factor of them or for another reason"
        ) from exc


async def refuse_retention(cluster: Cluster, topic: str) -> None:
    """Raise LedgerRefused if a topic of positions loses them. Without the right to know nothing is raised."""
    policy = await topic_config(cluster, topic, POLICY)
    if policy is not None and policy != "compact":
        raise LedgerRefused(
            f"the topic {topic} for positions has {POLICY}={policy}: retention would delete positions, and records "
            f"would be written again. Set {POLICY}=compact"
        )


async def inspect_ledger(connection: Connection, topic: str, ledger: LedgerOptions) -> list[LedgerFinding]:
    """See ``System.inspect_ledger``."""
    async with ClientCluster(ClientSettings(**client_fields(connection))) as cluster:
        found = [await _coordinator(cluster, ledger.name, topic)]
        target, positions, *letters = await _described(
            cluster, topic, ledger.topic, *([ledger.dead_letters] if ledger.dead_letters else ())
        )
        found += await _topic(cluster, target, "records", {_Right.WRITE, _Right.DESCRIBE})
        found += await _positions(cluster, target, positions)
        for each in letters:
            found += await _topic(cluster, each, "dead letters", {_Right.WRITE, _Right.DESCRIBE})
        return found


async def _coordinator(cluster: Cluster, name: str, topic: str) -> LedgerFinding:
    try:
        await find_coordinator(cluster, name, topic, CHECK_S)
    except FastwireError as exc:
        text = f"transactional ids fastwire-…: {exc}. They need WRITE and DESCRIBE (prefixed)"
        return LedgerFinding(False, text, isinstance(exc, LedgerRefused))
    return LedgerFinding(True, "transactional ids fastwire-…: the cluster has a coordinator for them")


async def _described(cluster: Cluster, *topics: str) -> list[Body]:
    """Return what the brokers say of each topic; one that they leave out is one that they do not know."""
    link = await cluster.any()
    asked = {
        "topics": [{"name": topic} for topic in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    found = {one["name"]: one for one in (await link.ask(Key.METADATA, asked))["topics"]}
    unknown = {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "partitions": []}
    return [found.get(topic, {"name": topic, **unknown}) for topic in topics]


async def _topic(cluster: Cluster, described: Body, what: str, needed: Iterable[_Right]) -> list[LedgerFinding]:
    topic, code = described["name"], described["error_code"]
    about, own = f"{topic} for {what}", what != "records"
    if code == Code.UNKNOWN_TOPIC_OR_PARTITION and own:
        return [await _creatable(cluster, topic, what)]
    if code:
        text = f"{about}: {BrokerError(code, 'the broker refuses it')}"
        return [LedgerFinding(False, text, own and code not in RETRY)]
    lacking = _lacking(described, needed)
    if lacking:
        return [LedgerFinding(False, f"{about}: the user lacks {' and '.join(lacking)}", own)]
    count = len(described["partitions"])
    return [LedgerFinding(True, f"{about}: {count} partition{'s' * (count != 1)}")]


async def _creatable(cluster: Cluster, topic: str, what: str) -> LedgerFinding:
    about, configs = f"{topic} for {what}: does not exist", POSITIONS if what == "positions" else LETTERS
    try:
        with refusals(about):
            await patiently(lambda: create_topic(cluster, topic, what, configs, only_ask=True))
    except FastwireError as exc:
        return LedgerFinding(False, f"{about}: {exc}", isinstance(exc, LedgerRefused))
    return LedgerFinding(True, f"{about}, the first run makes it")


def _lacking(described: Mapping[str, int], needed: Iterable[_Right]) -> list[str]:
    rights = described.get("topic_authorized_operations", -(1 << 31))
    if rights < 0:
        return []  # the broker does not tell
    return [right.name for right in sorted(needed) if not rights >> right & 1]


async def _positions(cluster: Cluster, target: Body, described: Body) -> list[LedgerFinding]:
    topic = described["name"]
    found = await _topic(cluster, described, "positions", set(_Right))
    if described["error_code"] or not found[0].ok:
        return found
    try:
        await refuse_retention(cluster, topic)
    except FastwireError as exc:
        found.append(LedgerFinding(False, str(exc), isinstance(exc, LedgerRefused)))
    copies, wanted = _copies(described), _copies(target)
    if copies < wanted:
        text = f"{topic} for positions: {copies} replica, and {target['name']} has {wanted}: give it as many"
        found.append(LedgerFinding(False, text))
    return found


def _copies(described: Body) -> int:
    return min((len(one["replica_nodes"]) for one in described["partitions"]), default=0)
