"""Parts of the embedded Pulsar broker, without a socket."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire_daemon.devbroker.pulsar.cursor import Cursor, Ranges
from fastwire_daemon.devbroker.pulsar.dispatch import key_slot
from fastwire_daemon.devbroker.pulsar.ledgers import Ledgers
from fastwire_daemon.devbroker.topiclog import TopicLog


def log_of(*messages: int) -> TopicLog:
    log = TopicLog()
    for number, count in enumerate(messages):
        log.append(b"%d" % number, count, 1000 + number, 2000 + number)
    return log


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), st.booleans())))
def test_ranges_are_a_set(steps: list[tuple[int, int, bool]]) -> None:
    ranges, model = Ranges(), set[int]()
    for start, length, drop in steps:
        if drop:
            ranges.drop_below(start)
            model -= set(range(start))
        else:
            ranges.add(start, start + length)
            model |= set(range(start, start + length))
        runs = list(ranges)
        assert {number for first, end in runs for number in range(first, end)} == model
        assert all(first < end for first, end in runs)
        assert all(end < first for (_, end), (first, _) in pairwise(runs))
        for number in range(52):
            assert (number in ranges) == (number in model)
            assert ranges.after(number) == next(one for one in range(number, 60) if one not in model)


def test_the_log_counts_messages() -> None:
    log = log_of(3, 1, 5)
    assert (log.start, log.end, log.messages) == (0, 3, 9)
    assert [log[index].first for index in range(3)] == [0, 3, 4]
    assert [log.find_message(number) for number in (0, 2, 3, 4, 8, 9)] == [0, 0, 1, 2, 2, 3]
    assert [log.find_time(time) for time in (0, 1000, 1001, 1002, 1003)] == [0, 0, 1, 2, 3]
    log.trim(2)
    assert (log.start, log.end, log.messages) == (2, 3, 9)
    assert (log[2].body, log.find_time(0), log.find_message(0)) == (b"2", 2, 2)
    with pytest.raises(IndexError, match="entry 1 is gone, the log starts at 2"):
        log[1]
    assert log.append(b"3", 1, 0, 0) == 3


def test_ledgers() -> None:
    ids = iter((5, 9, 12))
    ledgers = Ledgers(ids.__next__, 3)
    for index in range(7):
        ledgers.place(index)
    assert [ledgers.position(index) for index in (0, 2, 3, 6)] == [(5, 0), (5, 2), (9, 0), (12, 0)]
    assert ledgers.current == 12
    assert [ledgers.before(index) for index in (0, 1, 3, 7)] == [(5, -1), (5, 0), (5, 2), (12, 0)]
    assert [ledgers.index(*place) for place in ((5, 0), (9, 2), (12, 0), (5, -1), (9, -1))] == [0, 5, 6, -1, 2]
    assert [ledgers.index(*place) for place in ((5, 3), (4, 0), (7, 0), (13, 0), (5, -2))] == [None] * 5
    assert [ledgers.at_or_after(*place) for place in ((1, 7), (5, 1), (5, 9), (6, 0), (9, -1))] == [0, 1, 3, 3, 3]
    assert ledgers.at_or_after(13, 0) > 7
    assert ledgers.is_past(4) and not ledgers.is_past(5)


def test_a_new_ledger_is_not_begun_twice() -> None:
    ids = iter((1, 2, 3))
    ledgers = Ledgers(ids.__next__, 10)
    ledgers.roll(0)
    assert ledgers.current == 1
    ledgers.place(0)
    ledgers.roll(1)
    ledgers.roll(1)
    assert ledgers.current == 2
    assert ledgers.before(1) == (1, 0)


def test_the_cursor() -> None:
    log = log_of(3, 1, 5, 2)
    cursor = Cursor(log, 0)
    assert cursor.backlog() == 11
    cursor.ack(1)
    assert (cursor.mark, cursor.backlog(), cursor.next_unacked(0), cursor.next_unacked(1)) == (0, 10, 0, 2)
    cursor.ack_elements(2, 0b11010)
    assert (cursor.backlog(), cursor.remaining(2), cursor.partial) == (8, 3, {2: 0b11010})
    cursor.ack(0)
    assert (cursor.mark, cursor.backlog()) == (2, 5)
    cursor.ack_elements(2, 0b00101)  # the sets are anded: nothing is left
    assert (cursor.mark, cursor.backlog(), cursor.partial) == (3, 2, {})
    cursor.ack_to(1)  # long past
    assert cursor.mark == 3
    cursor.ack_to(3)
    assert (cursor.mark, cursor.backlog(), cursor.next_unacked(0)) == (4, 0, 4)
    cursor.reset(2, 0b1)
    assert (cursor.mark, cursor.backlog(), cursor.partial) == (2, 3, {2: 1})


def test_the_cursor_passes_over_what_is_gone() -> None:
    log = log_of(1, 1, 1, 1)
    cursor = Cursor(log, 0)
    cursor.ack(2)
    log.trim(2)
    cursor.follow_trim()
    assert (cursor.mark, cursor.backlog()) == (3, 1)


def test_keys_have_the_slots_of_their_hashes() -> None:
    assert key_slot(b"order-17") == 63080384 % 65536
    assert key_slot(b"") == 0
