"""The embedded broker of the toy system: topics in memory, and groups whose consumers acquire partitions."""

import base64
import json
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire_daemon.devbroker.base import DevBroker, RefusedError
from fastwire_daemon.devbroker.pending import HeldRequests
from fastwire_daemon.devbroker.server import Connection, on_loop
from fastwire_daemon.runtime.clock import now_ms

from .grammar import PORT

__all__ = ["ToyBroker", "make"]

FETCH_BYTES = 1 << 20
HOLD_S = 3600.0
HEAD = struct.Struct(">IBI")

Headers = Sequence[tuple[bytes, bytes | None]]


@dataclass(eq=False)
class Stored:
    """One partition: encoded records, committed offsets by group, and the consumer of each group that has it."""

    records: list[bytes] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    owners: dict[str, "ToyConnection"] = field(default_factory=dict)


@dataclass(eq=False)
class Topic:
    """A topic. A topic that is created again has another ``incarnation``."""

    partitions: list[Stored]
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex[:8])


class ToyBroker(DevBroker):
    """See ``devbroker.base.DevBroker``."""

    scheme = "toy"
    default_port = PORT

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.topics: dict[str, Topic] = {}
        self.held = HeldRequests()
        self._partitions = partitions

    def accept(self) -> "ToyConnection":
        return ToyConnection(self)

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        if name in self.topics:
            raise ValueError(f"topic {name} exists already")
        self.topics[name] = Topic([Stored() for _ in range(partitions or self._partitions)])

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        stored = self.topics[name].partitions
        stored += [Stored() for _ in range(partitions - len(stored))]

    @on_loop
    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self.held.wake()

    @on_loop
    def produce(
        self,
        name: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        keys: Sequence[bytes] | None = None,
        codec: str = "NONE",
    ) -> None:
        if codec != "NONE":
            raise KeyError(codec)
        for number, value in enumerate(values):
            self.store(self.topics[name].partitions[partition], None if keys is None else keys[number], value, ())

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        return [Position(len(stored.records), 0) for stored in self.topics[name].partitions]

    @on_loop
    def backlog(self, name: str, group: str) -> int:
        partitions = self.topics[name].partitions
        if not any(group in stored.committed for stored in partitions):
            raise KeyError(group)
        return sum(len(stored.records) - stored.committed.get(group, 0) for stored in partitions)

    def store(self, stored: Stored, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Append a record, and answer the fetches that wait for it."""
        record = struct.pack(">Qq", len(stored.records), now_ms()) + _cell(key) + _cell(value)
        record += struct.pack(">H", len(headers)) + b"".join(_cell(name) + _cell(cell) for name, cell in headers)
        stored.records.append(record)
        self.held.wake()


def _cell(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class ToyConnection(Connection):
    """One client. A request that breaks the protocol is a violation."""

    def __init__(self, broker: ToyBroker) -> None:
        super().__init__(broker)
        self.broker = broker

    def receive(self, data: memoryview) -> int:
        at = 0
        while len(data) - at >= HEAD.size:
            size, kind, number = HEAD.unpack_from(data, at)
            if kind != 0:
                raise ProtocolError("kind", at + 4, detail=f"{kind} of a request")
            if len(data) - at < 4 + size:
                break
            body = json.loads(bytes(data[at + HEAD.size : at + 4 + size]))
            at += 4 + size
            try:
                getattr(self, f"_{body.pop('do')}")(number, **body)
            except RefusedError as exc:
                self._answer(number, error=str(exc))
        return at

    def lost(self) -> None:
        self.broker.held.drop(self)
        for topic in self.broker.topics.values():
            for stored in topic.partitions:
                stored.owners = {group: owner for group, owner in stored.owners.items() if owner is not self}
        self.broker.held.wake()

    def _answer(self, number: int, **body: Any) -> None:
        self._send(0, number, json.dumps(body).encode())

    def _send(self, kind: int, number: int, body: bytes) -> None:
        self.queue(HEAD.pack(len(body) + 5, kind, number), body)

    def _stored(self, topic: str, partition: int, incarnation: str) -> Stored:
        found = self.broker.topics.get(topic)
        if found is None or found.incarnation != incarnation:
            raise RefusedError(1, f"topic {topic} was deleted")
        return found.partitions[partition]

    # --- the requests

    def _topic(self, number: int, topic: str) -> None:
        found = self.broker.topics.get(topic)
        if found is None:
            raise RefusedError(2, f"topic {topic} is not known")
        ends = [len(stored.records) for stored in found.partitions]
        self._answer(number, incarnation=found.incarnation, partitions=len(ends), ends=ends)

    def _acquire(self, number: int, group: str, **keys: Any) -> None:
        self._stored(**keys)

        def answer(last: bool) -> bool:
            try:
                stored = self._stored(**keys)
            except RefusedError as exc:
                self._answer(number, error=str(exc))
                return True
            if stored.owners.setdefault(group, self) is not self:
                return False
            self._answer(number, committed=stored.committed.get(group), end=len(stored.records))
            return True

        self._hold(answer)

    def _fetch(self, number: int, offset: int, **keys: Any) -> None:
        if offset > len(self._stored(**keys).records):
            raise ProtocolError("offset", detail=f"a fetch at {offset}, behind the end")

        def answer(last: bool) -> bool:
            try:
                records = self._stored(**keys).records
            except RefusedError as exc:
                self._answer(number, error=str(exc))
                return True
            body = b""
            for record in records[offset:]:
                if body and len(body) + len(record) > FETCH_BYTES:
                    break
                body += record
            if body:
                self._send(1, number, body)
            return bool(body)

        self._hold(answer)

    def _hold(self, answer: Any) -> None:
        if not answer(False):
            self.broker.held.hold(self, HOLD_S, answer)

    def _commit(self, number: int, group: str, offset: int, **keys: Any) -> None:
        stored = self._stored(**keys)
        if stored.owners.get(group) is not self:
            raise ProtocolError("group", detail=f"a commit for {group} by a connection that has not the partition")
        if not stored.committed.get(group, 0) <= offset <= len(stored.records):
            raise ProtocolError("offset", detail=f"a commit of {offset}")
        stored.committed[group] = offset
        self._answer(number)

    def _committed(self, number: int, group: str, **keys: Any) -> None:
        stored = self._stored(**keys)
        self._answer(number, committed=stored.committed.get(group), end=len(stored.records))

    def _produce(self, number: int, topic: str, partition: int, records: list[Any]) -> None:
        found = self.broker.topics.get(topic)
        if found is None:
            raise RefusedError(2, f"topic {topic} is not known")
        for key, value, headers in records:
            cells = [(name.encode(), _data(cell)) for name, cell in headers]
            self.broker.store(found.partitions[partition], _data(key), _data(value), cells)
        self._answer(number)


def make(partitions: int = 0) -> ToyBroker:
    """Make a broker whose topics have this number of partitions by default, 0: one."""
    return ToyBroker(max(partitions, 1))
