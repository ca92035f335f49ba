"""Requests about offsets and groups, and readers of their responses (spec: kafka 5.1, 13).

A request is a body according to the message tables. A reader raises BrokerError for the first error in a response,
unless it says otherwise, and ProtocolError if the response does not match the request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastwire.errors import FastwireError, ProtocolError
from fastwire.kafka.format.error import BrokerError
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition

EARLIEST = -2
LATEST = -1

"""Topic and partition number."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offset and leader epoch by partition; -1: no record is as recent as the time. ``failed``: error by partition."""

    found: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    failed: dict[TopicPartition, FastwireError] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> tuple[int, int]:
        """Return offset and leader epoch of one partition. Raises its error."""
        if partition in self.failed:
            raise self.failed[partition]
        if partition not in self.found:
            raise ProtocolError("ListOffsets", detail="says nothing of the partition")
        return self.found[partition]


NO_MEMBER: Body = {"generation_id_or_member_epoch": -1, "member_id": ""}
"""Member fields of an offset commit by a non-member; brokers accept it only while the group has no members."""


def ask_offsets(wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> Body:
    """Build ListOffsets for the common leader: by partition EARLIEST, LATEST or a time in milliseconds."""
    topics: dict[str, list[Body]] = {}
    for (topic, number), timestamp in wanted.items():
        topics.setdefault(topic, []).append({"partition_index": number, "timestamp": timestamp})
    return {
        "isolation_level": int(read_committed),
        "topics": [{"name": topic, "partitions": asked} for topic, asked in topics.items()],
    }


def read_offsets(answer: Body) -> Offsets:
    """Read ListOffsets; an error of one partition does not hide the others."""
    offsets = Offsets()
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            place = topic["name"], one["partition_index"]
            if one["error_code"]:
                offsets.failed[place] = BrokerError(one["error_code"], f"{place[0]} partition {place[1]}")
            else:
                offsets.found[place] = one["offset"], one.get("leader_epoch", -1)
    return offsets


def ask_epoch_end(partition: TopicPartition, epoch: int, current: int) -> Body:
    """Build OffsetForLeaderEpoch: the end of ``epoch`` in the log of the leader, whose own epoch is ``current``."""
    topic, number = partition
    asked = {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}


def read_epoch_end(answer: Body) -> tuple[int, int]:
    """Return the largest epoch up to the requested one that the leader knows, and its end; -1 and -1 for none."""
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["error_code"]:
                raise BrokerError(one["error_code"], f"{topic['topic']} partition {one['partition']}")
            return one["leader_epoch"], one["end_offset"]
    raise ProtocolError("OffsetForLeaderEpoch", detail="says nothing of the partition")


def _of_group(answer: Body, table: str, key: str, group: str) -> Body:
    """Return the part of a response for ``group``: older versions have one, newer ones a table by ``key``."""
    if table not in answer:
        return answer
    for one in answer[table]:
        if one[key] == group:
            found: Body = one
            return found
    raise ProtocolError(table, detail=f"says nothing of group {group}")


def ask_coordinator(name: str, *, transactional: bool = False) -> Body:
    """Build FindCoordinator, for any broker: that of a group, or of a transactional id."""
    # Each version has some of these fields.
    return {"key_type": int(transactional), "key": name, "coordinator_keys": [name]}


def read_coordinator(answer: Body, name: str, *, transactional: bool = False) -> tuple[str, int]:
    """Return host and port of the coordinator of the group, or the transactional id, ``name``."""
    found = _of_group(answer, "coordinators", "key", name)
    if found["error_code"]:
        what = "transactional id" if transactional else "group"
        raise BrokerError(found["error_code"], f"{what} {name}", found.get("error_message"))
    return found["host"], found["port"]


def ask_committed(group: str, partitions: Iterable[TopicPartition]) -> Body:
    """Build OffsetFetch, for the coordinator: the committed offsets of ``group``."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    asked = {
        "group_id": group,
        "topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
    }
    return {**asked, "groups": [asked], "require_stable": True}


def read_committed_offsets(answer: Body, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return offset and epoch by partition; partitions without a committed offset are left out."""
    said = _of_group(answer, "groups", "group_id", group)
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


def commit_offsets(group: str, offsets: Mapping[TopicPartition, tuple[int, int]], member: Body) -> Body:
    """Build OffsetCommit, for the coordinator: offsets with their epochs; ``member`` has the member's fields."""
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


def read_commit_errors(answer: Body) -> dict[TopicPartition, int]:
    """Return error codes by partition, for partitions whose offset was not committed."""
    return {
        (topic["name"], one["partition_index"]): one["error_code"]
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["error_code"]
    }
