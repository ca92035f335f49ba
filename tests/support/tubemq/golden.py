"""The golden frames of TubeMQ, with what they hold, and messages made of the index's fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from tests.support.golden import FOLDER, load


@dataclass(frozen=True)
class Example:
    name: str
    entry: Mapping[str, Any]
    frame: bytes

    @property
    def content(self) -> bytes:
        return content_of(self.frame)

    @property
    def body(self) -> Message:
        return _filled(getattr(pb, self.entry["message"])(), self.entry["fields"])


def content_of(frame: bytes) -> bytes:
    """The bodies of the blocks of a frame that is sound."""
    count = int.from_bytes(frame[8:12])
    at, blocks = 12, []
    for _ in range(count):
        size = int.from_bytes(frame[at : at + 4])
        blocks.append(frame[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(frame)
    return b"".join(blocks)


def _value(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) and set(value) == {"hex"} else value


def _filled(message: Message, fields: Mapping[str, Any]) -> Message:
    for name, value in fields.items():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    _filled(getattr(message, name).add(), item)
                else:
                    getattr(message, name).append(item)
        elif isinstance(value, dict) and set(value) != {"hex"}:
            part = getattr(message, name)
            part.SetInParent()
            _filled(part, value)
        else:
            setattr(message, name, _value(value))
    return message


EXAMPLES = [
    Example(entry["name"], entry, load(f"tubemq/{entry['name']}"))
    for entry in json.loads((FOLDER / "tubemq" / "index.json").read_text())
]
