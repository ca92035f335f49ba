"""Checks of the topics of a transactional writer, for ``check --connect``. Nothing is written or created."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.protocol.connection import Key

from ...config import Connection
from ..ledger import LedgerFinding, LedgerOptions
from .cluster import ClientCluster, Cluster
from .fence import patiently
from .settings import ClientSettings, client_fields

__all__ = ["inspect_ledger", "refuse_retention"]

TOPIC = 2  # a resource type
POLICY = "cleanup.policy"


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


async def refuse_retention(cluster: Cluster, topic: str) -> None:
    """Raise FastwireError if a topic of positions loses them. Without the right to know nothing is raised."""
    policy = await topic_config(cluster, topic, POLICY)
    if policy is not None and policy != "compact":
        raise FastwireError(
            f"the topic {topic} for positions has {POLICY}={policy}: retention would delete positions, and records "
            f"would be written again. Set {POLICY}=compact"
        )


async def inspect_ledger(connection: Connection, topic: str, ledger: LedgerOptions) -> list[LedgerFinding]:
    """See ``System.inspect_ledger``."""
    async with ClientCluster(ClientSettings(**client_fields(connection))) as cluster:
        return [
            await _coordinator(cluster, ledger.name),
            *await _topic(cluster, topic, "records", {_Right.WRITE, _Right.DESCRIBE}),
            *await _positions(cluster, topic, ledger.topic),
            *(
                await _topic(cluster, ledger.dead_letters, "dead letters", {_Right.WRITE, _Right.DESCRIBE})
                if ledger.dead_letters
                else ()
            ),
        ]


async def _coordinator(cluster: Cluster, name: str) -> LedgerFinding:
    try:
        await patiently(lambda: cluster.transaction_coordinator(name))
    except FastwireError as exc:
        return LedgerFinding(False, f"transactional ids fastwire-…: {exc}. They need WRITE and DESCRIBE (prefixed)")
    return LedgerFinding(True, "transactional ids fastwire-…: the cluster has a coordinator for them")


async def _described(cluster: Cluster, topic: str) -> Body:
    link = await cluster.any()
    asked = {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    (answer,) = (await link.ask(Key.METADATA, asked))["topics"]
    found: Body = answer
    return found


async def _topic(cluster: Cluster, topic: str, what: str, needed: Iterable[_Right]) -> list[LedgerFinding]:
    about = f"{topic} for {what}"
    described = await _described(cluster, topic)
    code = described["error_code"]
    if code == Code.UNKNOWN_TOPIC_OR_PARTITION and what != "records":
        return [LedgerFinding(True, f"{about}: does not exist, the first run makes it (CREATE on the topic)")]
    if code:
        return [LedgerFinding(False, f"{about}: {BrokerError(code, 'the broker refuses it')}")]
    lacking = _lacking(described, needed)
    if lacking:
        return [LedgerFinding(False, f"{about}: the user lacks {' and '.join(lacking)}")]
    count = len(described["partitions"])
    return [LedgerFinding(True, f"{about}: {count} partition{'s' * (count != 1)}")]


def _lacking(described: Mapping[str, int], needed: Iterable[_Right]) -> list[str]:
    rights = described.get("topic_authorized_operations", -(1 << 31))
    if rights < 0:
        return []  # the broker does not tell
    return [right.name for right in sorted(needed) if not rights >> right & 1]


async def _positions(cluster: Cluster, target: str, topic: str) -> list[LedgerFinding]:
    found = await _topic(cluster, topic, "positions", set(_Right))
    described = await _described(cluster, topic)
    if described["error_code"] or not found[0].ok:
        return found
    try:
        await refuse_retention(cluster, topic)
    except FastwireError as exc:
        found.append(LedgerFinding(False, str(exc)))
    copies, wanted = _copies(described), _copies(await _described(cluster, target))
    if copies < wanted:
        text = f"{topic} for positions: {copies} replica, and {target} has {wanted}: give it as many"
        found.append(LedgerFinding(False, text))
    return found


def _copies(described: Body) -> int:
    return min((len(one["replica_nodes"]) for one in described["partitions"]), default=0)
