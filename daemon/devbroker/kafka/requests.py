"""A decoded request, and the versions of requests that each release serves (spec: kafka 4.2)."""

from dataclasses import dataclass

from fastwire.kafka.format.message import Api, Body, decode_request
from fastwire.kafka.protocol.connection import Key


@dataclass(frozen=True, slots=True)
class Request:
    """One decoded request; ``client_id`` is "" where the client has sent none."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: Body

    @classmethod
    def of_frame(cls, frame: bytes) -> "Request":
        """Decode a frame. Raises ProtocolError."""
        api, version, correlation_id, client_id, body = decode_request(frame)
        return cls(api, version, correlation_id, client_id or "", body)


Versions = dict[int, tuple[int, int]]
"""Lowest and highest version by key."""

RELEASES = ("0.11", "1.1", "2.1", "2.3", "2.4", "2.8", "3.3", "3.9", "4.0", "4.1")

# The highest version in each release, -1 where the request is not known yet; lastly the lowest one from 4.0 on.
_TABLE = {
    Key.API_VERSIONS: (1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 0),
    Key.METADATA: (4, 5, 7, 8, 9, 11, 12, 12, 13, 13, 0),
    Key.FETCH: (5, 7, 10, 11, 11, 12, 13, 17, 17, 18, 4),
    Key.LIST_OFFSETS: (2, 2, 4, 5, 5, 6, 7, 9, 10, 10, 1),
    Key.OFFSET_FOR_LEADER_EPOCH: (0, 0, 2, 3, 3, 4, 4, 4, 4, 4, 2),
    Key.FIND_COORDINATOR: (1, 1, 2, 2, 3, 3, 4, 6, 6, 6, 0),
    Key.JOIN_GROUP: (2, 2, 3, 5, 6, 7, 9, 9, 9, 9, 2),
    Key.SYNC_GROUP: (1, 1, 2, 3, 4, 5, 5, 5, 5, 5, 0),
    Key.HEARTBEAT: (1, 1, 2, 3, 4, 4, 4, 4, 4, 4, 0),
    Key.LEAVE_GROUP: (1, 1, 2, 2, 4, 4, 5, 5, 5, 5, 0),
    Key.OFFSET_COMMIT: (3, 3, 6, 7, 8, 8, 8, 9, 9, 9, 2),
    Key.OFFSET_FETCH: (3, 3, 5, 5, 6, 7, 8, 9, 9, 9, 1),
    Key.PRODUCE: (3, 5, 7, 7, 8, 9, 9, 11, 12, 12, 3),
    Key.INIT_PRODUCER_ID: (0, 0, 1, 1, 2, 4, 4, 5, 5, 5, 0),
    Key.ADD_PARTITIONS_TO_TXN: (0, 0, 1, 1, 1, 3, 3, 3, 3, 3, 0),  # higher ones are for brokers
    Key.END_TXN: (0, 0, 1, 1, 1, 3, 3, 4, 5, 5, 0),
    Key.CREATE_TOPICS: (2, 2, 3, 3, 5, 7, 7, 7, 7, 7, 2),
    Key.DESCRIBE_CONFIGS: (0, 1, 2, 2, 2, 4, 4, 4, 4, 4, 1),
    Key.DELETE_TOPICS: (1, 1, 3, 3, 4, 6, 6, 6, 6, 6, 1),
    Key.SASL_HANDSHAKE: (0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0),
    Key.SASL_AUTHENTICATE: (-1, 0, 0, 1, 1, 2, 2, 2, 2, 2, 0),
    Key.CONSUMER_GROUP_HEARTBEAT: (-1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 0),  # a preview only before 4.0
}
_FROM_0_11 = {Key.FETCH: 4, Key.PRODUCE: 3}  # older message formats are not served


def versions_of(release: str) -> Versions:
    """Return what a broker of a release answers to ApiVersions. Raises ValueError for a release not in RELEASES."""
    if release not in RELEASES:
        raise ValueError(f"no release {release!r}: there are {', '.join(RELEASES)}")
    column = RELEASES.index(release)
    recent = float(release) >= 4
    return {
        key: (highest[-1] if recent else _FROM_0_11.get(key, 0), highest[column])
        for key, highest in _TABLE.items()
        if highest[column] >= 0
    }
