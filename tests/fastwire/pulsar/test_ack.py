"""FLOW and ACK frames against the golden ones and the generated protobuf code."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.ack import encode_ack_cumulative, encode_ack_runs, encode_flow
from tests.support import golden

U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-1, (1 << 63) - 1)


def parse(frame: bytes) -> pb.BaseCommand:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == len(frame) - 8
    return pb.BaseCommand.FromString(frame[8:])


def ids(command: pb.BaseCommand) -> list[tuple[int, int]]:
    signed = [(i.ledgerId, i.entryId) for i in command.ack.message_id]
    return [tuple(v - (1 << 64) if v >> 63 else v for v in pair) for pair in signed]  # type: ignore[misc]


def test_golden_flow() -> None:
    assert encode_flow(7, 1000) == golden.load("pulsar_e05_flow")


@given(U64, st.integers(1, 0x7FFFFFFF))
def test_flow(consumer: int, permits: int) -> None:
    command = parse(encode_flow(consumer, permits))
    assert command.type == pb.BaseCommand.FLOW
    assert (command.flow.consumer_id, command.flow.messagePermits) == (consumer, permits)


@pytest.mark.parametrize("permits", [0, 0x80000000])
def test_flow_of_nothing_is_refused(permits: int) -> None:
    with pytest.raises(ValueError, match=f"{permits} permits cannot be granted"):
        encode_flow(7, permits)


@given(U64, I64, I64, st.none() | U64)
def test_cumulative(consumer: int, ledger: int, entry: int, request: int | None) -> None:
    command = parse(encode_ack_cumulative(consumer, ledger, entry, request))
    assert command.type == pb.BaseCommand.ACK
    ack = command.ack
    assert (ack.consumer_id, ack.ack_type) == (consumer, pb.CommandAck.Cumulative)
    assert ids(command) == [(ledger, entry)]
    assert not ack.HasField("validation_error")
    assert (ack.request_id if ack.HasField("request_id") else None) == request


RUNS = st.lists(
    st.tuples(st.integers(0, (1 << 62)), st.integers(0, 1 << 62), st.integers(0, 40)).map(
        lambda run: (run[0], run[1], run[1] + run[2])
    ),
    max_size=12,
)


@given(U64, RUNS, st.integers(1, 50), st.booleans())
def test_runs(consumer: int, runs: list[tuple[int, int, int]], most: int, receipts: bool) -> None:
    frames = encode_ack_runs(consumer, runs, most, count(5) if receipts else None)
    commands = [parse(frame) for frame in frames]
    wanted = [(ledger, entry) for ledger, first, last in runs for entry in range(first, last + 1)]
    assert [entry for command in commands for entry in ids(command)] == wanted
    for number, command in enumerate(commands):
        assert (command.type, command.ack.ack_type) == (pb.BaseCommand.ACK, pb.CommandAck.Individual)
        assert command.ack.consumer_id == consumer
        assert 0 < len(command.ack.message_id) <= most
        assert all(not entry.ack_set for entry in command.ack.message_id)  # whole entries
        assert command.ack.HasField("request_id") == receipts
        if receipts:
            assert command.ack.request_id == 5 + number
    assert len(frames) == -(-len(wanted) // most)


def test_a_run_backwards_is_empty() -> None:
    assert encode_ack_runs(7, [(1, 5, 4)]) == []


def test_at_least_one_id_a_frame() -> None:
    with pytest.raises(ValueError, match="max_ids is below 1"):
        encode_ack_runs(7, [(1, 2, 3)], 0)


def test_the_largest_numbers_fit_a_full_frame() -> None:
    top = (1 << 63) - 2
    (frame,) = encode_ack_runs((1 << 64) - 1, [(-1, top - 999, top)], 1000, iter([(1 << 64) - 1]))
    command = parse(frame)
    assert ids(command) == [(-1, entry) for entry in range(top - 999, top + 1)]


def test_request_ids_that_run_out_are_an_error() -> None:
    with pytest.raises(StopIteration):
        encode_ack_runs(7, [(1, 0, 9)], 5, iter([1]))
