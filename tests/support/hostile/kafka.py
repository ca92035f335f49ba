"""Answers of Kafka brokers that cannot be right: in their bytes, or in what they say.

Each lie takes a request with the frame of its right answer, and returns the frame that is sent instead.
"""

import random
from collections.abc import Callable
from typing import Any

from fastwire.kafka.format.message import Body, decode_response, encode_response
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.kafka.requests import Request
from tests.fuzz.kafka_broker import body_by_table

Lie = Callable[[Request, bytes], bytes]


def wrong_correlation(request: Request, frame: bytes) -> bytes:
    """The answer to a request that nobody has made."""
    return frame[:4] + (request.correlation_id + 7).to_bytes(4) + frame[8:]


def wrong_size(_: Request, frame: bytes) -> bytes:
    """A size that is one too small: what is left over begins the next frame."""
    return (len(frame) - 5).to_bytes(4) + frame[4:]


def negative_size(_: Request, frame: bytes) -> bytes:
    return b"\xff\xff\xff\xfe" + frame[4:]


def huge_count(_: Request, frame: bytes) -> bytes:
    """Counts and lengths that are as large as they can be."""
    return frame[:10] + b"\xff" * (len(frame) - 10)


def ends_early(_: Request, frame: bytes) -> bytes:
    return (len(frame) - 4 - 6).to_bytes(4) + frame[4:-6]


def _answer(request: Request, body: Body) -> bytes:
    return encode_response(request.api.key, request.version, request.correlation_id, body)


def nothing(request: Request, _: bytes) -> bytes:
    """No error, and nothing of what was asked for: every list is empty."""
    return _answer(request, {})


def others(request: Request, frame: bytes) -> bytes:
    """The right answer about topics, partitions, groups and nodes that nobody has asked for."""
    body = decode_response(request.api.key, request.version, frame[4:])
    return _answer(request, _renamed(body))


def _renamed(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _renamed(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    if name in ("name", "topic", "key", "group_id", "protocol_name") and isinstance(value, str):
        return value + "-of-others"
    if name in ("partition_index", "partition", "index", "node_id", "leader_id"):
        return value + 1000
    return bytes(16) if name == "topic_id" else value


def anything(request: Request, _: bytes) -> bytes:
    """Fields by the table, with values by chance, the same ones for the same request. An error would be believed."""
    chance = random.Random(f"{request.api.name}:{request.correlation_id}").random
    body = body_by_table(request.api.response, request.version, chance)
    return _answer(request, _zeroed(body, {"error_code", "throttle_time_ms"}))


def _zeroed(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: 0 if name in names else _zeroed(one, names) for name, one in value.items()}
    return [_zeroed(one, names) for one in value] if isinstance(value, list) else value


BYTES: tuple[Lie, ...] = (wrong_correlation, wrong_size, negative_size, huge_count, ends_early)
"""Lies that end a connection."""

MEANING: tuple[Lie, ...] = (nothing, others, anything)
"""Lies that decode."""


class lying:  # noqa: N801 - reads as what it does to a broker
    """Let the next ``times`` answers to requests named ``api`` be a lie; ``left`` is how many are still to come."""

    def __init__(self, broker: KafkaDevBroker, api: str, lie: Lie, times: int = 1) -> None:
        self.left = times
        self._api = api
        self._lie = lie
        broker.tamper = self._tamper

    def _tamper(self, request: Request, frame: bytes) -> bytes:
        if request.api.name != self._api or not self.left:
            return frame
        self.left -= 1
        return self._lie(request, frame)
