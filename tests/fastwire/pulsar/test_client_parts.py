"""Computations of the asyncio client: ack sets, deadlines, message ids, properties of dead letters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.ackset import AckSets, bits_of, words_of
from fastwire.pulsar.format.command import decode_command
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.ack import encode_ack_elements
from fastwire.pulsar.protocol.deadletter import (
    DeadLetterPolicy,
    dead_letter_properties,
    reconsume_times,
    retry_properties,
)
from fastwire.pulsar.protocol.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.protocol.redelivery import Deadlines, RedeliveryBackoff

INDEX = st.integers(0, 200)
NUMBER = st.integers(0, (1 << 62) - 1)


# --- ack sets


@given(st.integers(1, 200), st.lists(st.sets(INDEX, max_size=20), max_size=30))
def test_ack_sets_against_plain_sets(size: int, acks: list[set[int]]) -> None:
    sets, left = AckSets(), set(range(size))
    held = (1 << size) - 1
    for done in acks:
        if not left:
            break
        before, left = left, left - done
        got = sets.take_out((7, 1), held, sum(1 << index for index in done))
        assert {index for index in range(size) if got >> index & 1} == left
        assert sets.left((7, 1)) == (got or None)
        assert before >= left
    assert len(sets) == bool(acks and left)


@given(st.sets(INDEX))
def test_words_are_those_of_a_java_bit_set(members: set[int]) -> None:
    bits = sum(1 << index for index in members)
    words = words_of(bits)
    assert bits_of(words) == bits
    assert len(words) % 8 == 0
    assert not words or words[-8:] != bytes(8)
    for index in members:
        assert int.from_bytes(words[index // 64 * 8 :][:8], "little") >> index % 64 & 1


def test_entries_are_forgotten_when_they_are_done() -> None:
    sets = AckSets()
    for entry in range(5):
        sets.take_out((3, entry), 0b11, 0b01)
    sets.take_out((4, 0), 0b11, 0b01)
    assert sets.forget(3, 1, 2) == [(3, 1), (3, 2)]
    assert sorted(sets.forget_to(Position(3, 4))) == [(3, 0), (3, 3), (3, 4)]
    assert sets.left((4, 0)) == 0b10


@given(st.lists(st.tuples(NUMBER, NUMBER, st.sets(INDEX, min_size=1)), min_size=1, max_size=20), st.integers(1, 7))
def test_acks_of_elements_as_protobuf_reads_them(elements: list[tuple[int, int, set[int]]], most: int) -> None:
    given_ = [(ledger, entry, words_of(sum(1 << at for at in left))) for ledger, entry, left in elements]
    frames = encode_ack_elements(5, given_, max_ids=most, request_ids=iter(range(100)))
    acks = [decode_command(frame[8:]).ack for frame in frames]
    assert [one.request_id for one in acks] == list(range(len(acks)))
    assert all((one.consumer_id, one.ack_type, len(one.message_id) <= most) == (5, 0, True) for one in acks)
    found = [
        (at.ledgerId, at.entryId, b"".join(word.to_bytes(8, "little", signed=True) for word in at.ack_set))
        for one in acks
        for at in one.message_id
    ]
    assert found == given_


def test_an_entry_with_nothing_left_is_no_ack_of_elements() -> None:
    with pytest.raises(ValueError, match="nothing of 3:4 is left"):
        encode_ack_elements(5, [(3, 4, b"")])


# --- deadlines


def test_backoff_multiplies_up_to_its_end() -> None:
    assert [RedeliveryBackoff().delay_s(count) for count in (0, 1, 50)] == [60.0, 60.0, 60.0]
    growing = RedeliveryBackoff(1.0, 2.0, 10.0)
    assert [growing.delay_s(count) for count in (0, 1, 3, 4, 1 << 40)] == [1.0, 2.0, 8.0, 10.0, 10.0]
    for wrong in ((2.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, 0.5, 2.0)):
        with pytest.raises(ValueError, match="a backoff has"):
            RedeliveryBackoff(*wrong)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100), st.integers(0, 50)), max_size=40), st.floats(0, 110))
def test_what_is_due_comes_out_once_never_early_and_a_tick_late_at_most(
    added: list[tuple[int, float, int]], now: float
) -> None:
    deadlines = Deadlines(0.5)
    for consumer, due, entry in added:
        deadlines.add(consumer, [(1, entry, entry)], due)
    taken = deadlines.take(now)
    for consumer in range(3):
        got = sorted(taken.get(consumer, []))
        assert len(got) <= sum(one == consumer and due <= now for one, due, _ in added)
        assert len(got) >= sum(one == consumer and due + 0.5 <= now for one, due, _ in added)
    deadlines.forget(1)
    rest = deadlines.take(1000.0)
    assert 1 not in rest
    assert len(deadlines) == 0
    assert sum(map(len, taken.values())) + sum(map(len, rest.values())) <= len(added)


# --- message ids


@given(NUMBER, NUMBER, st.integers(-1, 5000), st.integers(-1, 5000))
def test_message_ids_in_bytes_and_text(ledger: int, entry: int, batch_index: int, partition: int) -> None:
    one = MessageId(ledger, entry, batch_index, partition)
    assert MessageId.from_bytes(bytes(one)) == one
    assert MessageId.parse(str(one)) == one


def test_the_ends_as_official_clients_write_them() -> None:
    assert bytes(EARLIEST).hex() == "08ffffffffffffffffff0110ffffffffffffffffff01"
    assert bytes(LATEST).hex() == "08ffffffffffffffff7f10ffffffffffffffff7f"
    assert MessageId.from_bytes(bytes(EARLIEST)) == EARLIEST
    assert EARLIEST < MessageId(0, 0) < MessageId(0, 0, 0) < MessageId(0, 1) < LATEST
    for wrong in ("", "1", "1:2:3:4:5", "a:b", f"{1 << 63}:0"):
        with pytest.raises(ValueError, match="not a message id"):
            MessageId.parse(wrong)
    with pytest.raises(ValueError, match="not a message id"):
        MessageId.from_bytes(b"\xff")


def test_which_id_ends_its_entry() -> None:
    assert MessageId(1, 2).ends_entry
    assert not MessageId(1, 2, 3).ends_entry  # nobody knows how many there are
    assert MessageId(1, 2, 3, batch_size=4).ends_entry
    assert not MessageId(1, 2, 3, batch_size=5).ends_entry
    assert (MessageId(1, 0).before, MessageId(1, 5, 3).position) == (Position(1, -1), Position(1, 5))


# --- dead letters


def test_names_are_of_the_whole_topic() -> None:
    partition = parse_topic("a/b/t-partition-3")
    policy = DeadLetterPolicy()
    assert policy.dead_topic(partition, "s") == "persistent://a/b/t-s-DLQ"
    assert policy.again_topic(partition, "s") == "persistent://a/b/t-s-RETRY"
    assert DeadLetterPolicy(topic="dead").dead_topic(partition, "s") == "persistent://public/default/dead"
    with pytest.raises(ValueError, match="negative"):
        DeadLetterPolicy(most_redeliveries=-1)


def test_properties_keep_where_a_record_came_from_first() -> None:
    first = retry_properties([("a", "b")], "T", MessageId(3, 4, 5, 6), retry_topic="R", delay_s=1.5)
    assert dict(first) == {
        "a": "b",
        "REAL_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "3:4:6:5",
        "ORIGIN_MESSAGE_IDY_TIME": "3:4:6:5",
        "RECONSUMETIMES": "1",
        "DELAY_TIME": "1500",
        "RETRY_TOPIC": "R",
    }
    second = retry_properties(first, "R", MessageId(9, 9), retry_topic="R", delay_s=0.0)
    assert (dict(second)["RECONSUMETIMES"], dict(second)["ORIGIN_MESSAGE_ID"], len(second)) == ("2", "3:4:6:5", 7)
    assert dict(dead_letter_properties(second, "R", MessageId(9, 9)))["REAL_TOPIC"] == "T"
    assert [reconsume_times([("RECONSUMETIMES", text)]) for text in ("7", "x", "-1", "9" * 30)] == [7, 0, 0, 0]


def test_the_enum_of_ack_types_is_what_the_encoder_writes() -> None:
    assert (pb.CommandAck.Individual, pb.CommandAck.Cumulative) == (0, 1)
