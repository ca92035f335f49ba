"""A Kafka broker for fuzzing: it answers what it was asked by chance, and damages some of what it says."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import APIS, Body, encode_response
from fastwire.kafka.groups.subscription import encode_assignment, encode_subscription
from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.kafka.protocol.connection import Key, State
from fastwire_daemon.devbroker.kafka.requests import RELEASES, versions_of
from tests.fuzz.kafka_client import TOPIC_IDS, TOPICS, Asked, Client
from tests.fuzz.pulsar import mutate
from tests.support.kafka.markers import encode_marker

T = TypeVar("T")

_ERRORS = tuple(Code)
_QUESTIONS = ("metadata", "everything", "offsets", "epoch", "coordinator", "committed", "commit")
_NAMES = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
_NUMBERS = (0, 1, 2, 3, 5, 7, 100, -1, -2, (1 << 15) - 1, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))
_WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_TEXTS = ("", "t", "u", "x", "me", "cooperative-sticky", "consumer", "h" * 40)


def body_by_table(fields: Any, version: int, chance: Callable[[], float]) -> Body:
    """A body by the table of fields, with values that nobody has thought about."""
    return {one.name: _value(one, version, chance) for one in fields if one.in_version(version)}


def _value(one: Any, version: int, chance: Callable[[], float]) -> Any:
    if one.nullable(version) and chance() < 0.2:
        return None
    if one.kind == "array":
        size = int(chance() * 4)
        if one.fields:
            return [body_by_table(one.fields, version, chance) for _ in range(size)]
        return [_primitive(one.element, chance) for _ in range(size)]
    return body_by_table(one.fields, version, chance) if one.kind == "struct" else _primitive(one.kind, chance)


def _primitive(kind: str, chance: Callable[[], float]) -> Any:
    if kind == "bool":
        return chance() < 0.5
    if kind in _WIDTHS:
        if chance() < 0.3:
            return 0
        top = 1 << (_WIDTHS[kind] - 1)
        return max(-top, min(_NUMBERS[int(chance() * len(_NUMBERS))], top - 1))
    if kind == "string":
        return _TEXTS[int(chance() * len(_TEXTS))]
    if kind == "uuid":
        return (bytes(16), *TOPIC_IDS.values())[int(chance() * 3)]
    return bytes(int(chance() * 256) for _ in range(int(chance() * 12)))


class Broker:
    """Leads a conversation: chooses the next step of the client, or the next frame of the broker."""

    def __init__(self, client: Client, chance: Callable[[], float]) -> None:
        self._client = client
        self._chance = chance
        self._versions = versions_of(self._one(RELEASES))
        self._generation = 1

    def word(self) -> str:
        client, chance = self._client, self._chance
        connection = client.connection
        if connection is None:
            return f"connect:{self._one(('', '', '', 'plain', 'scram'))}" if chance() < 0.9 else self._ours()
        if client.asked and chance() < (0.9 if connection.state is not State.READY else 0.6):
            return self._feed(self._answer(client.asked.pop(0)))
        if chance() < 0.005:
            return self._feed(b"\0\0\0\4" + int(chance() * 20).to_bytes(4, "big"))  # an answer that nobody asked for
        return self._ours()

    def _one(self, of: Sequence[T]) -> T:
        return of[int(self._chance() * len(of))]

    def _ours(self) -> str:
        chance = self._chance
        kind = self._one(("classic", "consumer"))
        if chance() < 0.01:
            return "lost"
        if chance() < 0.15:
            return f"tick:{self._one((0.2, 0.2, 1.5, 4.0, 20.0, 31.0))}"
        return self._one(
            (
                *(f"attach:{int(chance() * 4)}",) * 6,
                *("fetch",) * 8,
                *(f"member:{kind}",) * 5,
                *(f"send:{self._one((0, 10, 3000))}",) * 3,
                *("flush",) * 3,
                f"detach:{int(chance() * 4)}",
                f"released:{kind}",
                f"topics:{kind}:{1 + int(chance() * 2)}",
                f"leave:{kind}",
                "suspend",
                "resume",
                *_QUESTIONS,
            )
        )

    def _feed(self, frame: bytes) -> str:
        chance = self._chance
        if chance() < 0.04:
            # ``mutate`` makes sizes of another protocol true in the first bytes: what it writes there is undone.
            changed = mutate(bytes(8) + frame[4:], chance)[8:]
            size = len(changed) if chance() < 0.9 else int(chance() * (1 << 31))
            frame = size.to_bytes(4, "big") + bytes(changed)
        return f"feed:{frame.hex()}"

    def _error(self, often: float = 0.08) -> int:
        return int(self._one(_ERRORS)) if self._chance() < often else 0

    # --- answers

    def _answer(self, asked: Asked) -> bytes:
        """Mostly the right one; now and then one by the table of fields alone, with anything in it."""
        chance = self._chance
        version = asked.version
        if version < 0:
            token: bytes = self._reply_to(asked)["auth_bytes"]
            return len(token).to_bytes(4) + token
        if asked.key == Key.API_VERSIONS:
            if version > self._versions[Key.API_VERSIONS][1]:
                version, body = 0, {"error_code": Code.UNSUPPORTED_VERSION, "api_keys": []}
            else:
                keys = [{"api_key": key, "min_version": a, "max_version": b} for key, (a, b) in self._versions.items()]
                body = {"error_code": self._error(0.02), "api_keys": keys}
        elif chance() < 0.05:
            body = body_by_table(APIS[asked.key].response, version, chance)
        else:
            body = self._reply_to(asked)
        if chance() < 0.03 and version >= 3:
            body["throttle_time_ms"] = self._one((1, 200, 40_000, (1 << 31) - 1, -1))
        number = asked.correlation_id if chance() < 0.99 else asked.correlation_id + 1
        return encode_response(asked.key, version, number, body)

    def _reply_to(self, asked: Asked) -> Body:
        body = asked.body
        match asked.key:
            case Key.FETCH:
                return self._records(asked)
            case Key.METADATA:
                return self._cluster()
            case Key.LIST_OFFSETS:
                return {"topics": self._each(body["topics"], "partition_index", offset=self._one((0, 5, -1, 1 << 62)))}
            case Key.OFFSET_FOR_LEADER_EPOCH:
                ends = {"leader_epoch": self._one((-1, 3, 5)), "end_offset": self._one((-1, 0, 9, 1 << 62))}
                return {"topics": self._each(body["topics"], "partition", "topic", **ends)}
            case Key.FIND_COORDINATOR:
                node: Body = {"error_code": self._error(), "node_id": 1, "host": "h", "port": 9092}
                return {"coordinators": [{"key": "g", **node}]} if asked.version >= 4 else node
            case Key.OFFSET_FETCH:
                groups = body.get("groups") or [body]
                topics = self._each(groups[0]["topics"] or (), "partition_index", committed_offset=7)
                committed: Body = {"error_code": self._error(), "topics": topics}
                return {"groups": [{"group_id": "g", **committed}]} if asked.version >= 8 else committed
            case Key.OFFSET_COMMIT:
                return {"topics": self._each(body["topics"], "partition_index")}
            case Key.INIT_PRODUCER_ID:
                return {"error_code": self._error(), "producer_id": 7, "producer_epoch": 0}
            case Key.PRODUCE:
                stored = [{"index": 0, "error_code": self._error(0.15), "base_offset": self._one((0, 5, -1))}]
                return {"responses": [{"name": "t", "partition_responses": stored if self._chance() < 0.98 else []}]}
            case Key.SASL_HANDSHAKE:
                return {"error_code": self._error(0.05), "mechanisms": ["PLAIN"]}
            case Key.SASL_AUTHENTICATE:
                token = self._one((b"", b"", b"r=nonce1,s=c2FsdA==,i=4096", b"v=x", b"e=no", b"\xff,="))
                answer: Body = {"error_code": self._error(0.05), "error_message": None, "auth_bytes": token}
                return answer | ({"session_lifetime_ms": self._one((0, 2000, -1))} if asked.version >= 1 else {})
        return self._of_group(asked)

    def _each(self, topics: Any, number: str, name: str = "name", **said: Any) -> list[Body]:
        """Say the same of all partitions that were asked for; the older tables have fewer fields."""
        found = []
        for topic in topics:
            numbers = topic.get("partition_indexes") or [one[number] for one in topic.get("partitions", ())]
            partitions = [{number: one, "error_code": self._error(0.04), **said} for one in numbers]
            found.append({name: topic[name], "partitions": partitions})
        return found

    def _cluster(self) -> Body:
        chance = self._chance
        nodes = [{"node_id": node, "host": "h", "port": 9092} for node in range(1 + int(chance() * 3))]
        topics = []
        for name in TOPICS[: 1 + int(chance() * 2)]:
            partitions = [
                {
                    "error_code": self._error(0.05),
                    "partition_index": number,
                    "leader_id": self._one((0, 0, 1, -1)),
                    "leader_epoch": self._one((5, 5, 6, 4, -1)),
                    "replica_nodes": [0],
                    "isr_nodes": [],
                }
                for number in range(2)
            ]
            topics.append(
                {
                    "error_code": self._error(0.05),
                    "name": name,
                    "topic_id": self._one((TOPIC_IDS[name], bytes(16))),
                    "partitions": partitions,
                }
            )
        return {"brokers": nodes, "cluster_id": "c", "controller_id": 0, "topics": topics}

    def _of_group(self, asked: Asked) -> Body:
        chance = self._chance
        error = self._error(0.2)
        places = [place for place in ((topic, number) for topic in TOPICS for number in range(2)) if chance() < 0.6]
        match asked.key:
            case Key.JOIN_GROUP:
                self._generation += 1
                subscription = encode_subscription("cooperative-sticky", TOPICS, places, self._generation)
                members = [{"member_id": name, "metadata": subscription} for name in ("me", "other")]
                return {
                    "error_code": error,
                    "generation_id": self._generation,
                    "protocol_name": self._one(("cooperative-sticky",) * 9 + ("range",)),
                    "leader": self._one(("me", "other")),
                    "member_id": "me",
                    "members": members,
                }
            case Key.SYNC_GROUP:
                assignment = encode_assignment(places) if chance() < 0.95 else b"\0\0\0\0\0\xff"
                return {"error_code": error, "assignment": assignment}
            case Key.CONSUMER_GROUP_HEARTBEAT:
                topics = [{"topic_id": TOPIC_IDS[topic], "partitions": [number]} for topic, number in places]
                return {
                    "error_code": error,
                    "error_message": None,
                    "member_id": "me",
                    "member_epoch": self._generation,
                    "heartbeat_interval_ms": self._one((0, 100, 5000)),
                    "assignment": {"topic_partitions": topics} if chance() < 0.5 else None,
                }
        return {"error_code": error}

    # --- records

    def _records(self, asked: Asked) -> Body:
        chance, body = self._chance, asked.body
        by_id = asked.version >= 13
        responses = []
        for topic in body["topics"]:
            partitions = [self._partition(one) for one in topic["partitions"] if chance() < 0.95]
            responses.append({"topic_id" if by_id else "topic": topic["topic_id" if by_id else "topic"]})
            responses[-1]["partitions"] = partitions
        if chance() < 0.05:  # somebody else's
            unasked = {"topic_id": bytes(15) + b"x"} if by_id else {"topic": "x"}
            responses.append({**unasked, "partitions": [self._partition({"partition": 0, "fetch_offset": 0})]})
        said: Body = {"responses": responses}
        if asked.version >= 7:
            said["error_code"] = self._error(0.03)
            wants = body["session_id"] or body["session_epoch"] == 0
            said["session_id"] = 77 if wants and chance() < 0.9 else 0
        return said

    def _partition(self, asked: Body) -> Body:
        chance, offset = self._chance, asked["fetch_offset"]
        error = self._error(0.06)
        records, aborted = (None, []) if error or offset < 0 or offset > 1 << 60 else self._batches(offset)
        return {
            "partition_index": asked["partition"],
            "error_code": error,
            "high_watermark": self._one((offset, offset + 10, offset + 1000, -1)),
            "last_stable_offset": self._one((offset + 1000, offset, -1)),
            "aborted_transactions": aborted if chance() < 0.9 else None,
            "records": records if records or chance() < 0.5 else None,
        }

    def _batches(self, offset: int) -> tuple[bytes, list[Body]]:
        """Up to three batches from ``offset`` on: plain, within a transaction, behind a hole, damaged or cut."""
        chance = self._chance
        data, aborted = b"", []
        for _ in range(int(chance() * 4)):
            if chance() < 0.1:
                offset += 1 + int(chance() * 5)  # compaction was here
            base = max(offset - int(chance() * 1.3), 0)  # now and then we are in the middle of it
            transactional, size = chance() < 0.2, 1 + int(chance() * 3)
            records = [
                Record(
                    value=self._one((b"value", b"", None)),
                    key=self._one((None, b"k")),
                    headers=self._one(((), (("h", b"v"), ("h", None)))),
                    timestamp=self._one((0, 1_700_000_000_000, -1)),
                )
                for _ in range(size)
            ]
            batch = encode_batch(
                records,
                base_offset=base,
                compression=self._one((*(Compression.NONE,) * 4, *Compression)),
                leader_epoch=self._one((5, -1)),
                producer_id=9 if transactional else -1,
                producer_epoch=0 if transactional else -1,
                base_sequence=0 if transactional else -1,
                transactional=transactional,
            )
            offset = base + size
            if transactional and chance() < 0.5:
                aborted.append({"producer_id": 9, "first_offset": base})
                batch += encode_marker(
                    commit=False, producer_id=9, producer_epoch=0, timestamp=1, base_offset=offset, leader_epoch=5
                )
                offset += 1
            if chance() < 0.05:
                at = int(chance() * len(batch))
                batch = batch[:at] + bytes([batch[at] ^ 1 << int(chance() * 8)]) + batch[at + 1 :]
            data += batch
        if data and chance() < 0.1:
            data = data[: int(chance() * len(data))]
        return data, aborted
