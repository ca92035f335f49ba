"""The producer of one partition: what is sent, again, and what becomes of it."""

import pytest

from fastwire.producer import BatchLimits, NotConfirmed
from fastwire.tank.format.error import BrokerError, ProduceCode
from fastwire.tank.producing.bundle import Message, read_head, read_messages
from fastwire.tank.producing.producer import Producer, ProducerSettings, Sending, weight


def producer(count: int = 2, *, numbered: bool = False, timeout_s: float | None = 10.0) -> Producer:
    return Producer(ProducerSettings(batching=BatchLimits(records=count), numbered=numbered, send_timeout_s=timeout_s))


def filled(count: int, **settings: object) -> Producer:
    machine = producer(**settings)  # type: ignore[arg-type]
    for number in range(count):
        machine.send(Message(value=b"%d" % number), number, 0.0)
    return machine


def taken(machine: Producer, now: float = 0.0) -> Sending:
    sending = machine.take(now)
    assert sending is not None
    return sending


def contents(sending: Sending) -> list[Message]:
    return read_messages(sending.data, read_head(sending.data, 0, len(sending.data), 1))


def test_bundles_close_by_count_bytes_and_delay() -> None:
    machine = filled(3)
    assert machine.batches == 1
    assert machine.weight == 3 * weight(Message(value=b"0"))
    assert machine.deadline == 0.005
    machine.tick(0.005)
    assert machine.batches == 2
    large = Producer(ProducerSettings(batching=BatchLimits(bytes=100)))
    for _ in range(3):
        large.send(Message(value=b"x" * 60), None, 0.0)
    assert large.batches == 2


def test_one_bundle_is_in_flight_and_order_stays() -> None:
    machine = filled(4)
    first = taken(machine)
    assert [one.value for one in contents(first)] == [b"0", b"1"]
    assert machine.take(0.0) is None
    machine.answered(ProduceCode.NO_LEADER, 0.0)
    assert machine.take(0.0) is None
    assert machine.deadline == 0.1
    assert taken(machine, 0.1) == first
    machine.answered(ProduceCode.STORED, 0.1)
    assert [(one.tickets, one.error) for one in machine.take_outcomes()] == [([0, 1], None)]
    assert [one.value for one in contents(taken(machine, 0.2))] == [b"2", b"3"]
    machine.answered(ProduceCode.STORED, 0.2)
    assert machine.idle
    assert machine.weight == 0


def test_an_unanswered_bundle_is_sent_again() -> None:
    machine = filled(2)
    first = taken(machine)
    machine.unanswered(1.0)
    assert taken(machine, 1.0) == first


@pytest.mark.parametrize("code", [ProduceCode.UNKNOWN_TOPIC, ProduceCode.READ_ONLY, ProduceCode.IO_FAULT, 0x77])
def test_refused_bundles_fail_and_later_ones_go_on(code: int) -> None:
    machine = filled(4)
    taken(machine)
    machine.answered(code, 0.0)
    (outcome,) = machine.take_outcomes()
    assert outcome.tickets == [0, 1]
    assert outcome.error is not None
    assert isinstance(outcome.error, BrokerError) == (code != 0x77)
    assert taken(machine) is not None


def numbered(count: int, next_sequence: int) -> Producer:
    machine = filled(count, numbered=True)
    assert machine.needs_sequence
    assert machine.take(0.0) is None
    machine.number(next_sequence)
    assert not machine.needs_sequence
    return machine


def test_numbered_bundles_are_recognised_by_the_broker() -> None:
    machine = numbered(4, 41)
    sending = taken(machine)
    assert sending.base == 41
    assert [one.sequence for one in contents(sending)] == [41, 42]
    machine.unanswered(0.0)
    assert taken(machine) == sending
    machine.answered(ProduceCode.BAD_SEQUENCE, 0.0)
    assert machine.take(0.0) is None
    assert machine.needs_sequence  # is it stored, or another producer's?
    machine.number(43)
    assert [(one.offset, one.error) for one in machine.take_outcomes()] == [(41, None)]
    assert taken(machine).base == 43
    machine.answered(ProduceCode.STORED, 0.0)
    assert machine.take_outcomes()[0].offset == 43
    assert machine.numbered


def test_messages_are_not_numbered_beside_another_producer() -> None:
    machine = numbered(4, 41)
    taken(machine)
    machine.answered(ProduceCode.BAD_SEQUENCE, 0.0)
    assert machine.take_outcomes() == []
    assert not machine.numbered
    for values in ([b"0", b"1"], [b"2", b"3"]):
        sending = taken(machine)
        assert sending.base is None
        assert not read_head(sending.data, 0, len(sending.data), 1).sparse
        assert [one.value for one in contents(sending)] == values
        machine.answered(ProduceCode.STORED, 0.0)
        assert [(one.offset, one.error) for one in machine.take_outcomes()] == [(-1, None)]


def test_a_repetition_that_is_refused_because_of_another_producer_is_not_lost() -> None:
    machine = numbered(2, 41)
    taken(machine)
    machine.unanswered(0.0)
    taken(machine)
    machine.answered(ProduceCode.BAD_SEQUENCE, 0.0)
    machine.number(42)  # one message of another producer
    assert machine.take_outcomes() == []
    assert taken(machine).base is None


def test_acknowledgements_that_came_too_late_may_have_stored_it() -> None:
    machine = numbered(2, 1)
    taken(machine)
    machine.answered(ProduceCode.TIMED_OUT, 0.0)
    taken(machine, 0.1)
    machine.answered(ProduceCode.BAD_SEQUENCE, 0.1)
    machine.number(3)
    assert machine.take_outcomes()[0].error is None


def test_a_broker_that_refuses_a_sequence_that_was_not_sent() -> None:
    machine = filled(2)
    taken(machine)
    machine.answered(ProduceCode.BAD_SEQUENCE, 0.0)
    (outcome,) = machine.take_outcomes()
    assert isinstance(outcome.error, BrokerError)


def test_the_send_timeout_counts_between_attempts() -> None:
    machine = filled(2)
    taken(machine)
    machine.tick(20.0)
    assert machine.take_outcomes() == []
    machine.unanswered(20.0)
    machine.tick(20.0)
    assert isinstance(machine.take_outcomes()[0].error, NotConfirmed)


def test_a_timeout_says_what_the_broker_has_said() -> None:
    machine = filled(2)
    taken(machine)
    machine.answered(ProduceCode.TIMED_OUT, 1.0)
    machine.tick(20.0)
    (outcome,) = machine.take_outcomes()
    assert "not confirmed within 10 s: " in str(outcome.error)
    assert str(outcome.error).endswith("timed out")


def test_a_failed_producer_takes_nothing_more() -> None:
    machine = filled(3)
    taken(machine)
    machine.fail(NotConfirmed("gone"))
    assert [one.tickets for one in machine.take_outcomes()] == [[0, 1], [2]]
    machine.answered(0, 0.0)
    assert machine.idle
    with pytest.raises(NotConfirmed):
        machine.send(Message(value=b""), None, 0.0)


def test_what_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="255"):
        producer().send(Message(value=b"", key=b"k" * 256), None, 0.0)
    with pytest.raises(ValueError, match="65535"):
        ProducerSettings(batching=BatchLimits(records=65_536))
