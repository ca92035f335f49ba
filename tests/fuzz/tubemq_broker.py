"""A Master and a Broker of TubeMQ for fuzzing: they answer what they were asked by chance, and damage some of it."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Code, Refused
from fastwire.tubemq.format.frame import Method, encode_frame, encode_refusal, encode_response
from tests.fuzz.pulsar import mutate
from tests.fuzz.tubemq_client import BROKER, PARTITIONS, Asked, Client
from tests.support.tubemq.golden import content_of

T = TypeVar("T")

_NUMBERS = (-(1 << 63), -1, 0, 1, 28, 100, (1 << 31) - 1, 1 << 62, (1 << 63) - 1)
_CODES = (*map(int, Code), 0, 777)
_ATTRIBUTES = (b"$msgType$=a", b"$msgType$=b,$msgTime$=202601011200,k=v", b"flag,,=e,$msgTime$=x", b"")
_EXCEPTIONS = ("a.b.StandbyException", "c.ServiceStoppingException", "java.lang.Exception", "")
_TEXTS = ("", "x", "#", "1:10.0.0.1:8123", "t#1:2:1#100", "t#1:1:2:1", str(PARTITIONS[0]), "410:" + str(PARTITIONS[1]))
_RULES = ('[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":1,"limitInM":1,"freqInMs":5}]}]', "[{]", "", "{}")


def damaged(frame: bytes, chance: Callable[[], float]) -> bytes:
    """Change the content of a frame and put it into blocks of another size, or change the frame itself."""
    # ``mutate`` makes sizes of another protocol true in the first bytes: what it writes there is undone.
    if chance() < 0.3:
        return frame[:8] + bytes(mutate(frame, chance)[8:])
    content = bytes(mutate(bytes(8) + content_of(frame), chance)[8:]) or b"\0"
    return _reblocked(int.from_bytes(frame[4:8]), content, int(chance() * 9000))


def _reblocked(serial: int, content: bytes, block_bytes: int) -> bytes:
    """Return a frame of blocks of about this size."""
    return encode_frame(serial, content, block_bytes=max(-(-len(content) // 3000), block_bytes, 1))


class Broker:
    """Leads a conversation: chooses the next step of the client, or the next frame of the servers."""

    def __init__(self, client: Client, chance: Callable[[], float]) -> None:
        self._client = client
        self._chance = chance
        self._next_offset = [0] * len(PARTITIONS)

    def word(self) -> str:
        """Return the next word."""
        client, chance = self._client, self._chance
        if client.connection is None:
            return "connect" if chance() < 0.9 else self._ours()
        if client.asked and chance() < 0.6:
            # A real server answers in order.
            place = 0 if chance() < 0.8 else int(chance() * len(client.asked))
            return self._feed(self._answer(client.asked.pop(place)))
        return self._ours()

    def _one(self, of: Sequence[T]) -> T:
        return of[int(self._chance() * len(of))]

    def _ours(self) -> str:
        chance = self._chance
        if chance() < 0.01:
            return "lost"
        if chance() < 0.12:
            return f"tick:{self._one((0.2, 0.2, 1.5, 6.0, 11.0, 61.0))}"
        index = int(chance() * len(PARTITIONS))
        return self._one(
            (
                *(f"attach:{index}:{self._one((0, 0, 0, 7))}",) * 6,
                *(f"get:{index}",) * 12,
                *(f"send:{self._one((0, 10, 3000))}",) * 3,
                *("take",) * 4,
                *("member", "node", "writer") * 3,
                f"register:{index}",
                f"commit:{index}",
                f"detach:{index}",
                f"took:{index}",
                f"loses:{index}",
                f"finish:{self._one((1, 2, 3, 4))}",
                f"room:{self._one((0, 3, 1 << 40))}",
                "room:4000",
                "beat",
                "suspend",
                "resume",
            )
        )

    def _feed(self, frame: bytes) -> str:
        return f"feed:{(damaged(frame, self._chance) if self._chance() < 0.04 else frame).hex()}"

    # --- answers

    def _answer(self, asked: Asked) -> bytes:
        chance = self._chance
        serial = asked.serial if chance() < 0.99 else asked.serial + 1
        if chance() < 0.04:
            return encode_refusal(serial, Refused(self._one(_EXCEPTIONS), "why", chance() < 0.3))
        body = self._messages(asked.body) if asked.method is Method.GET else self._fact(asked)
        frame = encode_response(serial, asked.method, body)
        return frame if chance() < 0.8 else _reblocked(serial, content_of(frame), int(chance() * 400))

    def _fact(self, asked: Asked) -> Message:
        """Return a response with plausible values, and some that are not."""
        kind = {
            Method.PRODUCER_REGISTER: pb.RegisterResponseM2P,
            Method.PRODUCER_HEARTBEAT: pb.HeartResponseM2P,
            Method.PRODUCER_CLOSE: pb.CloseResponseM2P,
            Method.CONSUMER_REGISTER: pb.RegisterResponseM2C,
            Method.CONSUMER_HEARTBEAT: pb.HeartResponseM2C,
            Method.CONSUMER_CLOSE: pb.CloseResponseM2C,
            Method.SEND: pb.SendMessageResponseB2P,
            Method.BROKER_REGISTER: pb.RegisterResponseB2C,
            Method.BROKER_HEARTBEAT: pb.HeartBeatResponseB2C,
            Method.COMMIT: pb.CommitOffsetResponseB2C,
            Method.CLIENT_REGISTER: pb.RegisterResponseM2CV2,
            Method.CLIENT_HEARTBEAT: pb.HeartResponseM2CV2,
            Method.CLIENT_METADATA: pb.GetPartMetaResponseM2C,
        }[asked.method]
        body: Any = kind()
        self._fill(body)
        if self._chance() < 0.85:
            body.errCode = Code.SUCCESS
            if "success" in body.DESCRIPTOR.fields_by_name:
                body.success = True
        if asked.method in (Method.PRODUCER_HEARTBEAT, Method.PRODUCER_REGISTER) and self._chance() < 0.9:
            body.brokerInfos[:] = [str(BROKER)]
            if asked.method is Method.PRODUCER_HEARTBEAT:
                body.topicInfos[:] = ["t#1:2:1#100000"]
        if asked.method is Method.CONSUMER_HEARTBEAT and self._chance() < 0.8:
            body.ClearField("event")
            if self._chance() < 0.5:
                body.event.rebalanceId = self._one((0, 1, 2, 3, 4))
                body.event.opType = self._one((1, 2, 3, 10, 20, -1))
                body.event.subscribeInfo[:] = [f"c@g#{self._one(PARTITIONS)}"]
        return body  # type: ignore[no-any-return]

    def _fill(self, message: Any) -> None:
        """Set each field by chance, required ones always."""
        chance = self._chance
        for field in message.DESCRIPTOR.fields:
            repeated = field.is_repeated
            if not field.is_required and chance() < 0.5:
                continue
            for _ in range(int(chance() * 3) if repeated else 1):
                if field.message_type is not None:
                    part = getattr(message, field.name)
                    self._fill(part.add() if repeated else part)
                    continue
                value = self._value(field)
                if repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)

    def _value(self, field: Any) -> Any:
        if field.cpp_type == field.CPPTYPE_STRING:
            text = self._one(_RULES if "FlowControlInfo" in field.name else _TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        if field.cpp_type == field.CPPTYPE_BOOL:
            return self._chance() < 0.5
        if field.name == "errCode":
            return self._one(_CODES)
        number = self._one(_NUMBERS)
        bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM, field.CPPTYPE_UINT32) else 63
        return max(-(1 << bits), min(number, (1 << bits) - 1))

    # --- messages

    def _messages(self, request: pb.GetMessageRequestC2B) -> pb.GetMessageResponseB2C:
        chance = self._chance
        index = [(one.topic, one.number) for one in PARTITIONS].index((request.topicName, request.partitionId))
        code = Code.SUCCESS if chance() < 0.85 else self._one((Code.NOT_FOUND, *_CODES))
        body = pb.GetMessageResponseB2C(
            success=code == Code.SUCCESS, errCode=code, errMsg=self._one(("OK!", "")),
            minLimitTime=self._one((0, 0, 5, 10**9)), escFlowCtrl=chance() < 0.1, requireSlow=chance() < 0.1,
            currDataDlt=self._one(_NUMBERS), maxOffset=self._one(_NUMBERS),
        )  # fmt: skip
        at = self._client.slots.position(index)
        offset = at.a if chance() < 0.5 else max(at.a, self._next_offset[index])
        if chance() < 0.04:
            offset = self._one(_NUMBERS)
        body.currOffset = offset
        if code == Code.SUCCESS or chance() < 0.05:
            count = self._one((0, 1, 2, 5, 40))
            body.messages.extend(self._message(number) for number in range(count))
            if abs(offset) < 1 << 60:
                self._next_offset[index] = offset + 28 * count
        return body

    def _message(self, number: int) -> pb.TransferedMessage:
        chance = self._chance
        value = self._one((b"value", b"", b"v" * 300))
        attributes = self._one(_ATTRIBUTES) if chance() < 0.6 else None
        payload = value if attributes is None else len(attributes).to_bytes(4) + attributes + value
        if chance() < 0.02:
            payload = payload[: int(chance() * len(payload))]
        checksum = zlib.crc32(payload) & 0x7FFFFFFF
        return pb.TransferedMessage(
            messageId=number if chance() < 0.9 else self._one(_NUMBERS),
            checkSum=checksum if chance() < 0.98 else checksum ^ 1,
            payLoadData=payload,
            flag=int(attributes is not None),
        )
