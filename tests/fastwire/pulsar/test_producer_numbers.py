"""A producer without a network whose numbers are the caller's: what may be in flight, and what the broker has."""

from typing import Any

import pytest

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, Record, encode_single_entry
from fastwire.pulsar.producing.batcher import BatchLimits
from fastwire.pulsar.protocol.event import SendConfirmed
from fastwire.pulsar.protocol.request import BrokerError
from tests.support.pulsar.producer_bench import ALONE, ID, WALL, Sending

LIMITS: Any = {"batching": BatchLimits(messages=100)}


def sending(last: int = -1, **settings: Any) -> Sending:
    return Sending(last=last, send_timeout_s=None, keeps_numbers=True, **settings)


def send(of: Sending, number: int, size: int = 1) -> None:
    of.producer.send(Record(value=bytes(size), sequence_id=number), number, of.now, WALL)


def test_an_entry_larger_than_all_before_is_in_flight_alone() -> None:
    one = sending(**ALONE)
    for number, size in enumerate((10, 10, 500, 10, 400)):
        send(one, number, size)
    assert one.numbers() == [0]
    one.confirm(0)
    assert one.numbers() == [1]
    one.confirm(1)
    assert one.numbers() == [2]
    one.confirm(2)
    assert one.numbers() == [3, 4]
    one.producer.detached()
    one.connect(last=2)
    assert one.numbers() == [3, 4]
    one.confirm(3, 4)
    assert one.producer.idle


def test_the_halves_of_a_refused_entry_go_before_what_follows() -> None:
    one = sending(**LIMITS)
    for number in range(4):
        send(one, number, 300)
    one.producer.flush()
    send(one, 4)
    one.producer.flush()
    assert one.numbers() == [0]
    assert one.refuse(0, pb.NotAllowedError)
    send(one, 5)
    one.producer.flush()
    assert one.numbers() == []  # the connection is not used any more
    one.producer.detached()
    one.connect()
    assert one.numbers() == [0]
    one.confirm(0)
    assert one.numbers() == [2, 4, 5]
    (first, *_) = one.confirm(2, 4, 5)
    assert list(first.sequence_ids) == [2, 3]


def test_an_entry_that_is_refused_while_others_are_in_flight_is_not_divided() -> None:
    one = sending(**LIMITS)
    send(one, 0, 400)
    one.producer.flush()
    one.confirm(0)
    for first in (1, 3):
        send(one, first, 10)
        send(one, first + 1, 10)
        one.producer.flush()
    one.heard()
    assert not one.refuse(1, pb.NotAllowedError)  # the limit is lower now, and what follows may be stored
    (outcome,) = one.producer.take_outcomes()
    assert list(outcome.refused) == [1, 2]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_a_damaged_entry_that_is_taken_for_a_duplicate_is_not_confirmed(keeps: bool, stored: bool) -> None:
    """The broker stores what is in flight behind the damage; by its number the entry is then a duplicate."""
    one = Sending(send_timeout_s=None, keeps_numbers=keeps, **ALONE)
    for number in range(3):
        send(one, number, 10)
        one.confirm(*range(number == 0))
    assert one.numbers() == [0, 1, 2]
    assert one.refuse(1, pb.ChecksumError)
    one.producer.detached()
    one.connect(last=2 if stored else 0)
    assert one.numbers() == [1, 2]
    one.producer.confirmed(SendConfirmed(ID, 1, Position(-1, -1) if stored else Position(7, 1)))
    one.producer.confirmed(SendConfirmed(ID, 2, Position(-1, -1) if stored else Position(7, 2)))
    first, second = one.producer.take_outcomes()
    assert isinstance(first.error, BrokerError) == stored
    assert list(first.refused) == ([1] if stored and keeps else [])
    assert second.error is None
    assert one.producer.idle and one.producer.weight == 0


def test_a_copy_with_a_number_that_is_damaged_here_is_refused_for_good() -> None:
    """It stays a dead letter: behind a later number that is stored the broker would take it for a duplicate."""
    one = sending(**ALONE)
    send(one, 0, 10)
    one.confirm(0)
    body = bytearray(encode_single_entry(Record(value=b"c"), producer_name="p", sequence_id=1, publish_time=1).body)
    body[-1] ^= 1
    one.producer.send_entry(Entry(bytes(body), 1, 1, 1, 1, batched=False), 1, one.now)
    send(one, 2, 10)
    assert not one.refuse(1, pb.ChecksumError)
    (outcome,) = one.producer.take_outcomes()
    assert list(outcome.refused) == [1]
    assert isinstance(outcome.error, BrokerError)


def test_an_entry_has_no_new_records_behind_repeated_ones() -> None:
    one = sending(last=2, **LIMITS)
    for number in range(1, 5):
        send(one, number)
    one.producer.flush()
    heard = one.heard()
    one.confirm(1)
    heard += one.heard()
    assert [(command.sequence_id, command.highest_sequence_id) for command, _, _ in heard] == [(1, 2), (3, 4)]


def test_of_a_repeated_record_in_chunks_the_last_one_is_sent() -> None:
    one = sending(last=1, largest=1000, chunking=True, **ALONE)
    send(one, 1, 3000)
    ((command, metadata, _),) = one.heard()
    assert command.is_chunk and metadata.chunk_id == metadata.num_chunks_from_msg - 1 > 0
    assert [list(outcome.sequence_ids) for outcome in one.confirm(1)] == [[1]]


@pytest.mark.parametrize(("last", "fails"), [(5, True), (6, False), (7, False)])
def test_a_broker_that_has_less_than_it_has_confirmed(last: int, fails: bool) -> None:
    one = sending(last=3, **ALONE)
    send(one, 6)
    one.confirm(6)
    send(one, 7)
    one.producer.detached()
    one.connect(last=last)
    assert (one.producer.failure is not None) == fails


@pytest.mark.parametrize(("last", "fails"), [(-1, False), (1, False), (2, True), (3, False), (4, True)])
def test_a_broker_that_has_a_part_of_an_entry_from_another_client(last: int, fails: bool) -> None:
    one = sending(**LIMITS)
    for first in (0, 2):
        send(one, first)
        send(one, first + 1)
        one.producer.flush()
    one.producer.detached()
    one.connect(last=last)
    assert (one.producer.failure is not None) == fails  # it would drop the whole entry


def test_a_broker_has_the_number_of_a_record_in_chunks_when_all_are_there() -> None:
    one = sending(largest=1000, chunking=True, **ALONE)
    send(one, 4, 3000)
    one.confirm(4)
    one.producer.detached()
    one.connect(largest=1000)
    assert one.producer.failure is None and not one.producer.idle
