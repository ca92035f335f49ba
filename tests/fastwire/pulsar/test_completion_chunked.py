"""Messages in parts, from bytes to one row: in any order, twice, too many, with some that never come."""

import random
from typing import Any

import pytest

from fastwire.position import Position, Span
from fastwire.pulsar.format.payload import Compression, Record, encode_single_entry
from fastwire.pulsar.position import PULSAR_EARLIEST
from tests.support.pulsar.completion_desk import TIME, Desk, parts, plain, values
from tests.support.pulsar.frames import CONSUMER, LOG, message_frame, oracle, resealed

MOST_BYTES = Desk.memory // 8  # of one message


@pytest.mark.parametrize("compression", list(Compression))
def test_a_chunked_message_is_one_row_with_the_place_of_its_last_part(compression: Compression) -> None:
    value = b"abc" * 200 + random.Random(1).randbytes(300)
    record: dict[str, Any] = {
        "key": "a2V5",
        "key_is_base64": True,
        "properties": [("a", "b")],
        "event_time": 7,
        "ordering_key": b"o",
    }
    whole = encode_single_entry(Record(value=value, **record), producer_name="p", sequence_id=4, publish_time=TIME)
    desk = Desk().give(*parts(4, value, 3, compression, **record))
    assert desk.rows() == oracle(message_frame(whole.body, entry=2, ledger=12))
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 1)]
    assert desk.slots.debited(CONSUMER) == 3
    assert (desk.pool.charged, len(desk.assembly), desk.events) == (0, 0, [])


def test_a_null_or_empty_chunked_value() -> None:
    bodies = parts(1, b"xy", 2)
    for place, body in enumerate(bodies):
        bodies[place] = resealed(body, lambda m: setattr(m, "null_value", True))
    (row,) = Desk().give(*bodies).rows()
    assert row["value"] is None


def test_interleaved_messages_and_what_stands_between_them() -> None:
    one, two = parts(1, b"1" * 90, 3), parts(2, b"2" * 80, 2)
    desk = Desk().give(one[0], plain(b"a"), two[0], one[1])
    # A commit now leaves out what is held, and says so.
    assert (
        desk.spans()
        == [
            Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0, None, None),
            Span(LOG, Position(12, 0), Position(12, 1), 1, None, PULSAR_EARLIEST),
        ][1:]
    )
    assert desk.slots.staged_position(CONSUMER) == Position(12, 3)
    desk.give(two[1])
    assert desk.spans() == [
        Span(LOG, Position(12, 1), Position(12, 2), 0),
        Span(LOG, Position(12, 3), Position(12, 4), 1, None, Position(12, 1)),
    ]
    desk.give(plain(b"b"), one[2])
    assert desk.spans() == [
        Span(LOG, PULSAR_EARLIEST, Position(12, 0), 0),
        Span(LOG, Position(12, 2), Position(12, 3), 0, None, Position(12, 1)),  # as it was when this part came
        Span(LOG, Position(12, 4), Position(12, 6), 2),
    ]
    assert values(desk) == [b"a", b"2" * 80, b"b", b"1" * 90]


def test_what_stands_between_held_parts_says_what_is_held_before_it() -> None:
    one, two, three = (parts(number, b"%d" % number * 90, 2) for number in (1, 2, 3))
    # The second message becomes whole while the first is held: both parts of it lie behind a hole.
    desk = Desk().give(plain(b"a"), one[0], two[0], two[1], plain(b"b"))
    assert desk.spans() == [
        Span(LOG, PULSAR_EARLIEST, Position(12, 0), 1),
        Span(LOG, Position(12, 1), Position(12, 4), 2, None, Position(12, 0)),
    ]
    # With another one in between there are two holes, and a span behind each.
    desk = Desk().give(plain(b"a"), one[0], two[0], three[0], two[1])
    assert desk.spans() == [
        Span(LOG, PULSAR_EARLIEST, Position(12, 0), 1),
        Span(LOG, Position(12, 1), Position(12, 2), 0, None, Position(12, 0)),
        Span(LOG, Position(12, 3), Position(12, 4), 1, None, Position(12, 0)),
    ]


def test_a_part_that_is_given_up_says_what_is_held_before_it() -> None:
    one, two = parts(1, b"1" * 90, 2), parts(2, b"2" * 90, 3)
    desk = Desk().give(one[0], two[0], two[2], plain(b"a"))
    assert set(desk.dead_letters()) == {1, 2}
    assert desk.spans() == [Span(LOG, Position(12, 0), Position(12, 3), 1, None, PULSAR_EARLIEST)]


def test_parts_that_are_whole_before_a_commit_leave_no_trace() -> None:
    one, two = parts(1, b"1" * 90, 3), parts(2, b"2" * 80, 2)
    desk = Desk().give(one[0], plain(b"a"), two[0], one[1], one[2], plain(b"b"), two[1])
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 6), 4)]


def test_shared_parts_come_in_any_order() -> None:
    bodies = parts(1, b"0123456789", 4)
    for seed in range(8):
        desk = Desk(ordered=False)
        order = random.Random(seed).sample(range(4), 4)
        for place in order:
            desk.entry = place
            desk.give(bodies[place])
        (row,) = desk.rows()
        assert (row["value"], row["offset"]) == (b"0123456789", 3)
        assert sum(span.rows for span in desk.spans()) == 1
        assert {entry for _, first, last, _ in desk.slots.entry_runs(CONSUMER) for entry in range(first, last + 1)} == {
            0,
            1,
            2,
            3,
        }
        assert desk.dead_letters() == {} and desk.pool.charged == 0


def test_a_row_that_fills_the_chunk_takes_its_parts_along() -> None:
    big = b"x" * (3 << 20)
    desk = Desk()
    desk.give(plain(b"y" * (2 << 20)))
    desk.give(*parts(1, big, 2))
    # The first chunk was handed on before; row and parts are in the second one together.
    assert [span.end for span in desk.seen.spans] == [Position(12, 0)]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 2)]
    assert values(desk) == [b"y" * (2 << 20), big]


def test_parts_that_come_twice_are_covered_and_not_used() -> None:
    one = parts(1, b"123456789", 3)
    desk = Desk().give(one[0], one[1], one[1], plain(b"-"), one[2], plain(b"+"))
    assert values(desk) == [b"-", b"123456789", b"+"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 5), 3)]
    assert desk.dead_letters() == {} and desk.events == [] and desk.pool.charged == 0


def test_a_message_begun_anew_replaces_what_was_sent_of_it() -> None:
    old, new = parts(1, b"ooooooooo", 3), parts(1, b"nnnnnn", 2)
    desk = Desk().give(old[0], old[1], new[0], new[1])
    assert values(desk) == [b"nnnnnn"]
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 3), 1)]
    assert desk.dead_letters() == {} and desk.pool.charged == 0
    # The same message, sent again after a reconnect.
    desk = Desk().give(old[0], old[1], *old)
    assert values(desk) == [b"ooooooooo"]
    # What begins anew and makes no sense either puts nothing but itself aside.
    desk = Desk().give(old[0], resealed(new[0], lambda m: setattr(m, "total_chunk_msg_size", 1)))
    assert desk.dead_letters() == {1: "Chunked: parts hold more than the 1 bytes that were announced"}
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 1), 0)]


def test_missing_parts_read_in_order() -> None:
    one = parts(1, b"123456789", 3)
    desk = Desk().give(one[1], plain(b"-"))
    assert desk.dead_letters() == {0: "Chunked: part 2 of 3, but the parts before it did not come"}
    desk = Desk().give(one[0], one[2], plain(b"-"))
    assert desk.dead_letters() == dict.fromkeys((0, 1), "Chunked: part 3 of 3 came after part 1")
    assert desk.spans() == [Span(LOG, PULSAR_EARLIEST, Position(12, 2), 1)]
    assert [event.is_dead_letter for event in desk.events] == [True, True]
    # A dead letter is the entry as it came.
    assert desk.seen.dead_letters[0].payload == one[0]


def wrong(name: str, value: Any, place: int = 1) -> list[bytes]:
    bodies = parts(1, b"123456789", 3)
    bodies[place] = resealed(bodies[place], lambda m: setattr(m, name, value))
    return bodies


@pytest.mark.parametrize(
    ("bodies", "dead_letters", "why"),
    [
        (wrong("num_chunks_from_msg", 4), {0, 1, 2}, "differ in what they announce"),
        (wrong("total_chunk_msg_size", 10), {0, 1, 2}, "differ in what they announce"),
        (wrong("num_chunks_from_msg", 1_000_000, 0), {0, 1, 2}, "differ in what they announce"),
        (wrong("chunk_id", 7), {1}, "part 8 of 3"),
        (wrong("chunk_id", -1), {1}, "part 0 of 3"),
        (wrong("num_messages_in_batch", 1), {1}, "a batch"),
        (wrong("total_chunk_msg_size", MOST_BYTES + 1), {1}, "daemon.memory"),
        (wrong("total_chunk_msg_size", -1), {1}, "-1 bytes"),
        ([resealed(body, lambda m: m.ClearField("uuid")) for body in parts(1, b"ab", 2)], {0, 1}, "without uuid"),
        ([resealed(body, lambda m: m.ClearField("chunk_id")) for body in parts(1, b"ab", 2)], {0, 1}, "chunk_id"),
        (
            [resealed(body, lambda m: setattr(m, "total_chunk_msg_size", 8)) for body in parts(1, b"123456789", 3)],
            {0, 1, 2},
            "more than the 8 bytes",
        ),
        (
            [resealed(body, lambda m: setattr(m, "total_chunk_msg_size", 10)) for body in parts(1, b"123456789", 3)],
            {0, 1, 2},
            "hold 9 bytes, 10 were announced",
        ),
        (
            [
                resealed(body, lambda m: setattr(m, "uncompressed_size", 1 << 30))
                for body in parts(1, b"1" * 900, 3, Compression.ZSTD)
            ],
            {0, 1, 2},
            "UncompressedSizeCorruption",
        ),
    ],
)
def test_parts_that_do_not_fit_are_put_aside(bodies: list[bytes], dead_letters: set[int], why: str) -> None:
    desk = Desk().give(*bodies, plain(b"-"))
    found = desk.dead_letters()
    assert dead_letters <= set(found) and any(why in reason for reason in found.values()), found
    desk.assembly.forget()
    assert values(desk) == [b"-"]
    assert desk.pool.charged == 0
    assert desk.pool.peak < 8 << 20  # the columns of the row between them


def test_a_million_announced_parts_cost_what_has_come() -> None:
    huge = resealed(parts(1, b"ab", 2)[0], lambda m: setattr(m, "num_chunks_from_msg", 1_000_000))
    desk = Desk().give(resealed(huge, lambda m: setattr(m, "total_chunk_msg_size", MOST_BYTES)))
    assert len(desk.assembly) == 1
    assert desk.pool.charged < 2000 and desk.pool.peak < 1 << 18


def test_too_many_open_messages_let_the_oldest_go() -> None:
    desk = Desk(most_open=3)
    for number in range(5):
        desk.give(parts(number, b"12", 2)[0])
    assert desk.dead_letters() == dict.fromkeys((0, 1), "Chunked: more than 3 chunked messages are incomplete")
    for number in range(5):
        desk.give(parts(number, b"12", 2)[1])
    assert len(values(desk)) == 3
    assert len(desk.dead_letters()) == 4 and desk.pool.charged == 0


def test_open_messages_take_up_half_of_the_budget() -> None:
    desk = Desk(memory=2 << 20)
    desk.give(parts(0, b"0" * 240_000, 2)[0])
    assert 120_000 < desk.pool.charged < 125_000
    desk.give(*(parts(number, b"1" * 240_000, 2)[0] for number in range(1, 8)))
    assert desk.dead_letters() == {}
    desk.give(parts(8, b"8" * 240_000, 2)[0])
    assert list(desk.dead_letters()) == [0] and f"take up more than {1 << 20} bytes" in desk.dead_letters()[0]
    # One that alone is more than an eighth is not waited for.
    desk.give(*parts(9, b"9" * 600_000, 2))
    assert set(desk.dead_letters()) == {0, 9, 10} and "one may have 262144" in desk.dead_letters()[9]
    desk.assembly.forget()
    assert values(desk) == [] and desk.pool.charged == 0


def test_time_passes_only_while_something_could_come() -> None:
    desk = Desk().give(parts(1, b"12", 2)[0])
    for _ in range(59):
        assert desk.assembly.expired([CONSUMER], 1.0) == []
    for _ in range(100):
        assert desk.assembly.expired([CONSUMER + 1], 1.0) == []
    (torn,) = desk.assembly.expired([CONSUMER], 1.0)
    assert torn.detail == "1 of 2 parts did not come within 60 s"
    desk.events += desk.completion.give_up([torn], desk.scanner)
    assert desk.dead_letters() == {0: f"Chunked: {torn.detail}"}
    # Each new part is a sign of life.
    one = parts(2, b"123", 3)
    desk.give(one[0])
    desk.assembly.expired([CONSUMER], 59.0)
    desk.give(one[1])
    assert desk.assembly.expired([CONSUMER], 59.0) == []
    desk.give(one[2])
    assert values(desk) == [b"123"]


def test_parts_of_a_shared_subscription_go_back_and_their_message_does_not_grow_younger() -> None:
    one = parts(1, b"123", 3)
    desk = Desk(ordered=False).give(one[0])
    desk.assembly.expired([CONSUMER], 4.0)
    assert desk.assembly.returned([CONSUMER]) == {}
    desk.give(one[1])
    times = 0
    for second in range(59):
        assert desk.assembly.expired([CONSUMER], 1.0) == [], second
        assert desk.assembly.returned([CONSUMER + 1]) == {}
        if back := desk.assembly.returned([CONSUMER]):
            times += 1
            (places,) = back.values()
            assert desk.pool.charged == 0 and len(desk.assembly) == 0
            desk.slots.release_runs(CONSUMER, [(at.a, at.b, at.b) for at in places])
            at = desk.entry
            for place, part in zip(places, one, strict=False):
                desk.entry = place.b
                desk.give(part)
            desk.entry = at
    assert 3 <= times <= 12
    torn = desk.assembly.expired([CONSUMER], 1.0)
    assert [each.detail for each in torn] == ["1 of 3 parts did not come within 60 s"] * 2


def test_parts_that_went_back_are_a_message_with_those_of_another_consumer() -> None:
    one = parts(1, b"123", 3)
    desk = Desk(ordered=False).give(one[0], one[1])
    desk.assembly.expired([CONSUMER], 15.0)
    (places,) = desk.assembly.returned([CONSUMER]).values()
    desk.slots.release_runs(CONSUMER, [(at.a, at.b, at.b) for at in places])
    desk.give(one[2])
    desk.entry = 0
    desk.give(one[0], one[1])
    assert values(desk) == [b"123"]
    assert [(span.start.b, span.end.b) for span in desk.spans()] == [(-1, 2)]


def test_in_order_nothing_goes_back() -> None:
    desk = Desk().give(parts(1, b"12", 2)[0])
    desk.assembly.expired([CONSUMER], 50.0)
    assert desk.assembly.returned([CONSUMER]) == {}


def test_what_others_have_landed_is_forgotten() -> None:
    one = parts(1, b"123", 3)
    desk = Desk().give(one[0], plain(b"-"), one[1])
    assert desk.assembly.landed(CONSUMER, lambda at: at > Position(12, 5)) == []
    assert desk.assembly.landed(CONSUMER + 1, lambda at: True) == []
    (torn,) = desk.assembly.landed(CONSUMER, lambda at: at == Position(12, 0))
    assert torn.entry.position == Position(12, 2)
    assert desk.pool.charged == 0


def test_without_dead_letters_the_first_fault_is_told_and_nothing_is_landed() -> None:
    one = parts(1, b"123", 3)
    desk = Desk(keeps_corrupt=False).give(one[0], one[2])
    assert [(event.entry.entry, event.is_dead_letter) for event in desk.events] == [(0, False), (1, False)]
    assert desk.spans() == [] and desk.dead_letters() == {}
