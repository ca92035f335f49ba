"""GET responses to rows: borders of blocks, positions, attributes, damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.position import Position, Span, register
from fastwire.reason import Reason
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import MOST_BLOCKS, Method, decode_response, encode_frame, encode_refusal
from fastwire.tubemq.position import POSITIONS
from fastwire.tubemq.reading.fetched import Fetched, Planned, ResponseTooLargeError
from fastwire.wire.writer import encode_varint
from tests.support.tubemq.bed import LOG, Bed, message, numbered, response
from tests.support.tubemq.golden import EXAMPLES, content_of

register(POSITIONS)

GOLDEN = {one.name: one for one in EXAMPLES}
ATTRIBUTES = b"$msgType$=aaa,$msgTime$=202601011200,k=v=w,flag,,=e"


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# --- what real servers sent


def test_a_real_response_becomes_rows() -> None:
    bed = Bed()
    fetched = bed.get(GOLDEN["e05_response"].frame)
    assert fetched is not None
    assert (fetched.serial, fetched.code, fetched.text, fetched.messages) == (6, 200, "OK!", 2)
    assert (fetched.offset, fetched.max_offset, fetched.lag_bytes, fetched.moved) == (0, 84, 20052, False)
    assert bed.values() == [b"hello", b"world"]
    first, second = bed.rows
    assert (first["topic"], first["broker"], first["partition"], first["offset"], first["row"]) == ("gold", 1, 0, 0, 0)
    assert (first["messageId"], first["msgType"], first["headers"]) == (2159096963520266240, "", None)
    assert (first["key"], first["timestamp"], first["eventTime"]) == (None, None, None)
    assert (second["messageId"], second["msgType"], second["row"]) == (2159092028103720960, "aaa", 1)
    assert [(each["key"], each["value"]) for each in second["headers"]] == [
        ("$msgType$", b"aaa"), ("$msgTime$", b"202601011200"),
    ]  # fmt: skip
    assert second["eventTime"].isoformat() == "2026-01-01T04:00:00+00:00"
    assert bed.spans == [Span(LOG, Position(0, 0), Position(0, 2), 2)]
    assert bed.position == Position(0, 2)


def test_real_responses_without_messages() -> None:
    bed = Bed()
    empty = bed.get(GOLDEN["e07_response"].frame)
    at_end = bed.get(GOLDEN["e08_response"].frame)
    assert empty is not None
    assert at_end is not None
    assert (empty.code, empty.messages, empty.offset) == (200, 0, 0)
    assert (at_end.code, at_end.offset, at_end.min_limit_ms, at_end.max_offset) == (404, -1, -1, -1)
    assert not bed.scanner.has_open
    assert bed.position == Position(0, 0)


@pytest.mark.parametrize("name", [one.name for one in EXAMPLES if one.entry["kind"] == "response"])
def test_a_response_that_is_not_planned_comes_as_its_content(name: str) -> None:
    bed = Bed()
    example = GOLDEN[name]
    bed.feed(example.frame)
    assert bed.responses == [(example.entry["serial"], example.content)]


def test_a_refused_get_comes_as_its_content() -> None:
    bed = Bed()
    refused = Refused("java.lang.Exception", "no", False)
    assert bed.get(encode_refusal(5, refused)) is None
    ((serial, content),) = bed.responses
    assert (serial, decode_response(content, Method.GET)) == (5, refused)


# --- bytes


@pytest.mark.parametrize("cut", range(1, len(GOLDEN["e05_response"].frame)))
def test_each_cut_of_a_real_response(cut: int) -> None:
    bed = Bed()
    bed.get(GOLDEN["e05_response"].frame, [cut])
    assert bed.values() == [b"hello", b"world"]


@pytest.mark.parametrize("block", range(1, 131))
def test_each_block_border_of_a_real_response(block: int) -> None:
    bed = Bed()
    example = GOLDEN["e05_response"]
    bed.get(encode_frame(6, example.content, block_bytes=block), [7] * 400)
    assert bed.values() == [b"hello", b"world"]


@given(st.lists(st.integers(1, 60), min_size=1), st.integers(1, 300), st.lists(st.integers(1, 500), max_size=20))
def test_messages_of_any_size_over_any_borders(sizes: list[int], block: int, pieces: list[int]) -> None:
    sent = [bytes([size]) * size * 7 for size in sizes]
    bed = Bed()
    messages = [message(value) for value in sent]
    least = sum(each.ByteSize() + 3 for each in messages) // (MOST_BLOCKS - 100) + 1  # a frame has no more blocks
    frame = response(messages, block=max(block, least))
    bed.get(frame, pieces)
    bed.get(response([message(b"end")], 28 * len(sent), serial=2, block=block), pieces)
    assert bed.values() == [*sent, b"end"]
    assert bed.scanner.buffered == 0


def test_a_large_response_fills_chunks() -> None:
    bed = Bed()
    sent = [b"%06d" % number * 20 for number in range(20_000)]
    bed.get(response([message(value) for value in sent]), [10_000] * 1000)
    assert len(bed.spans) == 1  # the first chunk is full
    assert bed.values() == sent
    assert [(span.start.b, span.end.b, span.rows) for span in bed.spans] == [(0, 16384, 16384), (16384, 20000, 3616)]


@pytest.mark.parametrize(
    ("head", "field"),
    [
        (bytes(12), "token"),
        (bytes.fromhex("ff7ff4fe0000000100000000"), "blocks"),
        (bytes.fromhex("ff7ff4fe0000000100000e01"), "blocks"),
        (bytes.fromhex("ff7ff4fe000000010000000100000000"), "block length"),
        (bytes.fromhex("ff7ff4fe000000010000000101c00001"), "block length"),
        (bytes.fromhex("ff7ff4fe0000000100000001ffffffff"), "block length"),
    ],
)
def test_broken_framing_is_a_protocol_error(head: bytes, field: str) -> None:
    with pytest.raises(ProtocolError) as broken:
        Bed().feed(head)
    assert broken.value.field == field
    assert broken.value.offset >= 0


def test_a_response_larger_than_the_memory_allows_is_refused_by_its_head() -> None:
    with pytest.raises(ProtocolError, match="a quarter of the memory budget"):
        Bed().feed(bytes.fromhex("ff7ff4fe000000010000000101bfffff"))
    bed = Bed()
    bed.scanner.plan(1, Planned(0, 1))
    with pytest.raises(ResponseTooLargeError, match="a quarter of the memory budget") as refused:
        bed.feed(bytes.fromhex("ff7ff4fe000000010000000101bfffff"))
    assert refused.value.index == 0


@pytest.mark.parametrize("size", range(len(GOLDEN["e05_response"].content)))
def test_each_truncation_of_the_content_is_a_protocol_error(size: int) -> None:
    content = GOLDEN["e05_response"].content[:size]
    with pytest.raises(ProtocolError):
        Bed().get(encode_frame(6, content or b"\x80"))


@given(st.data())
def test_a_mutation_is_read_or_a_dead_letter_or_a_protocol_error(data: st.DataObject) -> None:
    content = bytearray(GOLDEN["e05_response"].content)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    bed = Bed()
    try:
        bed.get(encode_frame(6, bytes(content), block_bytes=data.draw(st.integers(1, 200))))
    except ProtocolError:
        return
    taken = len(bed.values()) + len(bed.dead_letters)
    assert taken <= 127
    assert bed.position.b == taken


def test_a_get_answered_by_another_method_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="18 answers a GET"):
        Bed().get(GOLDEN["e06_response"].frame)


# --- positions


def test_positions_go_on_over_gets_and_chunks() -> None:
    bed = Bed()
    bed.get(response(numbered(0, 3), 0))
    bed.take()
    bed.get(response(numbered(3, 2), 140, serial=2))
    bed.get(response([], 280, serial=3))
    assert bed.values() == texts(0, 5)
    assert [(span.start, span.end) for span in bed.spans] == [
        (Position(0, 0), Position(0, 3)), (Position(0, 3), Position(140, 2)),
    ]  # fmt: skip
    assert [(row["offset"], row["row"]) for row in bed.rows] == [(0, 0), (0, 1), (0, 2), (140, 0), (140, 1)]


@pytest.mark.parametrize("taken", range(9))
@pytest.mark.parametrize("first", range(1, 9))
def test_a_position_is_found_again_however_the_gets_are_cut(taken: int, first: int) -> None:
    """The first GET after a registration is smaller than later ones."""
    bed = Bed(Position(28, taken))
    bed.get(response(numbered(0, first), 28))
    bed.get(response(numbered(first, 8 - first), 28 + first * 28, serial=2))
    bed.get(response(numbered(8, 1), 28 + 8 * 28, serial=3))
    assert bed.values() == texts(taken, 9 - taken)
    assert bed.scanner.cut_rows == taken
    assert bed.spans[0].start == Position(28, taken)


@pytest.mark.parametrize("taken", range(5))
def test_a_repeated_get_gives_no_row_twice(taken: int) -> None:
    bed = Bed(Position(28, taken))
    for _ in range(2):
        bed.get(response(numbered(0, 2), 28))
    for _ in range(2):
        bed.get(response(numbered(2, 2), 84))
    bed.get(response(numbered(4, 1), 140))
    assert bed.values() == texts(taken, 5 - taken)


@pytest.mark.parametrize(("offset", "fresh"), [(56, True), (0, True), (28, False)])
def test_a_read_at_another_place_takes_nothing(offset: int, fresh: bool) -> None:
    bed = Bed(Position(28, 1))
    if not fresh:
        bed.get(response(numbered(0, 2), 28))
        bed.get(response(numbered(2, 2), 84))
        offset = 56
    before = bed.values()
    fetched = bed.get(response(numbered(9, 2), offset))
    assert fetched is not None
    assert fetched.moved
    assert bed.values() == before
    assert bed.slots.session(bed.index) == 0


def test_a_404_may_skip_the_entries_of_other_partitions() -> None:
    """It names no offset, so that the next read may begin later, even the first one of a registration."""
    bed = Bed(Position(28, 1))
    skipped = bed.get(GOLDEN["e22_response"].frame)
    assert skipped is not None
    assert (skipped.code, skipped.offset, skipped.min_limit_ms) == (404, -1, 162)
    fetched = bed.get(response(numbered(0, 3), 84))
    assert fetched is not None
    assert not fetched.moved
    assert bed.values() == texts(1, 2)


def identified(first: int, count: int) -> list[pb.TransferedMessage]:
    return [message(b"%d" % number, messageId=number + 1) for number in range(first, first + count)]


def taken_again(first: bytes, again: bytes) -> tuple[Bed, Fetched]:
    """Take the messages of a response, register where they began, and receive another response there."""
    bed = Bed()
    assert bed.get(first) is not None
    bed.slots.detach(bed.index)
    bed.slots.attach(bed.index, bed.position, 1)
    fetched = bed.get(again)
    assert fetched is not None
    return bed, fetched


def test_the_last_message_left_out_must_be_the_one_that_was_taken() -> None:
    """A topic that was created again holds others at the same offsets: nothing of it counts as taken."""
    bed, fetched = taken_again(response(identified(0, 2)), response(identified(5, 9)))
    assert fetched.replaced
    assert bed.values() == texts(0, 2)
    assert bed.slots.session(bed.index) == 0


def test_messages_that_come_again_are_left_out() -> None:
    bed, fetched = taken_again(response(identified(0, 2)), response(identified(0, 5)))
    assert not fetched.replaced
    assert bed.values() == texts(0, 5)


def test_a_span_says_which_message_is_its_last_one() -> None:
    bed = Bed()
    bed.get(response(identified(0, 2)))
    bed.take()
    bed.get(response(identified(2, 3), 56, serial=2))
    bed.take()
    assert [span.witness for span in bed.spans] == [2, 5]


def test_a_dead_letter_is_the_last_message_of_its_span() -> None:
    bed = Bed()
    bed.get(response([*identified(0, 1), message(b"bad", messageId=9, checkSum=1)]))
    bed.take()
    assert [(span.end, span.witness) for span in bed.spans] == [(Position(0, 2), 9)]


@pytest.mark.parametrize(("witness", "replaced"), [(2, False), (3, True)])
def test_a_new_process_compares_the_message_that_has_landed_last(witness: int, replaced: bool) -> None:
    bed = Bed()
    bed.slots.attach(bed.index, Position(0, 2), 1, witness)
    fetched = bed.get(response(identified(0, 5)))
    assert fetched is not None
    assert fetched.replaced is replaced
    assert bed.values() == ([] if replaced else texts(2, 3))


def test_a_read_that_begins_within_the_last_one_takes_nothing() -> None:
    """An administrator has moved the group's offset backwards: its messages would land again."""
    bed = Bed()
    bed.get(response(numbered(0, 4), 0))
    fetched = bed.get(response(numbered(2, 2), 56, serial=2))
    assert fetched is not None
    assert fetched.moved
    assert bed.values() == texts(0, 4)


def jumped(bed: Bed) -> None:
    """Take messages of a store with one partition, and receive a read that leaves out three of them."""
    bed.get(response(numbered(0, 2), 0))
    bed.get(response(numbered(2, 2), 56, serial=2))
    fetched = bed.get(response(numbered(7, 1), 196, serial=3))
    assert fetched is not None
    assert fetched.moved
    assert bed.values() == texts(0, 4)
    bed.slots.attach(bed.index, bed.position, 1)


def test_a_read_that_leaves_out_messages_takes_nothing() -> None:
    """An administrator has moved the group's offset forwards. Reading again brings what was left out."""
    bed = Bed()
    jumped(bed)
    bed.get(response(numbered(2, 6), 56, serial=4))
    bed.take()
    assert bed.values() == texts(0, 8)


def test_what_is_left_out_again_are_entries_of_other_partitions() -> None:
    bed = Bed()
    jumped(bed)
    bed.get(response(numbered(2, 2), 56, serial=4))
    bed.get(response(numbered(4, 1), 196, serial=5))
    assert bed.values() == texts(0, 5)


def test_a_second_move_behind_the_same_message_is_looked_at_again() -> None:
    bed = Bed()
    jumped(bed)
    bed.get(response(numbered(2, 2), 56, serial=4))
    bed.get(GOLDEN["e08_response"].frame)  # the end: nothing was left out
    fetched = bed.get(response(numbered(9, 1), 252, serial=5))
    assert fetched is not None
    assert fetched.moved


def test_behind_a_commit_the_next_read_is_known_exactly() -> None:
    """In a store of several partitions a GET passes over entries and does not say how many. A COMMIT's answer does."""
    bed = Bed()
    bed.get(response(numbered(0, 2), 0))
    bed.get(response(numbered(2, 2), 280, serial=2))
    assert bed.slots.confirmed(bed.index, 560)
    assert bed.slots.least(bed.index) == 560
    fetched = bed.get(response(numbered(9, 2), 588, serial=3))
    assert fetched is not None
    assert fetched.moved
    assert bed.values() == texts(0, 4)


@pytest.mark.parametrize("offset", [28, 196])
def test_a_commit_elsewhere_ends_the_session(offset: int) -> None:
    bed = Bed()
    bed.get(response(numbered(0, 2), 0))
    bed.get(response(numbered(2, 2), 56, serial=2))
    assert not bed.slots.confirmed(bed.index, offset)
    assert bed.slots.session(bed.index) == 0


def test_a_commit_before_everything_has_come_again_keeps_what_is_owed() -> None:
    bed = Bed()
    bed.slots.attach(bed.index, Position(0, 4), 1, 4)
    bed.get(response(identified(0, 2)))
    assert bed.slots.owes(bed.index) == 2
    assert bed.slots.confirmed(bed.index, 56)
    bed.get(response(identified(2, 3), 56, serial=2))
    assert (bed.values(), bed.slots.owes(bed.index)) == (texts(4, 1), 0)


def test_messages_left_out_of_what_is_owed_are_read_again_once() -> None:
    """The group's offset was moved while messages that have landed came again: the log is still the same one."""
    bed = Bed()
    for reads_again in (True, False):
        bed.slots.attach(bed.index, Position(0, 4), 1, 4)
        bed.get(response(identified(0, 2)))
        fetched = bed.get(response(identified(5, 3), 140, serial=2))
        assert fetched is not None
        assert (fetched.moved, fetched.replaced) == (reads_again, not reads_again)


def test_an_offset_that_no_log_reaches_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="currOffset"):
        Bed().get(response(numbered(0, 1), 1 << 62))


def test_responses_of_an_older_session_are_dropped() -> None:
    bed = Bed()
    bed.slots.attach(bed.index, Position(0, 0), 2)
    fetched = bed.get(response(numbered(0, 2)))
    assert fetched is not None
    assert (fetched.session, bed.values()) == (1, [])
    assert bed.position == Position(0, 0)


def test_rows_are_limited_to_the_end_of_a_message() -> None:
    bed = Bed()
    bed.slots.limit_rows(3)
    bed.get(response(numbered(0, 5)))
    bed.get(response(numbered(5, 5), 140))
    assert bed.values() == texts(0, 3)
    assert bed.position == Position(0, 3)


# --- attributes and filters


def test_attributes_become_headers() -> None:
    bed = Bed(zone_minutes=0)
    bed.get(response([message(b"x", ATTRIBUTES), message(b"y", b""), message(b"", b"$msgTime$=1,\xff=\xff")]))
    assert bed.values() == [b"x", b"y", b""]
    assert [(each["key"], each["value"]) for each in bed.rows[0]["headers"]] == [
        ("$msgType$", b"aaa"), ("$msgTime$", b"202601011200"), ("k", b"v=w"), ("flag", None), ("", b"e"),
    ]  # fmt: skip
    assert bed.rows[0]["eventTime"].isoformat() == "2026-01-01T12:00:00+00:00"
    assert bed.rows[1]["headers"] is None
    assert bed.rows[2]["eventTime"] is None
    assert [each["key"] for each in bed.rows[2]["headers"]] == ["$msgTime$", "\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("197001010000", "1970-01-01T00:00:00+00:00"), ("200002292359", "2000-02-29T23:59:00+00:00"),
        ("196912312359", "1969-12-31T23:59:00+00:00"), ("210002280000", "2100-02-28T00:00:00+00:00"),
        ("210002290000", None), ("202613010000", None), ("202600010000", None), ("202604310000", None),
        ("202601012400", None), ("202601010060", None), ("20260101000x", None), ("2026010100000", None), ("", None),
    ],
)  # fmt: skip
def test_times_of_messages(text: str, found: str | None) -> None:
    bed = Bed(zone_minutes=0)
    bed.get(response([message(b"x", f"$msgTime$={text}".encode())]))
    bed.take()
    time = bed.rows[0]["eventTime"]
    assert (time and time.isoformat()) == found


def test_a_foreign_type_that_the_broker_lets_through_is_left_out() -> None:
    bed = Bed(types=["aaa", "b"])
    kinds = [b"$msgType$=aaa", b"$msgType$=aab", None, b"k=v", b"$msgType$=b", b"$msgType$=", b"x=1,$msgType$=b"]
    bed.get(response([message(b"%d" % place, kind) for place, kind in enumerate(kinds)]))
    assert bed.values() == [b"0", b"4", b"6"]
    assert bed.scanner.filtered_rows == 4
    assert bed.spans == [Span(LOG, Position(0, 0), Position(0, 7), 3)]
    assert [row["row"] for row in bed.rows] == [0, 4, 6]


def response_of(messages: list[bytes], offset: int) -> bytes:
    """A response whose messages are bytes."""
    head = pb.GetMessageResponseB2C(success=True, errCode=200, currOffset=offset, maxOffset=10**6)
    fields = b"".join(b"\x22" + encode_varint(len(each)) + each for each in messages)
    parts = (
        pb.RpcConnHeader(flag=1),
        pb.ResponseHeader(status=pb.ResponseHeader.SUCCESS, protocolVer=3),
        pb.RspResponseBody(method=Method.GET, data=head.SerializeToString() + fields),
    )
    return encode_frame(1, b"".join(encode_varint(part.ByteSize()) + part.SerializeToString() for part in parts))


def unusual(kind: str, value: bytes, number: int) -> bytes:
    """A message as bytes: most are plain, and the others are decoded one by one."""
    plain = message(value, messageId=number).SerializeToString()
    match kind:
        case "attributes":
            return message(value, b"$msgType$=t", messageId=number).SerializeToString()
        case "other order":
            return plain[-2:] + plain[:-2]
        case "unknown field":
            return plain + b"\x28\x07"
        case "damaged":
            return message(value, messageId=number, checkSum=1).SerializeToString()
        case "negative id":
            return message(value, messageId=~number).SerializeToString()
    return plain


KINDS = ["plain", "plain", "plain", "attributes", "other order", "unknown field", "damaged", "negative id"]


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 20), st.integers(0, 600)), min_size=1, max_size=30),
    st.integers(0, 40),
)
def test_plain_messages_among_others(runs: list[tuple[str, int, int]], taken: int) -> None:
    kinds = [(kind, size) for kind, count, size in runs for _ in range(count)]
    sent = [(kind, bytes([number & 0xFF]) * size) for number, (kind, size) in enumerate(kinds)]
    skipped = min(taken, len(sent))
    bed = Bed(Position(28, skipped))
    bed.get(response_of([unusual(kind, value, number) for number, (kind, value) in enumerate(sent)], 28))
    bed.take()
    sound = [(number, kind, value) for number, (kind, value) in enumerate(sent)]
    sound = [each for each in sound[skipped:] if each[1] != "damaged"]
    names = ("row", "messageId", "value", "msgType", "offset", "topic", "broker")
    assert [tuple(row[name] for name in names) for row in bed.rows] == [
        (number, ~number if kind == "negative id" else number, value, "t" * (kind == "attributes"), 28, "gold", 1)
        for number, kind, value in sound
    ]
    assert bed.scanner.damaged == len(sent) - skipped - len(sound)
    assert bed.position == Position(28, len(sent))


def test_only_the_chosen_columns_are_built() -> None:
    bed = Bed(columns={"value", "msgType"})
    bed.get(response([message(b"x", ATTRIBUTES)]))
    bed.take()
    assert bed.rows == [{"value": b"x", "msgType": "aaa"}]


# --- damage

DAMAGED = [
    (message(b"x", checkSum=1), Reason.CHECKSUM),
    (message(b"x", checkSum=-1), Reason.CHECKSUM),
    (message(b"x", flag=1), Reason.MESSAGE),
    (message(b"\0\0\0\2x", flag=1), Reason.MESSAGE),
    (message(b"\xff\xff\xff\xffx", flag=1), Reason.MESSAGE),
]


@pytest.mark.parametrize(("broken", "damage"), DAMAGED)
def test_a_damaged_message_is_a_dead_letter(broken: pb.TransferedMessage, damage: Reason) -> None:
    bed = Bed()
    bed.get(response([message(b"a"), broken, message(b"b")]))
    assert bed.values() == [b"a", b"b"]
    (letter,) = bed.dead_letters
    assert (letter.damage, letter.start, letter.position) == (damage, Position(0, 1), Position(0, 2))
    assert letter.rows == 1
    assert letter.payload == broken.SerializeToString()
    assert bed.scanner.damaged == 1
    assert bed.spans == [Span(LOG, Position(0, 0), Position(0, 3), 2)]


def test_a_message_without_a_required_field_is_a_dead_letter() -> None:
    body = content_of(response([message(b"a"), message(b"b")]))
    flag = message(b"b").SerializeToString()
    assert flag.endswith(b"\x20\x00")
    bed = Bed()
    bed.get(encode_frame(1, body.replace(flag, flag[:-2] + b"\x28\x00")))
    assert bed.values() == [b"a"]
    assert [letter.damage for letter in bed.dead_letters] == [Reason.MESSAGE]


@pytest.mark.parametrize(("broken", "damage"), DAMAGED[:3:2])
def test_a_damaged_message_stops_a_partition(broken: pb.TransferedMessage, damage: Reason) -> None:
    bed = Bed(on_corrupt="stop")
    bed.get(response([message(b"a"), broken, message(b"b")]))
    assert bed.values() == [b"a"]
    (corrupt,) = bed.corrupt
    assert (corrupt.index, corrupt.position, corrupt.reason) == (bed.index, Position(0, 1), damage)
    assert bed.slots.session(bed.index) == 0
    bed.get(response([message(b"c")], 28))
    assert bed.values() == [b"a"]


@given(st.binary(max_size=300))
def test_checksums_are_those_of_zlib(value: bytes) -> None:
    bed = Bed()
    bed.get(response([message(value)]))
    assert bed.values() == [value]


@pytest.mark.parametrize("first", range(1, 700, 100))
def test_checksums_of_each_length_are_those_of_zlib(first: int) -> None:
    values = [bytes(at * 31 + size & 0xFF for at in range(size)) for size in range(first, first + 100)]
    bed = Bed()
    bed.get(response([message(value) for value in values]))
    assert bed.values() == values


@pytest.mark.parametrize("number", [0, 127, 128, (1 << 56) - 1, 1 << 56, (1 << 63) - 1, -1, -(1 << 63)])
def test_ids_of_any_size(number: int) -> None:
    bed = Bed()
    bed.get(response([message(b"a", messageId=number), message(b"b", messageId=number)]))
    bed.take()
    assert [(row["value"], row["messageId"]) for row in bed.rows] == [(b"a", number), (b"b", number)]
