"""Permits counted exactly, acks grouped and kept, and the phases of a consumer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.consumer import ACK_GROUP_IDS, MOST_PERMITS, Acks, ConsumerMachine, Permits, Phase, Sent
from fastwire.pulsar.protocol.request import SubscribeRequest
from tests.support.pulsar.connection_scene import CONSUMER, TOPIC, C, Wire, batch

# --- permits


class CountedPermits(RuleBasedStateMachine):
    """A client and a broker that count on their own; the broker hands out batches while it has any permit."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = Permits(100)
        self.force = 100  # the largest window that was in force when permits were granted
        self.broker = 0
        self.debited = 0

    def flow(self, amount: int) -> None:
        assert amount >= 0
        if amount:
            assert self.permits.started
            assert not self.permits.hold
            self.broker += amount
            self.force = self.permits.window
            assert self.broker <= self.force

    @precondition(lambda self: not self.permits.started)
    @rule()
    def start(self) -> None:
        self.permits.start()
        self.flow(self.permits.due(self.debited))

    @precondition(lambda self: self.broker > 0)
    @rule(size=st.integers(1, 400))
    def deliver(self, size: int) -> None:
        self.broker -= size
        self.debited += size
        self.flow(self.permits.due(self.debited))

    @rule()
    def idle(self) -> None:
        self.flow(self.permits.rest(self.debited))
        if self.permits.started and not self.permits.hold and self.broker <= self.permits.window:
            assert self.broker == self.permits.window

    @rule(window=st.integers(1, 500))
    def resize(self, window: int) -> None:
        self.permits.window = window

    @rule()
    def hold(self) -> None:
        self.permits.hold = not self.permits.hold

    @rule()
    def reconnect(self) -> None:
        self.permits.reset()
        self.broker = self.debited = 0

    @invariant()
    def both_count_the_same(self) -> None:
        assert self.permits.outstanding(self.debited) == self.broker


TestCountedPermits = CountedPermits.TestCase


def test_half_of_the_window_triggers_and_all_of_it_is_granted() -> None:
    permits = Permits(1000)
    assert permits.due(0) == 0  # not before the subscription stands
    permits.start()
    assert permits.due(0) == 1000
    assert permits.due(499) == 0
    assert permits.due(500) == 500
    # A broker overshoots by whole batches: what it took too much is granted again with the rest.
    assert permits.due(4000) == 3500
    assert permits.outstanding(4000) == 1000
    assert permits.due(4001) == 0
    assert permits.rest(4001) == 1
    assert permits.rest(4001) == 0


def test_a_window_of_one() -> None:
    permits = Permits(1)
    permits.start()
    assert [permits.due(n) for n in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError):
        Permits(0)


def test_a_grant_fits_its_field() -> None:
    permits = Permits(MOST_PERMITS + 5)
    permits.start()
    assert permits.due(0) == MOST_PERMITS
    assert permits.rest(0) == 5


# --- acks


def test_acks_are_grouped_by_time_and_by_number() -> None:
    acks = Acks()
    assert not acks.due(0.0)
    acks.cumulative(Position(1, 5), 10.0)
    acks.cumulative(Position(1, 3), 10.0)
    assert not acks.due(10.0625)
    assert acks.due(10.125)
    acks.cumulative(Position(2, 0), 10.125)
    assert acks.take() == (Position(2, 0), [])
    assert not acks.waiting
    acks.individual([(1, 0, ACK_GROUP_IDS - 2)], 20.0)
    assert not acks.due(20.0)
    acks.individual([(2, 7, 7)], 20.0)
    assert acks.due(20.0)
    assert acks.take() == (None, [(1, 0, ACK_GROUP_IDS - 2), (2, 7, 7)])


def test_a_cumulative_ack_goes_out_once() -> None:
    acks = Acks()
    acks.cumulative(Position(1, 5), 0.0)
    acks.take()
    acks.cumulative(Position(1, 5), 1.0)
    assert not acks.waiting
    acks.confirm(Position(3, 0))  # the broker's cursor stands further than we thought
    acks.cumulative(Position(2, 9), 1.0)
    assert not acks.waiting


def test_what_may_be_lost_with_a_connection_is_sent_again() -> None:
    acks = Acks()
    acks.cumulative(Position(1, 5), 0.0)
    acks.take()
    acks.expect(1, Sent(Position(1, 5)))
    acks.disconnected(1.0)
    assert acks.take() == (Position(1, 5), [])
    acks.expect(2, Sent(Position(1, 5)))
    acks.receipt(2, True)
    acks.disconnected(2.0)
    assert not acks.waiting


def test_a_refused_ack_is_sent_with_the_next_one() -> None:
    acks = Acks()
    acks.cumulative(Position(1, 5), 0.0)
    acks.take()
    acks.expect(1, Sent(Position(1, 5)))
    acks.receipt(1, False)
    acks.cumulative(Position(1, 5), 1.0)
    assert acks.take() == (Position(1, 5), [])
    assert not acks.outstanding


def test_landed_entries_that_come_again_are_acknowledged_again() -> None:
    acks = Acks()
    acks.cumulative(Position(1, 5), 0.0)
    acks.take()
    acks.confirm(Position(1, 5))
    acks.again(1.0)
    assert acks.take() == (Position(1, 5), [])


def test_a_cursor_that_was_moved_back_is_acknowledged_up_to_what_is_durable() -> None:
    acks = Acks()
    acks.cumulative(Position(1, 5), 0.0)
    acks.take()
    acks.confirm(Position(1, 5))
    acks.disconnected(1.0)
    acks.stands(Position(-1, -1))
    acks.cumulative(Position(1, 5), 2.0)
    assert acks.take() == (Position(1, 5), [])
    # A broker that does not say where its cursor stands.
    acks.confirm(Position(1, 5))
    acks.disconnected(3.0)
    acks.again(4.0)
    assert acks.take() == (Position(1, 5), [])
    # Somebody has moved it on and back: only what is durable is acknowledged.
    acks.stands(Position(1, 9))
    acks.again(5.0)
    assert acks.take() == (Position(1, 5), [])


def test_a_seek_makes_everything_before_it_void() -> None:
    acks = Acks()
    acks.cumulative(Position(9, 9), 0.0)
    acks.individual([(1, 1, 1)], 0.0)
    acks.forget()
    assert not acks.waiting
    acks.cumulative(Position(1, 1), 1.0)
    assert acks.take() == (Position(1, 1), [])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=20), st.data())
def test_the_cumulative_mark_never_goes_back(positions: list[tuple[int, int]], data: Any) -> None:
    acks, sent = Acks(), []
    for at, (ledger, entry) in enumerate(positions):
        acks.cumulative(Position(ledger, entry), float(at))
        if data.draw(st.booleans()) and acks.waiting:
            position, _ = acks.take()
            assert position is not None
            sent.append(position)
    assert sent == sorted(set(sent))


# --- the consumer


def make(
    kind: "pb.CommandSubscribe.SubType" = pb.CommandSubscribe.Failover, window: int = 100
) -> tuple[Wire, ConsumerMachine]:
    wire = Wire()
    wire.ready()
    wire.slots.detach(CONSUMER)
    want = SubscribeRequest(
        topic=TOPIC, subscription="s", subscription_type=kind, consumer_id=CONSUMER, consumer_name="n"
    )
    return wire, ConsumerMachine(want, wire.slots, window)


def subscribe(wire: Wire, consumer: ConsumerMachine) -> int:
    request_id = consumer.subscribe(wire.connection, 1, wire.now)
    wire.heard()
    wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=request_id))
    consumer.subscribed(wire.now)
    return request_id


def test_no_flow_before_the_grant_and_then_exactly_the_window() -> None:
    wire, consumer = make()
    subscribe(wire, consumer)
    consumer.pump()
    consumer.settle()
    assert wire.heard() == []
    consumer.grant()
    (command,) = wire.heard()
    assert command.flow.messagePermits == 100
    wire.feed(wire.entry(batch(0, rows=30), 0))
    consumer.pump()
    assert wire.heard() == []
    wire.feed(wire.entry(batch(1, rows=30), 1))
    consumer.pump()
    assert [command.flow.messagePermits for command in wire.heard()] == [60]
    wire.feed(wire.entry(batch(2, rows=7), 2))
    consumer.settle()
    assert [command.flow.messagePermits for command in wire.heard()] == [7]
    assert consumer.outstanding == 100
    assert consumer.missing == 0


def test_while_memory_is_scarce_nothing_is_granted_and_nothing_forgotten() -> None:
    wire, consumer = make()
    subscribe(wire, consumer)
    consumer.hold(True)
    consumer.grant()
    assert wire.heard() == []
    consumer.hold(False)
    assert [command.flow.messagePermits for command in wire.heard()] == [100]
    consumer.hold(True)
    wire.feed(wire.entry(batch(0, rows=90), 0))
    consumer.pump()
    consumer.settle()
    assert wire.heard() == []
    consumer.hold(False)
    assert [command.flow.messagePermits for command in wire.heard()] == [90]


def test_whoever_looks_only_when_it_is_due_misses_no_grant() -> None:
    wire, consumer = make()
    number = [consumer.consumer_id]
    subscribe(wire, consumer)
    consumer.grant()
    assert [command.flow.messagePermits for command in wire.heard()] == [100]
    wire.feed(wire.entry(batch(0, rows=49), 0))
    assert wire.slots.take_due() == []
    wire.feed(wire.entry(batch(1, rows=1), 1))
    assert wire.slots.take_due() == number
    consumer.hold(True)
    consumer.pump()
    wire.feed(wire.entry(batch(2, rows=20), 2))
    assert wire.slots.take_due() == []  # nothing may be granted, so nobody need look
    consumer.hold(False)
    assert [command.flow.messagePermits for command in wire.heard()] == [70]
    wire.feed(wire.entry(batch(3, rows=50), 3))
    assert wire.slots.take_due() == number
    consumer.pump()
    assert [command.flow.messagePermits for command in wire.heard()] == [50]
    wire.feed(wire.entry(batch(4, rows=20), 4))
    consumer.settle()
    assert [command.flow.messagePermits for command in wire.heard()] == [20]
    wire.feed(wire.entry(batch(5, rows=49), 5))
    assert wire.slots.take_due() == []
    consumer.permits.window = 40
    wire.feed(wire.entry(batch(6, rows=1), 6))
    assert wire.slots.take_due() == number
    consumer.pump()  # 50 are still under way, which is more than the window
    assert wire.heard() == []
    wire.feed(wire.entry(batch(7, rows=29), 7))
    assert wire.slots.take_due() == []
    wire.feed(wire.entry(batch(8, rows=1), 8))
    assert wire.slots.take_due() == number
    consumer.pump()
    assert [command.flow.messagePermits for command in wire.heard()] == [20]


def test_records_of_an_old_connection_cost_nothing_on_the_new_one() -> None:
    wire, consumer = make()
    subscribe(wire, consumer)
    consumer.grant()
    wire.feed(wire.entry(batch(0, rows=40), 0))
    consumer.detached(wire.now)
    assert consumer.phase is Phase.DETACHED
    subscribe(wire, consumer)
    wire.heard()
    consumer.grant()
    assert [command.flow.messagePermits for command in wire.heard()] == [100]


def test_acks_wait_for_a_subscription_and_go_out_before_permits() -> None:
    wire, consumer = make()
    consumer.landed(Position(7, 3), (), wire.now)
    consumer.send_acks(wire.now)
    assert wire.heard() == []
    request_id = consumer.subscribe(wire.connection, 1, wire.now)
    consumer.send_acks(wire.now)
    wire.heard()
    wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=request_id))
    consumer.subscribed(wire.now)
    consumer.grant()
    ack, flow = wire.heard()
    assert (ack.type, flow.type) == (C.ACK, C.FLOW)
    assert ack.ack.ack_type == pb.CommandAck.Cumulative
    assert (ack.ack.message_id[0].ledgerId, ack.ack.message_id[0].entryId) == (7, 3)


def test_positions_that_are_no_entry_are_not_acknowledged() -> None:
    wire, consumer = make()
    subscribe(wire, consumer)
    for position in (Position(-1, -1), Position(7, -1)):
        consumer.landed(position, (), wire.now)
    assert not consumer.acks.waiting


@pytest.mark.parametrize(
    ("kind", "ack_type"),
    [
        (pb.CommandSubscribe.Exclusive, pb.CommandAck.Cumulative),
        (pb.CommandSubscribe.Shared, pb.CommandAck.Individual),
    ],
)
def test_landed_entries_delivered_again_are_acknowledged_again(kind: Any, ack_type: Any) -> None:
    wire, consumer = make(kind)
    if not consumer.ordered:
        wire.slots.remove(CONSUMER)
        wire.slots.add(CONSUMER, 0, ordered=False)
    subscribe(wire, consumer)
    if consumer.ordered:
        wire.slots.set_landed(CONSUMER, Position(7, 1))
        consumer.landed(Position(7, 1), (), wire.now)
    else:
        wire.slots.set_landed_runs(CONSUMER, [(7, 0, 1)])
    consumer.send_acks(wire.now)
    wire.heard()
    wire.feed(wire.entry(batch(0), 0) + wire.entry(batch(1), 1))
    assert wire.connection.take_chunk() is None
    consumer.acknowledge_again(wire.now)
    consumer.send_acks(wire.now)
    (command,) = wire.heard()
    assert command.ack.ack_type == ack_type
    assert [(one.ledgerId, one.entryId) for one in command.ack.message_id][-1] == (7, 1)


def test_the_active_one_may_be_told_before_success() -> None:
    wire, consumer = make()
    assert not consumer.active
    consumer.subscribe(wire.connection, 1, wire.now)
    assert not consumer.active
    consumer.active = True
    consumer.subscribed(wire.now)
    assert consumer.active
    wire, consumer = make(pb.CommandSubscribe.Exclusive)
    consumer.subscribe(wire.connection, 1, wire.now)
    assert consumer.active


def test_closing_sends_acks_first_and_drops_what_still_comes() -> None:
    wire, consumer = make()
    subscribe(wire, consumer)
    consumer.grant()
    wire.heard()
    consumer.landed(Position(7, 3), (), wire.now)
    assert consumer.close(wire.now) is not None
    assert [command.type for command in wire.heard()] == [C.ACK, C.CLOSE_CONSUMER]
    assert consumer.phase is Phase.CLOSING
    wire.feed(wire.entry(batch(4), 4))
    assert wire.connection.take_chunk() is None
    assert wire.scanner.dropped_frames == 1
    wire.connection.close()
    assert consumer.close(wire.now) is None
    assert consumer.connection is None


def test_a_consumer_is_subscribed_once() -> None:
    wire, consumer = make()
    consumer.subscribe(wire.connection, 1, wire.now)
    with pytest.raises(ValueError, match="cannot subscribe in phase SUBSCRIBING"):
        consumer.subscribe(wire.connection, 1, wire.now)
    consumer.subscribed(wire.now)
    with pytest.raises(ValueError, match="was not subscribing"):
        consumer.subscribed(wire.now)
