"""The embedded broker of the toy system: topics in memory."""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire_daemon.devbroker.base import DevBroker, RefusedError
from fastwire_daemon.devbroker.delayed import HeldRequests
from fastwire_daemon.devbroker.server import Connection, on_loop
from fastwire_daemon.runtime.clock import now_ms

from .grammar import PORT

FETCH_BYTES = 1 << 20
HOLD_S = 3600.0
HEAD = struct.Struct(">IB")


class ToyBroker(DevBroker):
    """See ``devbroker.base.DevBroker``."""

    scheme = "toy"
    default_port = PORT

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.topics: dict[str, list[list[bytes]]] = {}  # encoded records by partition
        self.held = HeldRequests()
        self._partitions = partitions

    def accept(self) -> "ToyConnection":
        return ToyConnection(self)

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        if name in self.topics:
            raise ValueError(f"topic {name} exists already")
        self.topics[name] = [[] for _ in range(partitions or self._partitions)]

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        stored = self.topics[name]
        stored += [[] for _ in range(partitions - len(stored))]

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
            self.store(self.topics[name][partition], None if keys is None else keys[number], value)

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        return [Position(len(records), 0) for records in self.topics[name]]

    def store(self, records: list[bytes], key: bytes | None, value: bytes | None) -> None:
        """Append a record, and answer the fetches that wait for it."""
        records.append(struct.pack(">q", now_ms()) + _cell(key) + _cell(value))
        self.held.wake()


def _cell(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class ToyConnection(Connection):
    """One client. A request that no sound client sends is a violation."""

    def __init__(self, broker: ToyBroker) -> None:
        super().__init__(broker)
        self.broker = broker

    def receive(self, data: memoryview) -> int:
        at = 0
        while len(data) - at >= HEAD.size:
            size, kind = HEAD.unpack_from(data, at)
            if kind != 0:
                raise ProtocolError("kind", at + 4, detail=f"{kind} of a request")
            if len(data) - at < 4 + size:
                break
            request = json.loads(bytes(data[at + HEAD.size : at + 4 + size]))
            at += 4 + size
            if not self._answer(request):
                self.broker.held.hold(self, HOLD_S, partial(self._answer, request))
        return at

    def lost(self) -> None:
        self.broker.held.drop(self)

    def _answer(self, request: Mapping[str, Any], last: bool = False) -> bool:
        """Answer a request; return False if it has to wait for records."""
        found: bytes | dict[str, Any]
        try:
            keys = {key: value for key, value in request.items() if key not in ("do", "topic")}
            found = getattr(self, f"_{request['do']}")(self._stored(request["topic"]), **keys)
        except RefusedError as exc:
            found = {"error": str(exc)}
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        if body:
            self.queue(HEAD.pack(len(body) + 1, isinstance(found, bytes)), body)
        return bool(body)

    def _stored(self, topic: str) -> list[list[bytes]]:
        if topic not in self.broker.topics:
            raise RefusedError(1, "the broker does not know it")
        return self.broker.topics[topic]

    # --- the requests

    def _topic(self, stored: list[list[bytes]]) -> dict[str, Any]:
        return {"ends": [len(records) for records in stored]}

    def _produce(self, stored: list[list[bytes]], partition: int, key: str | None, value: str | None) -> dict[str, Any]:
        self.broker.store(stored[partition], _data(key), _data(value))
        return {}

    def _fetch(self, stored: list[list[bytes]], partition: int, offset: int) -> bytes:
        records = stored[partition]
        if offset < 0:
            raise ProtocolError("offset", detail=f"a fetch at {offset}")
        if offset > len(records):
            raise RefusedError(2, f"partition {partition} has {len(records)} records, and none at {offset}")
        body = b""
        for record in islice(records, offset, None):
            if body and len(body) + len(record) > FETCH_BYTES:
                break
            body += record
        return body


def make(partitions: int = 0) -> ToyBroker:
    """Make a broker whose topics have this number of partitions by default, 0: one."""
    return ToyBroker(max(partitions, 1))
