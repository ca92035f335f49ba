"""Consumer slots: what is new, staged and landed, and the spans that follow from it."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.position import Log, Position, Span
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support.pulsar.frames import CONSUMER, LOG, feed, message_frame, scanner

BODY = encode_batch_entry([Record(value=b"x")] * 2, producer_name="p", sequence_id=0, publish_time=1).body
EARLIEST = Position(-1, -1)
Id = tuple[int, int]
Run = tuple[int, int, int]


def frames(ids: Iterable[Id]) -> bytes:
    return b"".join(message_frame(BODY, ledger=ledger, entry=entry) for ledger, entry in ids)


def entries(seen_rows: list[dict[str, int]]) -> list[Id]:
    return list(dict.fromkeys((row["ledger"], row["offset"]) for row in seen_rows))


# --- the table


def test_consumers_are_known_by_their_number() -> None:
    slots = SlotTable([LOG])
    for call in (slots.debited, slots.detach, slots.remove, slots.void_staged, slots.last_position):
        with pytest.raises(KeyError, match="no consumer 3"):
            call(3)
    slots.add(3, 0, ordered=True)
    with pytest.raises(ValueError, match="consumer 3 exists"):
        slots.add(3, 0, ordered=True)
    slots.remove(3)
    slots.add(3, 0, ordered=False)
    for number in (-1, 1 << 24):
        with pytest.raises(ValueError, match="out of range"):
            slots.add(number, 0, ordered=True)
    with pytest.raises(IndexError):
        slots.add(4, 1, ordered=True)
    with pytest.raises(ValueError, match="start at 1"):
        slots.attach(3, 0)


def test_a_table_of_many_consumers_grows() -> None:
    slots = SlotTable()
    for number in range(0, 3000, 3):
        index = slots.add_log(Log("pulsar", "c", "persistent://a/b/t", str(number)))
        slots.add(number, index, ordered=True)
        slots.attach(number, 1)
    to = Scanner(slots, Pool(1 << 30), 1)
    feed(to, b"".join(message_frame(BODY, consumer=number, entry=number) for number in range(3000)))
    assert (to.entries, to.dropped_frames) == (1000, 2000)
    assert sorted(slots.take_dirty()) == list(range(0, 3000, 3))
    assert slots.last_position(2997) == Position(12, 2997)
    assert slots.log(999).partition == "2997"


def test_a_consumer_is_due_once_so_much_was_debited() -> None:
    to, slots = scanner()
    feed(to, frames([(1, 1)]))
    assert slots.take_due() == [CONSUMER]  # from the start it wants to be looked at
    feed(to, frames([(1, 2)]))
    assert slots.take_due() == []  # it was not set again
    each = slots.debited(CONSUMER) // 2
    slots.set_due(CONSUMER, 4 * each)
    feed(to, frames([(1, 3)]))
    assert slots.take_due() == []
    feed(to, frames([(1, 4), (1, 5)]))
    assert slots.take_due() == [CONSUMER]
    slots.set_due(CONSUMER, -7)
    feed(to, frames([(1, 5)]))  # cut, and debited all the same
    assert slots.take_due() == [CONSUMER]
    slots.attach(CONSUMER, 1)
    feed(to, frames([(1, 6)]))
    assert slots.take_due() == [CONSUMER]


def test_a_removed_consumer_gets_nothing() -> None:
    to, slots = scanner()
    feed(to, frames([(1, 1)]))
    slots.remove(CONSUMER)
    assert slots.take_dirty() == [CONSUMER]
    assert feed(to, frames([(1, 2)])).rows == []
    slots.add(CONSUMER, 0, ordered=True)
    slots.attach(CONSUMER, 1)
    assert (slots.debited(CONSUMER), slots.last_position(CONSUMER)) == (0, EARLIEST)
    assert entries(feed(to, frames([(1, 1)])).rows) == [(1, 1)]


def test_the_largest_entry_is_forgotten_slowly() -> None:
    to, slots = scanner()
    large = encode_batch_entry([Record(value=bytes(10_000))], producer_name="p", sequence_id=0, publish_time=1).body
    feed(to, message_frame(large))
    assert 10_000 < slots.largest_entry(CONSUMER) < 10_020
    feed(to, frames((13, entry) for entry in range(10)))
    assert 8_000 < slots.largest_entry(CONSUMER) < 10_000
    feed(to, frames((14, entry) for entry in range(1000)))
    assert slots.largest_entry(CONSUMER) < 200


# --- ordered: Exclusive and Failover


def test_ordered_spans_go_from_position_to_position() -> None:
    to, slots = scanner()
    first = feed(to, frames([(1, 0), (1, 1), (1, 5), (4, 0)]))
    assert first.spans == [Span(LOG, EARLIEST, Position(4, 0), 8)]
    second = feed(to, frames([(4, 2)]))
    assert second.spans == [Span(LOG, Position(4, 0), Position(4, 2), 2)]
    assert slots.staged_position(CONSUMER) == slots.last_position(CONSUMER) == Position(4, 2)


def test_ordered_landed_and_staged_entries_are_cut() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(2, 5))
    seen = feed(to, frames([(1, 9), (2, 4), (2, 5), (2, 6), (2, 7)]))
    assert entries(seen.rows) == [(2, 6), (2, 7)]
    assert seen.spans == [Span(LOG, Position(2, 5), Position(2, 7), 4)]
    assert slots.take_landed_again(CONSUMER) == [(1, 9, 9), (2, 4, 5)]
    assert slots.take_landed_again(CONSUMER) == []
    # A reconnect sends everything unacknowledged again: what is staged is cut and stays without an ack.
    slots.attach(CONSUMER, 1)
    seen = feed(to, frames([(2, 6), (2, 7), (2, 8)]))
    assert entries(seen.rows) == [(2, 8)]
    assert seen.spans == [Span(LOG, Position(2, 7), Position(2, 8), 2)]
    assert slots.take_landed_again(CONSUMER) == []
    assert (to.landed_again, to.staged_again) == (3, 2)


def test_ordered_staged_entries_are_new_again_when_the_roll_is_void() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(2, 5))
    feed(to, frames([(2, 6), (2, 7)]))
    slots.void_staged(CONSUMER)
    assert slots.staged_position(CONSUMER) == Position(2, 5)
    seen = feed(to, frames([(2, 5), (2, 6), (2, 7)]))
    assert seen.spans == [Span(LOG, Position(2, 5), Position(2, 7), 4)]


def test_ordered_entries_that_come_first_behind_later_ones_are_told() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(2, 5))
    feed(to, frames([(2, 7), (2, 8), (2, 10), (3, 0)]))
    seen = feed(to, frames([(2, 4), (2, 6), (2, 7), (2, 9), (2, 11), (3, 0)]))
    assert seen.rows == []
    assert slots.take_late(CONSUMER) == [(2, 6, 6), (2, 9, 9), (2, 11, 11)]
    assert slots.take_late(CONSUMER) == []
    slots.void_staged(CONSUMER)
    seen = feed(to, frames([(2, 6), (2, 7), (2, 8)]))
    assert entries(seen.rows) == [(2, 6), (2, 7), (2, 8)]
    slots.set_landed(CONSUMER, Position(2, 8))
    feed(to, frames([(2, 6), (2, 7)]))
    assert slots.take_late(CONSUMER) == []


def test_of_very_many_gaps_the_latest_are_remembered() -> None:
    to, slots = scanner()
    came = [(1, 2 * number) for number in range(5000)]
    feed(to, frames(came))
    feed(to, frames([(1, 1), (1, 9997), *came[:10]]))
    assert slots.take_late(CONSUMER) == [(1, 9997, 9997)]


def test_landed_never_goes_back() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(5, 5))
    slots.set_landed(CONSUMER, Position(5, 4))
    slots.set_landed(CONSUMER, Position(4, 9))
    assert entries(feed(to, frames([(5, 4), (5, 5), (5, 6)])).rows) == [(5, 6)]
    assert slots.take_landed_again(CONSUMER) == [(5, 4, 5)]


def test_the_first_position_is_where_spans_begin() -> None:
    to, slots = scanner()
    slots.set_landed(CONSUMER, Position(7, -1))
    assert feed(to, frames([(7, 0)])).spans == [Span(LOG, Position(7, -1), Position(7, 0), 2)]


def test_a_span_does_not_reach_over_what_another_writer_has_landed() -> None:
    to, slots = scanner()
    feed(to, frames([(1, 0)]), close=False)
    slots.set_landed(CONSUMER, Position(1, 5))
    seen = feed(to, frames([(1, 6)]))
    assert seen.spans == [
        Span(LOG, EARLIEST, Position(1, 0), 2),
        Span(LOG, Position(1, 5), Position(1, 6), 2),
    ]


def test_a_consumer_that_moves_to_another_connection_and_back() -> None:
    pool = Pool(1 << 30)
    one, slots = scanner(pool)
    two = Scanner(slots, pool, 2)
    feed(one, frames([(1, 0)]), close=False)
    slots.attach(CONSUMER, 2)
    feed(two, frames([(1, 1)]), close=False)
    slots.attach(CONSUMER, 1)
    seen = feed(one, frames([(1, 2)]))
    assert seen.spans == [
        Span(LOG, EARLIEST, Position(1, 0), 2),
        Span(LOG, Position(1, 1), Position(1, 2), 2),
    ]
    assert feed(two, b"").spans == [Span(LOG, Position(1, 0), Position(1, 1), 2)]


def test_a_void_roll_within_an_open_chunk_starts_a_new_span() -> None:
    to, slots = scanner()
    feed(to, frames([(1, 0), (1, 1)]), close=False)
    slots.void_staged(CONSUMER)
    to.drop_chunk()
    assert feed(to, frames([(1, 0)])).spans == [Span(LOG, EARLIEST, Position(1, 0), 2)]


# --- Shared and Key_Shared


def test_shared_spans_are_runs_of_entries() -> None:
    to, slots = scanner(ordered=False)
    seen = feed(to, frames([(1, 0), (1, 1), (1, 3), (1, 4), (2, 0), (1, 2)]))
    assert [(span.start, span.end, span.rows) for span in seen.spans] == [
        (Position(1, -1), Position(1, 1), 4),
        (Position(1, 2), Position(1, 4), 4),
        (Position(2, -1), Position(2, 0), 2),
        (Position(1, 1), Position(1, 2), 2),
    ]
    assert slots.entry_runs(CONSUMER) == [(1, 0, 4, False), (2, 0, 0, False)]


def test_shared_landed_and_staged_entries_are_cut() -> None:
    to, slots = scanner(ordered=False)
    feed(to, frames([(1, 0), (1, 1), (1, 4)]))
    slots.set_landed_runs(CONSUMER, [(1, 0, 0), (1, 7, 9)])
    assert slots.entry_runs(CONSUMER) == [(1, 0, 0, True), (1, 1, 1, False), (1, 4, 4, False), (1, 7, 9, True)]
    seen = feed(to, frames([(1, 0), (1, 1), (1, 2), (1, 8), (1, 7)]))
    assert entries(seen.rows) == [(1, 2)]
    assert slots.take_landed_again(CONSUMER) == [(1, 0, 0), (1, 7, 8)]
    slots.set_landed(CONSUMER, Position(1, 4))
    assert slots.entry_runs(CONSUMER) == [(1, 7, 9, True)]
    assert feed(to, frames([(1, 3), (0, 99)])).rows == []
    slots.void_staged(CONSUMER)
    assert slots.entry_runs(CONSUMER) == [(1, 7, 9, True)]


def test_runs_must_not_run_backwards() -> None:
    _, slots = scanner(ordered=False)
    with pytest.raises(ValueError, match="entries 3 to 2 run backwards"):
        slots.set_landed_runs(CONSUMER, [(1, 3, 2)])


class Model:
    """A shared slot as a dict of entries."""

    def __init__(self) -> None:
        self.held: dict[Id, bool] = {}  # entry -> landed
        self.floor = (-1, -1)
        self.cut: set[Id] = set()

    def state(self, entry: Id) -> str:
        if entry <= self.floor:
            return "landed"
        return {None: "new", False: "staged", True: "landed"}[self.held.get(entry)]

    def runs(self) -> list[tuple[int, int, int, bool]]:
        out: list[list[int]] = []
        for (ledger, entry), landed in sorted(self.held.items()):
            if out and out[-1][0] == ledger and out[-1][2] + 1 == entry and out[-1][3] == landed:
                out[-1][2] = entry
            else:
                out.append([ledger, entry, entry, landed])
        return [(ledger, first, last, bool(landed)) for ledger, first, last, landed in out]


IDS = st.tuples(st.integers(0, 2), st.integers(0, 12))
RUNS = st.tuples(st.integers(0, 2), st.integers(0, 10), st.integers(0, 4)).map(lambda r: (r[0], r[1], r[1] + r[2]))
STEPS = st.one_of(
    st.tuples(st.just("receive"), st.lists(IDS, min_size=1, max_size=8)),
    st.tuples(st.just("land"), st.lists(RUNS, min_size=1, max_size=3)),
    st.tuples(st.just("floor"), IDS),
    st.tuples(st.just("void"), st.just(())),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=25))
def test_shared_runs_are_a_set_of_entries(steps: list[tuple[str, object]]) -> None:
    to, slots = scanner(ordered=False, buffer_bytes=1 << 16)
    model = Model()
    for kind, what in steps:
        if kind == "receive":
            assert isinstance(what, list)
            new = []
            for entry in what:
                state = model.state(entry)
                if state == "new":
                    new.append(entry)
                    model.held[entry] = False
                elif state == "landed":
                    model.cut.add(entry)
            seen = feed(to, frames(what))
            assert entries(seen.rows) == new
            covered = [(span.end.a, entry) for span in seen.spans for entry in range(span.start.b + 1, span.end.b + 1)]
            assert sorted(covered) == sorted(new)
            assert sum(span.rows for span in seen.spans) == 2 * len(new)
        elif kind == "land":
            assert isinstance(what, list)
            slots.set_landed_runs(CONSUMER, what)
            for ledger, first, last in what:
                model.held.update({(ledger, entry): True for entry in range(first, last + 1)})
        elif kind == "floor":
            assert isinstance(what, tuple)
            slots.set_landed(CONSUMER, Position(*what))
            model.floor = max(model.floor, what)
        else:
            slots.void_staged(CONSUMER)
            model.held = {entry: landed for entry, landed in model.held.items() if landed}
        # A run that only begins below the floor is kept whole, so compare what lies above it.
        held = {
            (ledger, entry): landed
            for ledger, first, last, landed in slots.entry_runs(CONSUMER)
            for entry in range(first, last + 1)
        }
        assert {e: landed for e, landed in held.items() if e > model.floor} == {
            e: landed for e, landed in model.held.items() if e > model.floor
        }
    cut = {(ledger, entry) for ledger, a, b in slots.take_landed_again(CONSUMER) for entry in range(a, b + 1)}
    assert cut == model.cut


@settings(max_examples=200)
@given(st.lists(st.tuples(RUNS, st.booleans()), max_size=30))
def test_runs_stay_sorted_disjoint_and_merged(adds: list[tuple[Run, bool]]) -> None:
    to, slots = scanner(ordered=False, buffer_bytes=1 << 16)
    model = Model()
    for (ledger, first, last), landed in adds:
        ids = [(ledger, entry) for entry in range(first, last + 1)]
        if landed:
            slots.set_landed_runs(CONSUMER, [(ledger, first, last)])
            model.held.update(dict.fromkeys(ids, True))
        else:
            feed(to, frames(ids))
            model.held = dict.fromkeys(ids, False) | model.held
        assert slots.entry_runs(CONSUMER) == model.runs()
