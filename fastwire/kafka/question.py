"""What is asked of a cluster about places in its logs and about groups, and how the answers read (kafka 5.1, 13).

A request is a body by the tables. A reader of an answer raises BrokerError for the first error that stands in it.
"""

from collections.abc import Iterable, Mapping

from fastwire.errors import ProtocolError
from fastwire.kafka.error import BrokerError
from fastwire.kafka.message import Body

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_MEMBER",
    "Partition",
    "ask_committed",
    "ask_coordinator",
    "ask_epoch_end",
    "ask_offsets",
    "commit_offsets",
    "read_commit_errors",
    "read_committed_offsets",
    "read_coordinator",
    "read_epoch_end",
    "read_offsets",
]

EARLIEST = -2
LATEST = -1

Partition = tuple[str, int]
"""Topic and number."""

NO_MEMBER: Body = {"generation_id_or_member_epoch": -1, "member_id": ""}
"""Who commits for a group without being in it; brokers take that only while nobody else is."""


def ask_offsets(wanted: Mapping[Partition, int], *, read_committed: bool) -> Body:
    """ListOffsets, to the leader of all of them: for each EARLIEST, LATEST or a time in milliseconds."""
    topics: dict[str, list[Body]] = {}
    for (topic, number), timestamp in wanted.items():
        topics.setdefault(topic, []).append({"partition_index": number, "timestamp": timestamp})
    return {
        "isolation_level": int(read_committed),
        "topics": [{"name": topic, "partitions": asked} for topic, asked in topics.items()],
    }


def read_offsets(answer: Body) -> dict[Partition, tuple[int, int]]:
    """Offset and leader epoch by partition; -1 is no offset: no record is as young as that time."""
    found = {}
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["error_code"]:
                raise BrokerError(one["error_code"], f"{topic['name']} partition {one['partition_index']}")
            found[topic["name"], one["partition_index"]] = one["offset"], one.get("leader_epoch", -1)
    return found


def ask_epoch_end(partition: Partition, epoch: int, current: int) -> Body:
    """OffsetForLeaderEpoch: where ``epoch`` ends in the log of the leader, whose own epoch is ``current``."""
    topic, number = partition
    asked = {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}


def read_epoch_end(answer: Body) -> tuple[int, int]:
    """The largest epoch up to the one asked for that the leader knows, and where it ends; -1 and -1: none it knows."""
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["error_code"]:
                raise BrokerError(one["error_code"], f"{topic['topic']} partition {one['partition']}")
            return one["leader_epoch"], one["end_offset"]
    raise ProtocolError("OffsetForLeaderEpoch", detail="says nothing of the partition")


def ask_coordinator(group: str) -> Body:
    """FindCoordinator, to any broker."""
    return {"key_type": 0, "key": group, "coordinator_keys": [group]}  # each version takes what it knows


def read_coordinator(answer: Body, group: str) -> tuple[str, int]:
    """Host and port of who looks after ``group``."""
    found = answer["coordinators"][0] if "coordinators" in answer else answer
    if found["error_code"]:
        raise BrokerError(found["error_code"], f"group {group}", found.get("error_message"))
    return found["host"], found["port"]


def ask_committed(group: str, partitions: Iterable[Partition]) -> Body:
    """OffsetFetch, to the coordinator: what ``group`` has committed."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    asked = {
        "group_id": group,
        "topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
    }
    return {**asked, "groups": [asked], "require_stable": True}


def read_committed_offsets(answer: Body, group: str) -> dict[Partition, tuple[int, int]]:
    """Offset and epoch by partition; those without are left out."""
    said = answer["groups"][0] if "groups" in answer else answer
    if said.get("error_code", 0):
        raise BrokerError(said["error_code"], f"group {group}")
    found = {}
    for topic in said["topics"]:
        for one in topic["partitions"]:
            if one["error_code"]:
                raise BrokerError(one["error_code"], f"group {group}, {topic['name']}")
            if one["committed_offset"] >= 0:
                place = topic["name"], one["partition_index"]
                found[place] = one["committed_offset"], one.get("committed_leader_epoch", -1)
    return found


def commit_offsets(group: str, offsets: Mapping[Partition, tuple[int, int]], member: Body) -> Body:
    """OffsetCommit, to the coordinator: offsets with their epochs; ``member`` says who we are in the group."""
    topics: dict[str, list[Body]] = {}
    for (topic, number), (offset, epoch) in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": offset,
                "committed_leader_epoch": epoch,
                "committed_metadata": "",
            }
        )
    return {
        **member,
        "group_id": group,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


def read_commit_errors(answer: Body) -> dict[Partition, int]:
    """The codes of what was not committed."""
    return {
        (topic["name"], one["partition_index"]): one["error_code"]
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["error_code"]
    }
