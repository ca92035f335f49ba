"""A scanner of one partition of TubeMQ, and responses to its GETs."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.columns.scan import Stop
from fastwire.position import Log, Position, Span
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, encode_frame, encode_response
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support.tubemq.golden import content_of

LOG = Log("tubemq", "c", "gold", "1:0")
BEGIN = Position(0, 0)


class Bed:
    """A scanner of one partition, and everything that came out of it."""

    def __init__(
        self, start: Position = BEGIN, *, types: Iterable[str] = (), pool: Pool | None = None, **options: Any
    ) -> None:
        self.pool = Pool(64 << 20) if pool is None else pool
        self.slots = SlotTable()
        self.index = self.slots.add(LOG, types)
        self.slots.attach(self.index, start, 1)
        self.scanner = Scanner(self.slots, self.pool, buffer_bytes=1 << 16, **options)
        self.rows: list[dict[str, Any]] = []
        self.spans: list[Span] = []
        self.dead_letters: list[DeadLetter] = []
        self.fetched: list[Fetched] = []
        self.responses: list[tuple[int, bytes]] = []
        self.corrupt: list[CorruptMessage] = []

    def get(self, frame: bytes, sizes: Iterable[int] = ()) -> Fetched | None:
        """Plan a GET, feed its response in pieces, and return the end of it."""
        self.scanner.plan(int.from_bytes(frame[4:8]), Planned(self.index, 1))
        before = len(self.fetched)
        self.feed(frame, sizes)
        return self.fetched[-1] if len(self.fetched) > before else None

    def feed(self, data: bytes, sizes: Iterable[int] = ()) -> None:
        at = 0
        pieces = iter(sizes)
        while at < len(data):
            view = self.scanner.get_buffer()
            size = min(len(view), len(data) - at, next(pieces, len(data)))
            view[:size] = data[at : at + size]
            view.release()
            self.scanner.received(size)
            at += size
            self._scan()

    def _scan(self) -> None:
        while (stop := self.scanner.scan()) != Stop.NEED_BYTES:
            if stop == Stop.CHUNK_FULL:
                self.take()
            elif stop == Stop.OUTPUT_CAP:
                self.scanner.resume()
            else:
                found = self.scanner.take_found()
                if isinstance(found, Fetched):
                    self.fetched.append(found)
                elif isinstance(found, CorruptMessage):
                    self.corrupt.append(found)
                else:
                    assert found is not None
                    self.responses.append(found)

    def take(self) -> Chunk | None:
        chunk = self.scanner.take_chunk()
        if chunk is not None:
            self.spans += chunk.spans()
            self.dead_letters += chunk.dead_letters
            if chunk.rows:
                self.rows += pa.record_batch(chunk).to_pylist()
            chunk.release()
        return chunk

    @property
    def position(self) -> Position:
        return self.slots.position(self.index)

    def values(self) -> list[bytes]:
        self.take()
        return [row["value"] for row in self.rows]


def message(value: bytes, attributes: bytes | None = None, **fields: Any) -> pb.TransferedMessage:
    payload = value if attributes is None else len(attributes).to_bytes(4) + attributes + value
    found = pb.TransferedMessage(
        messageId=7, checkSum=zlib.crc32(payload) & 0x7FFFFFFF, payLoadData=payload, flag=int(attributes is not None)
    )
    for name, field in fields.items():
        setattr(found, name, field)
    return found


def response(
    messages: Sequence[pb.TransferedMessage], offset: int = 0, *, serial: int = 1, code: int = 200, block: int = 8192
) -> bytes:
    body = pb.GetMessageResponseB2C(
        success=code == 200, errCode=code, errMsg="OK!", messages=messages, currOffset=offset, minLimitTime=0,
        escFlowCtrl=False, currDataDlt=9, requireSlow=False, maxOffset=10**6,
    )  # fmt: skip
    return encode_frame(serial, content_of(encode_response(serial, Method.GET, body)), block_bytes=block)


def numbered(first: int, count: int) -> list[pb.TransferedMessage]:
    return [message(b"%d" % number) for number in range(first, first + count)]
