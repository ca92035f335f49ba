"""The producer of one partition: batches, sequences, and what it makes of every answer."""

import random
from typing import Any

import pytest

from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.producing.partitioner import Partitioner, murmur2
from fastwire.kafka.producing.payload import MAX_SEQUENCE, BatchHead, Record, split_batches
from fastwire.kafka.producing.producer import Producer, ProducerSettings, Sending
from fastwire.producer import BatchLimits, NotConfirmed


def head(sending: Sending) -> BatchHead:
    (found,) = split_batches(sending.data)
    return found


class Scene:
    """A producer with two records a batch; unless ``unknown`` the leader has shown that it knows it."""

    def __init__(self, *, records: int = 2, unknown: bool = False, **settings: Any) -> None:
        self.machine = Producer(ProducerSettings(batching=BatchLimits(records=records), **settings))
        self.now = 100.0
        if not unknown:
            self.machine._known_at = self.now
        self.number = 0
        self.ids = 10

    def put(self, batches: int = 1, records: int = 2) -> None:
        for _ in range(batches):
            for _ in range(records):
                self.machine.send(Record(value=b"%d" % self.number, timestamp=5), self.number, self.now)
                self.number += 1
            self.machine.flush()

    def sendings(self) -> list[Sending]:
        """All that may be sent now, with a new id if one is wanted."""
        if self.machine.needs_identity:
            self.machine.identify(self.ids, 0)
            self.ids += 1
        found = []
        while (sending := self.machine.take(self.now)) is not None:
            found.append(sending)
        return found

    def answer(self, sending: Sending, code: int = 0, offset: int = -1) -> None:
        self.machine.answered(sending, code, offset, self.now)

    def outcomes(self) -> list[tuple[list[Any], int, Any]]:
        return [(list(one.tickets), one.offset, one.error) for one in self.machine.take_outcomes()]


def sequences(sendings: list[Sending]) -> list[tuple[int, int]]:
    return [(head(one).producer_id, head(one).base_sequence) for one in sendings]


def test_nothing_goes_out_without_an_id() -> None:
    scene = Scene()
    assert not scene.machine.needs_identity  # nobody needs one
    scene.put()
    assert scene.machine.take(scene.now) is None
    assert scene.machine.needs_identity
    assert sequences(scene.sendings()) == [(10, 0)]


def test_five_at_most_are_in_flight_and_their_sequences_count_records() -> None:
    scene = Scene()
    scene.put(7)
    sent = scene.sendings()
    assert sequences(sent) == [(10, 0), (10, 2), (10, 4), (10, 6), (10, 8)]
    scene.answer(sent[0], offset=40)
    assert scene.outcomes() == [([0, 1], 40, None)]
    assert sequences(scene.sendings()) == [(10, 10)]


def test_one_batch_goes_alone_until_the_leader_knows_the_id() -> None:
    scene = Scene(unknown=True)
    scene.put(4)
    (alone,) = scene.sendings()
    assert scene.sendings() == []
    scene.answer(alone, offset=0)
    assert sequences(scene.sendings()) == [(10, 2), (10, 4), (10, 6)]


def test_one_batch_goes_alone_after_a_long_rest() -> None:
    scene = Scene(unknown=True)
    for number in range(2):
        scene.put(1)
        scene.answer(scene.sendings()[0], offset=2 * number)
    scene.put(2)
    for one in scene.sendings():
        scene.answer(one, offset=4)
    scene.now += 60
    scene.put(2)
    assert len(scene.sendings()) == 1


def test_sequences_wrap() -> None:
    scene = Scene()
    scene.put()
    scene.answer(scene.sendings()[0], offset=0)
    scene.machine._next_sequence = MAX_SEQUENCE
    scene.put(2)
    assert sequences(scene.sendings()) == [(10, MAX_SEQUENCE), (10, 1)]


def test_a_duplicate_is_stored() -> None:
    scene = Scene()
    scene.put()
    scene.answer(scene.sendings()[0], Code.DUPLICATE_SEQUENCE_NUMBER)
    assert scene.outcomes() == [([0, 1], -1, None)]
    assert scene.machine.idle


@pytest.mark.parametrize(
    "code", [Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.CORRUPT_MESSAGE]
)
def test_what_passes_is_tried_again_in_order_under_the_same_sequences(code: Code) -> None:
    scene = Scene()
    scene.put(3)
    sent = scene.sendings()
    scene.answer(sent[0], code)
    assert scene.sendings() == []  # two have not come back
    scene.answer(sent[1], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    scene.answer(sent[2], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert scene.sendings() == []  # it is too early
    deadline = scene.machine.deadline
    assert deadline is not None
    assert deadline > scene.now
    scene.now = deadline
    assert scene.outcomes() == []
    (first,) = scene.sendings()  # alone: another leader may not know us
    assert first.data == sent[0].data
    scene.answer(first, offset=0)
    assert [one.data for one in scene.sendings()] == [one.data for one in sent[1:]]


def test_what_came_through_meanwhile_is_not_sent_again() -> None:
    scene = Scene()
    scene.put(3)
    sent = scene.sendings()
    scene.answer(sent[0], Code.REQUEST_TIMED_OUT)  # the leader has it, the others do not yet
    scene.answer(sent[1], offset=2)
    scene.answer(sent[2], offset=4)
    scene.now += 1
    again = scene.sendings()
    assert sequences(again) == [(10, 0)]
    scene.answer(again[0], offset=0)
    assert [offset for _, offset, _ in scene.outcomes()] == [2, 4, 0]


def test_a_lost_connection_loses_answers_only() -> None:
    scene = Scene()
    scene.put(3)
    sent = scene.sendings()
    scene.answer(sent[0], offset=0)
    scene.machine.unanswered(scene.now)
    assert scene.sendings() == []
    scene.machine.unanswered(scene.now)
    (first,) = scene.sendings()
    assert first.data == sent[1].data
    scene.answer(first, Code.DUPLICATE_SEQUENCE_NUMBER)
    assert [one.data for one in scene.sendings()] == [sent[2].data]


@pytest.mark.parametrize(
    "code", [Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH, Code.UNKNOWN_PRODUCER_ID]
)
def test_a_broker_that_has_lost_track_gets_another_id(code: Code) -> None:
    scene = Scene()
    scene.put(1)
    scene.answer(scene.sendings()[0], offset=0)
    scene.put(2)
    sent = scene.sendings()
    assert sequences(sent) == [(10, 2), (10, 4)]
    scene.answer(sent[0], code)
    assert not scene.machine.needs_identity  # while one is under way
    scene.answer(sent[1], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert scene.machine.needs_identity
    (first,) = scene.sendings()
    scene.answer(first, offset=2)
    assert sequences([first, *scene.sendings()]) == [(11, 0), (11, 2)]


def test_a_fenced_producer_has_failed() -> None:
    scene = Scene()
    scene.machine = Producer(ProducerSettings(batching=BatchLimits(records=2)), fenceable=True)
    scene.put(2)
    first, *_ = scene.sendings()
    scene.answer(first, Code.INVALID_PRODUCER_EPOCH)
    assert isinstance(scene.machine.failure, BrokerError)
    assert [type(error) for _, _, error in scene.outcomes()] == [BrokerError, BrokerError]
    assert scene.sendings() == []


def test_a_refused_batch_leaves_no_gap_for_those_behind_it() -> None:
    scene = Scene(records=1)
    scene.put(2, records=1)
    sent = scene.sendings()
    scene.machine.answered(sent[0], Code.INVALID_RECORD, -1, scene.now, "no key")
    scene.answer(sent[1], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    ((tickets, offset, error),) = scene.outcomes()
    assert (tickets, offset) == ([0], -1)
    assert isinstance(error, BrokerError)
    assert str(error) == "the broker has not stored the records: INVALID_RECORD (no key)"
    again = scene.sendings()
    assert sequences(again) == [(11, 0)]
    scene.answer(again[0], offset=7)
    assert scene.outcomes() == [([1], 7, None)]


def test_a_batch_that_is_too_large_is_halved_until_one_record_is() -> None:
    scene = Scene(records=4)
    scene.put(1, records=4)
    scene.put(1, records=1)
    whole, behind = scene.sendings()
    scene.answer(whole, Code.MESSAGE_TOO_LARGE)
    scene.answer(behind, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (left,) = scene.sendings()
    assert sequences([left]) == [(10, 0)]
    scene.answer(left, Code.MESSAGE_TOO_LARGE)
    (single,) = scene.sendings()
    assert sequences([single]) == [(10, 0)]
    scene.answer(single, Code.MESSAGE_TOO_LARGE)
    ((tickets, _, error),) = scene.outcomes()
    assert tickets == [0]
    assert "MESSAGE_TOO_LARGE" in str(error)
    (first,) = scene.sendings()
    scene.answer(first, offset=0)
    others = scene.sendings()
    assert sequences([first, *others]) == [(11, 0), (11, 1), (11, 3)]
    for one in others:
        scene.answer(one, offset=head(one).base_sequence)
    assert [tickets for tickets, _, _ in scene.outcomes()] == [[1], [2, 3], [4]]
    assert scene.machine.weight == 0


def test_a_batch_closes_in_time_or_when_it_is_full() -> None:
    scene = Scene(records=3)
    scene.put(0)
    scene.machine.send(Record(value=b"a", timestamp=1), "a", scene.now)
    deadline = scene.machine.deadline or 0.0
    assert deadline == pytest.approx(scene.now + 0.005)
    scene.machine.tick(deadline - 0.001)
    assert scene.machine.batches == 0
    scene.machine.tick(deadline)
    assert scene.machine.batches == 1
    for ticket in "bcd":
        scene.machine.send(Record(value=b"x", timestamp=1), ticket, scene.now)
    assert scene.machine.batches == 2
    small = Producer(ProducerSettings(batching=BatchLimits(bytes=100)))
    for number in range(3):
        small.send(Record(value=b"x" * 60, timestamp=1), number, scene.now)
    assert small.batches == 2


def test_what_is_not_confirmed_in_time_is_given_up_with_all_that_may_be_stored() -> None:
    scene = Scene(send_timeout_s=30.0)
    scene.put(2)
    scene.sendings()
    scene.now += 20
    scene.put(1)  # never sent
    scene.machine.tick(scene.now + 100)
    assert scene.outcomes() == []  # an answer may still come
    for _ in range(2):
        scene.machine.unanswered(scene.now)
    scene.now += 10
    scene.machine.tick(scene.now)
    assert [(tickets, type(error)) for tickets, _, error in scene.outcomes()] == [
        ([0, 1], NotConfirmed),
        ([2, 3], NotConfirmed),
    ]
    assert sequences(scene.sendings()) == [(11, 0)]


def test_a_timeout_says_what_the_broker_has_said() -> None:
    scene = Scene(send_timeout_s=30.0)
    scene.put(1)
    (sending,) = scene.sendings()
    scene.answer(sending, Code.NOT_ENOUGH_REPLICAS)
    scene.now += 30
    scene.machine.tick(scene.now)
    ((_, _, error),) = scene.outcomes()
    assert str(error).startswith("not confirmed within 30 s: ")
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    scene.put(1)
    (sending,) = scene.sendings()
    scene.answer(sending, offset=7)
    assert scene.machine.trouble == ""


def test_a_failed_producer_takes_nothing() -> None:
    scene = Scene()
    scene.put(2)
    sent = scene.sendings()
    error = BrokerError(Code.TOPIC_AUTHORIZATION_FAILED, "t")
    scene.machine.fail(error)
    assert [error for *_, error in scene.outcomes()] == [error, error]
    scene.answer(sent[0], offset=3)  # too late
    scene.machine.unanswered(scene.now)
    assert scene.outcomes() == []
    with pytest.raises(BrokerError):
        scene.put()


def test_any_order_of_faults_stores_each_record_once_and_in_order() -> None:
    """Against a broker that keeps the rules of idempotence, and loses connections, leaders and state."""
    for seed in range(200):
        dice = random.Random(seed)
        scene = Scene(unknown=True)
        stored: list[bytes] = []
        expected: dict[int, int] = {}  # the next sequence of each id
        seen: dict[tuple[int, int], int] = {}  # offsets of batches, by id and sequence
        confirmed: dict[int, int] = {}
        left = 30
        while left or not scene.machine.idle:
            if left and dice.random() < 0.5:
                scene.put()
                left -= 1
            scene.now += 1
            sent = scene.sendings()
            lost = False
            for one in sent:
                said = head(one)
                key = said.producer_id, said.base_sequence
                refused = dice.random() < 0.1
                if lost or (refused and dice.random() < 0.5):
                    lost = True
                    scene.machine.unanswered(scene.now)
                    continue
                if refused:
                    scene.answer(one, Code.NOT_LEADER_OR_FOLLOWER)
                    continue
                if key not in seen:
                    if said.base_sequence != expected.get(said.producer_id, said.base_sequence):
                        scene.answer(one, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
                        continue
                    seen[key] = len(stored)
                    assert isinstance(one.batch.records, list)
                    stored += [record.value or b"" for record in one.batch.records]
                    expected[said.producer_id] = said.base_sequence + said.count
                if dice.random() < 0.1:
                    lost = True
                    scene.machine.unanswered(scene.now)  # stored, and nobody knows
                else:
                    scene.answer(one, offset=seen[key])
            for tickets, offset, error in scene.outcomes():
                assert error is None
                confirmed |= {ticket: offset + place for place, ticket in enumerate(tickets)}
        assert stored == [b"%d" % number for number in range(60)]
        assert confirmed == {number: number for number in range(60)}


# --- partitions


@pytest.mark.parametrize(
    ("text", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2(text: bytes, signed: int) -> None:
    assert murmur2(text) == signed & 0xFFFFFFFF


def test_a_partition_for_every_key() -> None:
    partitioner = Partitioner(7)
    assert {partitioner.of_key(b"%d" % number) for number in range(200)} == set(range(7))
    turns = []
    for _ in range(8):
        turns.append(partitioner.current)
        partitioner.turn()
    assert turns == [0, 1, 2, 3, 4, 5, 6, 0]
