"""Choice of partitions for each Fetch request, against a connection whose broker is scripted."""

from typing import Any

import pytest

from fastwire.kafka.format.message import decode_request, encode_response
from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire.kafka.protocol.connection import Connection
from fastwire.kafka.protocol.event import Connected, FetchDone
from fastwire.kafka.protocol.fetch import Fetcher, FetchLimits, Target
from fastwire.kafka.reading.scan import Scanner
from fastwire.kafka.reading.slot import SlotTable
from fastwire.position import Log, Position
from fastwire.wire.pool import Pool

ID = bytes(range(16))


class Scene:
    """A fetcher of ``count`` partitions of topic t, from offset 10 on."""

    def __init__(self, count: int, *, versions: tuple[int, int] = (4, 18), topic_id: bytes = ID, **limits: Any) -> None:
        self.slots = SlotTable()
        scanner = Scanner(self.slots, Pool(1 << 26))
        self.connection = Connection(scanner, client_id="me", software_version="1")
        self.connection.connect(0.0)
        ((correlation_id, _, _),) = self.asked()
        keys = [{"api_key": 1, "min_version": versions[0], "max_version": versions[1]}]
        assert self.feed(encode_response(18, 3, correlation_id, {"api_keys": keys})) == [Connected()]
        self.fetcher = Fetcher(self.slots, FetchLimits(**limits))
        for number in range(count):
            index = self.slots.add(Log("kafka", "c", "t", str(number)))
            self.slots.attach(index, Position(10, -1), 1)
            self.fetcher.add(Target(index, "t", topic_id, number, 7, 1))

    def asked(self) -> list[tuple[int, int, dict[str, Any]]]:
        """Correlation id, version and body of each request since the last call."""
        found = []
        data = b"".join(self.connection.take_outbound())
        while data:
            size = int.from_bytes(data[:4])
            _, version, correlation_id, _, body = decode_request(data[4 : 4 + size])
            found.append((correlation_id, version, body))
            data = data[4 + size :]
        return found

    def feed(self, data: bytes) -> list[Any]:
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        room.release()
        return list(self.connection.receive(len(data), 0.0))

    def pump(self) -> list[tuple[list[int], int]]:
        """The partitions and the waiting time of each request that it makes."""
        self.fetcher.pump(self.connection, 0.0)
        self.sent = self.asked()
        return [(self.partitions(body), body["max_wait_ms"]) for _, _, body in self.sent]

    @staticmethod
    def partitions(body: dict[str, Any]) -> list[int]:
        return [one["partition"] for topic in body["topics"] for one in topic["partitions"]]

    def answer(
        self,
        request: int,
        ends: dict[int, int],
        *,
        records: int = 0,
        stable: dict[int, int] | None = None,
        damaged: int = -1,
        **more: Any,
    ) -> None:
        """Answer request ``request`` of the last ``pump``; each partition's end, and how many records it gives.

        In a session the partitions are those of ``ends``; ``more`` are fields of the answer. The records of ``damaged``
        have a wrong checksum.
        """
        correlation_id, version, body = self.sent[request]
        told = []
        numbers = self.partitions(body) if body.get("session_epoch", -1) < 0 else list(ends)
        for number in numbers:
            offset = self.slots.position(number).a
            made = [Record(value=b"v", timestamp=1)] * records
            batch = encode_batch(made, base_offset=offset) if made else b""
            if number == damaged:
                batch = batch[:-1] + b"!"
            told.append(
                {
                    "partition_index": number,
                    "high_watermark": ends[number],
                    "last_stable_offset": (stable or ends)[number],
                    "records": batch,
                }
            )
        answer = {"responses": [{"topic": "t", "topic_id": ID, "partitions": told}] if told else [], **more}
        events = self.feed(encode_response(1, version, correlation_id, answer))
        assert isinstance(events[-1], FetchDone)
        assert list(self.fetcher.done(events[-1].fetched)) == numbers


def test_partitions_that_are_behind_are_split_over_two_requests() -> None:
    scene = Scene(5)
    assert scene.pump() == [([0, 1, 2], 500), ([3, 4], 0)]
    assert scene.pump() == []  # two are in flight


def test_one_partition_is_asked_for_once() -> None:
    scene = Scene(1)
    assert scene.pump() == [([0], 500)]
    assert scene.pump() == []


def test_what_has_news_is_asked_for_at_once_and_in_turn() -> None:
    scene = Scene(4)
    assert scene.pump() == [([0, 1], 500), ([2, 3], 0)]
    scene.answer(0, dict.fromkeys(range(4), 100), records=1)
    assert scene.pump() == [([0, 1], 0)]  # behind the one that is in flight
    assert [one["fetch_offset"] for topic in scene.sent[0][2]["topics"] for one in topic["partitions"]] == [11, 11]


def test_a_partition_in_doubt_is_asked_for_first() -> None:
    """Or its answer has what others leave of the room, and what did not fit into it is taken for what is not there."""
    scene = Scene(6)
    assert scene.pump() == [([0, 1, 2], 500), ([3, 4, 5], 0)]
    scene.answer(0, dict.fromkeys(range(6), 100), records=1, damaged=1)
    assert [scene.slots.position(number).a for number in range(3)] == [11, 10, 11]
    assert scene.pump() == [([1, 0, 2], 0)]


def test_nobody_behind_waits_for_news_in_one_request() -> None:
    scene = Scene(4)
    scene.pump()
    for request in (0, 1):
        scene.answer(request, dict.fromkeys(range(4), 10))
    assert scene.pump() == [([0, 1, 2, 3], 500)]
    assert scene.pump() == []


def test_who_got_nothing_comes_first() -> None:
    scene = Scene(3)
    assert scene.pump() == [([0, 1], 500), ([2], 0)]
    scene.answer(0, dict.fromkeys(range(3), 100), records=1)
    scene.answer(1, dict.fromkeys(range(3), 100))
    assert scene.pump() == [([2, 0], 500), ([1], 0)]


@pytest.mark.parametrize(("committed", "behind"), [(True, False), (False, True)])
def test_an_open_transaction_is_no_reason_to_hurry(committed: bool, behind: bool) -> None:
    scene = Scene(2, read_committed=committed)
    scene.pump()
    for request in (0, 1):
        scene.answer(request, {0: 100, 1: 100}, stable={0: 10, 1: 10})
    assert len(scene.pump()) == (2 if behind else 1)
    assert scene.sent[0][2]["isolation_level"] == int(committed)


def test_what_is_dropped_is_not_asked_for_again_and_may_come_back() -> None:
    scene = Scene(2)
    scene.pump()
    scene.fetcher.drop(0)
    assert len(scene.fetcher) == 1
    scene.answer(0, {0: 100, 1: 100})
    scene.answer(1, {0: 100, 1: 100})
    assert scene.pump() == [([1], 500)]
    scene.slots.attach(0, Position(50, -1), 2)
    scene.fetcher.add(Target(0, "t", ID, 0, 8, 2))
    assert scene.pump() == [([0], 0)]
    (asked,) = scene.sent[0][2]["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["current_leader_epoch"]) == (50, 8)


def test_a_lost_connection_frees_all() -> None:
    scene = Scene(2)
    assert scene.pump() == [([0], 500), ([1], 0)]
    scene.fetcher.lost()
    assert scene.pump() == [([0], 500), ([1], 0)]


@pytest.mark.parametrize(
    ("versions", "topic_id", "expected"),
    [((4, 18), ID, 17), ((4, 18), bytes(16), 12), ((0, 12), ID, 12), ((0, 4), ID, 4), ((4, 13), ID, 13)],
)
def test_topics_go_by_id_where_both_know_it(versions: tuple[int, int], topic_id: bytes, expected: int) -> None:
    scene = Scene(1, versions=versions, topic_id=topic_id)
    scene.pump()
    ((_, version, body),) = scene.sent
    assert version == expected
    (topic,) = body["topics"]
    if expected >= 13:
        assert topic["topic_id"] == ID
    else:
        assert topic["topic"] == "t"
    assert body["max_bytes"] == 16 << 20
    assert topic["partitions"][0]["partition_max_bytes"] == FetchLimits().partition_bytes


# --- sessions


def session(body: dict[str, Any]) -> tuple[int, int]:
    return body["session_id"], body["session_epoch"]


def in_session(count: int) -> Scene:
    """A scene whose partitions are all at their ends, and in session 77."""
    scene = Scene(count, session_above=3)
    scene.pump()
    for request in range(2):
        scene.answer(request, dict.fromkeys(range(count), 10))
    assert scene.pump() == [(list(range(count)), 500)]
    assert session(scene.sent[0][2]) == (0, 0)
    opening = scene.sent
    assert scene.pump() == []  # one is in flight
    scene.sent = opening
    scene.answer(0, dict.fromkeys(range(count), 10), session_id=77)
    return scene


def test_a_session_names_what_has_changed() -> None:
    scene = in_session(8)
    assert scene.pump() == [([], 500)]
    assert session(scene.sent[0][2]) == (77, 1)
    scene.answer(0, {3: 11}, records=1, session_id=77)
    assert scene.pump() == [([3], 500)]
    assert session(scene.sent[0][2]) == (77, 2)
    assert scene.sent[0][2]["topics"][0]["partitions"][0]["fetch_offset"] == 11
    scene.fetcher.drop(5)
    scene.slots.attach(6, Position(4, -1), 2)
    scene.fetcher.drop(6)
    scene.fetcher.add(Target(6, "t", ID, 6, 8, 2))
    scene.answer(0, {}, session_id=77)
    assert scene.pump() == [([6], 500)]
    body = scene.sent[0][2]
    assert [(one["topic_id"], one["partitions"]) for one in body["forgotten_topics_data"]] == [(ID, [5])]
    assert body["topics"][0]["partitions"][0]["current_leader_epoch"] == 8
    scene.answer(0, {6: 5}, records=1, session_id=77)
    assert scene.slots.position(6).a == 5


def test_another_log_of_the_same_place_is_not_forgotten() -> None:
    scene = in_session(8)
    index = scene.slots.add(Log("kafka", "c", "t", "5", "+1"))
    scene.slots.attach(index, Position(3, -1), 1)
    scene.fetcher.drop(5)
    scene.fetcher.add(Target(index, "t", ID, 5, 7, 1))
    assert scene.pump() == [([5], 500)]
    assert scene.sent[0][2]["forgotten_topics_data"] == []


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        ({"error_code": 70}, (0, 0)),
        ({"error_code": 71}, (77, 0)),
        ({"error_code": 106}, (77, 0)),
        ({"session_id": 0}, (0, 0)),
    ],
)
def test_a_session_that_is_gone_is_opened_anew(answer: dict[str, Any], again: tuple[int, int]) -> None:
    scene = in_session(8)
    scene.pump()
    scene.answer(0, {}, **answer)
    assert scene.pump() == [(list(range(8)), 500)]
    assert session(scene.sent[0][2]) == again


def test_what_nobody_has_asked_for_ends_a_session() -> None:
    scene = in_session(8)
    scene.fetcher.drop(2)
    scene.pump()
    scene.slots.attach(2, Position(10, -1), 9)
    correlation_id, version, _ = scene.sent[0]
    told = {"responses": [{"topic_id": ID, "partitions": [{"partition_index": 2, "records": b""}]}], "session_id": 77}
    (done,) = scene.feed(encode_response(1, version, correlation_id, told))
    assert list(scene.fetcher.done(done.fetched)) == []
    assert scene.pump() == [([0, 1, 3, 4, 5, 6, 7], 500)]
    assert session(scene.sent[0][2]) == (77, 0)


def test_many_that_fall_behind_end_a_session() -> None:
    scene = in_session(8)
    scene.pump()
    scene.answer(0, dict.fromkeys(range(4), 100), session_id=77)
    assert scene.pump() == [([], 500)]
    scene.answer(0, dict.fromkeys(range(5), 100), session_id=77)
    assert [partitions for partitions, _ in scene.pump()] == [[0, 1, 2, 5, 6, 7], [3, 4]]
    assert [session(body) for _, _, body in scene.sent] == [(77, -1), (0, -1)]


def test_a_partition_in_doubt_ends_a_session() -> None:
    """A session keeps the broker's order, and does not say that an offset that was asked for needs more room."""
    scene = in_session(8)
    scene.pump()
    scene.answer(0, {3: 100}, records=1, damaged=3, session_id=77)
    assert scene.slots.position(3).a == 10
    room = scene.slots.fetch_bytes(3, 0)
    assert room > 1 << 20
    ((partitions, _),) = scene.pump()
    (topic,) = scene.sent[0][2]["topics"]
    assert (session(scene.sent[0][2]), partitions[0]) == ((77, -1), 3)
    assert topic["partitions"][0]["partition_max_bytes"] == max(room, scene.fetcher.limits.partition_bytes)


def test_a_topic_without_an_id_opens_another_session() -> None:
    scene = in_session(8)
    index = scene.slots.add(Log("kafka", "c", "u", "0"))
    scene.slots.attach(index, Position(3, -1), 1)
    scene.fetcher.add(Target(index, "u", bytes(16), 0, 7, 1))
    ((partitions, _),) = scene.pump()
    assert len(partitions) == 9
    assert scene.sent[0][1] == 12
    assert session(scene.sent[0][2]) == (77, 0)


def test_old_brokers_have_no_sessions() -> None:
    scene = Scene(8, session_above=3, versions=(0, 6))
    scene.pump()
    for request in range(2):
        scene.answer(request, dict.fromkeys(range(8), 10))
    assert scene.pump() == [(list(range(8)), 500)]
    assert "session_id" not in scene.sent[0][2]


def test_an_answer_is_a_part_of_the_memory() -> None:
    limits = FetchLimits()
    assert limits.within(1 << 30) == limits
    assert limits.within(64 << 20).response_bytes == 8 << 20
    least = limits.within(1 << 20)
    assert (least.response_bytes, least.partition_bytes) == (1 << 20, 1 << 20)
