"""Requests and responses of every version against the bytes of real brokers and clients."""

import json
from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.kafka.format.message import (
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_api_versions_error,
)
from tests.support.kafka.golden import GOLDEN

FRAMES = (GOLDEN / "frames" / "frames.bin").read_bytes()
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "frames" / "expected.json").read_text())
KEYS = {api.name: api.key for api in APIS.values()}
TOO_NEW = "apiversions-v50-unsupported"


def frame_of(name: str) -> bytes:
    said = EXPECTED[name]
    return FRAMES[said["offset"] : said["offset"] + said["size"]]


def matches(wanted: Any, found: Any) -> bool:
    """Return whether a message has all of a description, which writes bytes as hex and leaves absent fields out."""
    if isinstance(wanted, dict):
        return all(name in found and matches(value, found[name]) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(matches, wanted, found))
    return bool(bytes.fromhex(wanted) == found if isinstance(found, bytes) else wanted == found)


@pytest.mark.parametrize("name", [name for name, said in EXPECTED.items() if said["kind"] == "request"])
def test_requests(name: str) -> None:
    frame, said = frame_of(name), EXPECTED[name]
    if name.startswith(TOO_NEW):
        with pytest.raises(ProtocolError, match="no request 18 of version 50"):
            decode_request(frame[4:])
        return
    api, version, correlation_id, client_id, body = decode_request(frame[4:])
    assert (api.name, version, correlation_id, client_id) == (
        said["api"],
        said["version"],
        said["correlation_id"],
        said["client_id"],
    )
    assert matches(said["body"], body)
    assert encode_request(api.key, version, correlation_id, client_id or "", body) == frame


@pytest.mark.parametrize("name", [name for name, said in EXPECTED.items() if said["kind"] == "response"])
def test_responses(name: str) -> None:
    frame, said = frame_of(name), EXPECTED[name]
    key = KEYS[said["api"]]
    body = decode_response(key, said["version"], frame[4:])
    assert matches(said["body"], body)
    assert encode_response(key, said["version"], said["correlation_id"], body) == frame


def test_the_error_of_a_request_too_new_is_read_without_its_body() -> None:
    frame = next(frame_of(name) for name in EXPECTED if name.startswith(TOO_NEW) and name.endswith("res"))
    assert read_api_versions_error(frame[4:]) == 35


SOME = ["metadata-v12-res", "fetch-v12-req", "consumergroupheartbeat-v1-1-join-a-res", "apiversions-v3-res"]


def decode(name: str, frame: bytes) -> None:
    if name.endswith("req"):
        decode_request(frame)
    else:
        decode_response(KEYS[EXPECTED[name]["api"]], EXPECTED[name]["version"], frame)


@pytest.mark.parametrize("name", SOME)
def test_what_is_cut_off_is_a_protocol_error(name: str) -> None:
    frame = frame_of(name)[4:]
    for size in range(8, len(frame)):
        with pytest.raises(ProtocolError) as failed:
            decode(name, frame[:size])
        assert failed.value.present < max(failed.value.needed, 1)


def test_a_count_is_not_believed() -> None:
    with pytest.raises(ProtocolError, match="brokers"):
        decode_response(3, 1, bytes(4) + b"\x7f\xff\xff\xff" + bytes(100))


def test_lengths_that_are_none() -> None:
    with pytest.raises(ProtocolError, match="a length of -2"):
        decode_response(36, 0, bytes(4) + b"\0\0" + b"\xff\xfe")
    with pytest.raises(ProtocolError, match="more than 5 bytes"):
        decode_response(36, 2, bytes(4) + b"\0" + b"\0\0" + b"\xff" * 10)


def test_unknown_tags_are_skipped_and_must_ascend() -> None:
    plain = encode_response(12, 4, 7, {"error_code": 5})
    assert decode_response(12, 4, plain[4:-1] + bytes([2, 9, 1, 0, 10, 2, 0, 0]))["error_code"] == 5
    with pytest.raises(ProtocolError, match="9 follows 10"):
        decode_response(12, 4, plain[4:-1] + bytes([2, 10, 1, 0, 9, 2, 0, 0]))


def test_bytes_left_over_are_allowed() -> None:
    plain = encode_response(12, 0, 7, {"error_code": 5})
    assert decode_response(12, 0, plain[4:] + b"\0\0\0")["error_code"] == 5


def test_misuse_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no field topic"):
        encode_request(3, 4, 1, "c", {"topic": []})
    with pytest.raises(ValueError, match="Fetch version 3 is not within 4 and 18"):
        encode_request(1, 3, 1, "c", {})
    with pytest.raises(ValueError, match="group_id cannot be null"):
        encode_request(12, 4, 1, "c", {"group_id": None})
    with pytest.raises(ValueError, match="16 bytes"):
        encode_request(3, 12, 1, "c", {"topics": [{"topic_id": b"x", "name": None}]})
