"""Frames and the envelope, against the bytes that a real Master and Broker exchanged with a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import (
    MOST_BLOCKS,
    Answer,
    Method,
    Request,
    Service,
    decode_request,
    decode_response,
    encode_frame,
    encode_refusal,
    encode_request,
    encode_response,
    read_message,
)
from tests.support.tubemq.golden import EXAMPLES, Example, content_of

REQUESTS = [one for one in EXAMPLES if one.entry["kind"] == "request"]
REFUSALS = [one for one in EXAMPLES if "exceptionName" in one.entry]
RESPONSES = [one for one in EXAMPLES if one.entry["kind"] == "response" and one not in REFUSALS]


def named(examples: list[Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples, ids=lambda one: one.name)


def decode(example: Example, content: bytes) -> Request | Answer:
    if example.entry["kind"] == "request":
        return decode_request(content)
    return decode_response(content, Method(example.entry.get("method", Method.GET)))


def test_every_method_but_two_has_an_example() -> None:
    seen = {one.entry["method"] for one in REQUESTS}
    assert seen == set(Method) - {Method.PRODUCER_HEARTBEAT, Method.PRODUCER_CLOSE}


@named(REQUESTS)
def test_a_request_is_encoded_byte_for_byte(example: Example) -> None:
    entry = example.entry
    frame = encode_request(entry["serial"], Method(entry["method"]), example.body, entry["timeout"])
    assert frame == example.frame


@named(REQUESTS)
def test_a_request_is_decoded(example: Example) -> None:
    entry = example.entry
    request = decode_request(example.content)
    assert (request.service, request.protocol, request.method, request.timeout_ms) == (
        entry["service"], entry["ver"], entry["method"], entry["timeout"],
    )  # fmt: skip
    assert request.method.service == request.service
    assert request.body == example.body


@named(RESPONSES)
def test_a_response_is_encoded_and_decoded_byte_for_byte(example: Example) -> None:
    method = Method(example.entry["method"])
    assert encode_response(example.entry["serial"], method, example.body) == example.frame
    assert decode_response(example.content, method) == example.body


@named(REFUSALS)
def test_a_refusal_is_encoded_and_decoded_byte_for_byte(example: Example) -> None:
    entry = example.entry
    refused = Refused(entry["exceptionName"], entry["stackTrace"], entry["status"] == 2)
    assert encode_refusal(entry["serial"], refused) == example.frame
    assert decode_response(example.content, Method.GET) == refused


@pytest.mark.parametrize("package", ["org.apache.inlong.tubemq", "com.apache.tubemq", "com.tencent.tubemq"])
def test_a_standby_master_is_known_by_the_end_of_the_name(package: str) -> None:
    assert Refused(f"{package}.corerpc.exception.StandbyException", "", False).standby
    assert not Refused(f"{package}.corerpc.exception.StandbyExceptions", "", False).standby


def test_the_example_of_a_standby_master_is_one() -> None:
    standby = [one.entry["exceptionName"] for one in REFUSALS if Refused(one.entry["exceptionName"], "", False).standby]
    assert len(standby) == 1


@named(EXAMPLES)
def test_each_truncation_is_a_protocol_error(example: Example) -> None:
    content = example.content
    for size in range(len(content)):
        with pytest.raises(ProtocolError):
            decode(example, content[:size])


@named(EXAMPLES)
def test_bytes_after_the_content_are_ignored(example: Example) -> None:
    """The C++ client sends up to nine of them."""
    assert decode(example, example.content + bytes(9)) == decode(example, example.content)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_mutation_is_read_or_a_protocol_error(example: Example, data: st.DataObject) -> None:
    content = bytearray(example.content)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    try:
        decode(example, bytes(content))
    except ProtocolError:
        pass


@given(st.binary(min_size=1, max_size=200), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_block_borders_have_no_meaning(content: bytes, block: int, serial: int) -> None:
    frame = encode_frame(serial, content, block_bytes=block)
    assert content_of(frame) == content
    assert int.from_bytes(frame[4:8]) == serial


def test_a_large_content_is_cut_every_8192_bytes() -> None:
    frame = encode_frame(1, bytes(20_061))
    sizes, at = [], 12
    while at < len(frame):
        sizes.append(int.from_bytes(frame[at : at + 4]))
        at += 4 + sizes[-1]
    assert sizes == [8192, 8192, 3677]


def test_a_frame_that_a_server_would_throw_away_is_not_made() -> None:
    with pytest.raises(ValueError):
        encode_frame(1, b"")
    with pytest.raises(ValueError):
        encode_frame(1, bytes(MOST_BLOCKS + 1), block_bytes=1)
    with pytest.raises(ValueError):
        encode_request(1, Method.GET, pb.GetMessageRequestC2B(), 0)


def test_a_response_of_another_method_is_a_protocol_error() -> None:
    example = next(one for one in RESPONSES if one.entry["method"] == Method.COMMIT)
    with pytest.raises(ProtocolError, match="18 answers a request of 16"):
        decode_response(example.content, Method.BROKER_HEARTBEAT)


def test_a_message_without_a_required_field_is_a_protocol_error() -> None:
    body = pb.CloseRequestP2M(clientId="c").SerializeToString()
    with pytest.raises(ProtocolError, match="required fields are missing: groupName"):
        read_message(pb.CloseRequestC2M, body, "close")


def test_text_that_is_not_utf8_is_a_protocol_error() -> None:
    """The parser returns bytes for it, where all code expects text."""
    body = pb.HeartResponseM2C(success=True, errCode=200, errMsg="OK!")
    body.event.subscribeInfo.append("c@g#1:h:1#t:0")
    data = body.SerializeToString().replace(b"c@g", b"\xff@g")
    with pytest.raises(ProtocolError, match=r"EventProto\.subscribeInfo is not UTF-8"):
        read_message(pb.HeartResponseM2C, data, "heartbeat")


def test_services_of_the_methods() -> None:
    assert {method for method in Method if method.service is Service.READ} == {15, 16, 17, 18}
    assert {method for method in Method if method.service is Service.WRITE} == {13}
