"""Requests to brokers, against those that a real broker answered."""

from typing import Any

import pytest

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.protocol.request import ConsumerRequests, encode_payload, message_time, send_request
from tests.support.tubemq.golden import EXAMPLES

GOLDEN: dict[str, Any] = {one.name: one.body for one in EXAMPLES if "message" in one.entry}
CONSUMER = ConsumerRequests("fw_127.0.0.1-100-1-1-Pull-fw", "fw")
BROKER = Broker(1, "127.0.0.1", 18123)
ZERO, ONE, NINE = (BrokerPartition(BROKER, "gold", number) for number in (0, 1, 9))
TOKEN = pb.AuthorizedInfo(visitAuthorizedToken=1795248762351)
LOCALHOST = 0x7F000001


def test_requests_of_a_consumer_equal_the_real_ones() -> None:
    assert CONSUMER.register(ZERO, TOKEN) == GOLDEN["e04_request"]
    got = CONSUMER.get(ZERO)
    assert got.manualCommitOffset
    got.manualCommitOffset = False  # as the stock client asks
    assert got == GOLDEN["e05_request"]
    assert CONSUMER.commit(ZERO) == GOLDEN["e06_request"]
    assert CONSUMER.heartbeat([ZERO, NINE], TOKEN) == GOLDEN["e10_request"]
    assert CONSUMER.unregister(ONE, TOKEN) == GOLDEN["e11_request"]


def test_requests_of_a_producer_equal_the_real_ones() -> None:
    client = "127.0.0.1-100-1-1-fw"
    assert send_request(client, "gold", 0, b"hello", TOKEN, address=LOCALHOST) == GOLDEN["e17_request"]
    attributes = {"$msgTime$": "202601011200", "$msgType$": "aaa"}
    made = send_request(client, "gold", 0, b"world", TOKEN, address=LOCALHOST, attributes=attributes)
    assert made == GOLDEN["e18_request"]
    assert send_request(client, "gold", 0, b"", TOKEN, address=0xC0000202).sentAddr == -1073741310


def test_a_registration_names_where_to_begin() -> None:
    request = CONSUMER.register(ZERO, TOKEN, offset=84, filters=["b", "a", "b"])
    assert (request.readStatus, request.currOffset, list(request.filterCondStr)) == (0, 84, ["a", "b"])
    assert not CONSUMER.register(ZERO, TOKEN).HasField("currOffset")


def test_attributes_that_would_be_read_as_others_are_refused() -> None:
    assert encode_payload(b"x", {}) == (b"x", 0)
    assert encode_payload(b"x", {"k": "v=w"}) == (b"\0\0\0\x05k=v=wx", 1)
    assert encode_payload(b"", {}) == (bytes(4), 1)  # a broker refuses an empty payload
    for attributes in ({"": "x"}, {"a=b": "x"}, {"a,b": "x"}, {"a": "x,y"}):
        with pytest.raises(ValueError):
            encode_payload(b"x", attributes)


def test_the_time_of_a_message_has_whole_minutes_in_the_zone_of_the_servers() -> None:
    assert message_time(1767240000000) == "202601011200"
    assert message_time(-46388678400000) == "050001010800"
    for wrong in (1767240000001, 1767240001000, 10**18 * 6):
        with pytest.raises(ValueError, match="an event time of"):
            message_time(wrong)
