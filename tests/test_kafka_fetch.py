"""Which partitions are asked for when: against a connection whose broker is scripted."""

from typing import Any

import pytest

from fastwire.kafka.connection import Connection
from fastwire.kafka.event import Connected, FetchDone
from fastwire.kafka.fetch import Fetcher, FetchLimits, Target
from fastwire.kafka.message import decode_request, encode_response
from fastwire.kafka.payload import Record, encode_batch
from fastwire.kafka.scan import Scanner
from fastwire.kafka.slot import SlotTable
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
        self, request: int, ends: dict[int, int], *, records: int = 0, stable: dict[int, int] | None = None
    ) -> None:
        """Answer request ``request`` of the last ``pump``; each partition's end, and how many records it gives."""
        correlation_id, version, body = self.sent[request]
        told = []
        for number in self.partitions(body):
            offset = self.slots.position(number).a
            made = [Record(value=b"v", timestamp=1)] * records
            told.append(
                {
                    "partition_index": number,
                    "high_watermark": ends[number],
                    "last_stable_offset": (stable or ends)[number],
                    "records": encode_batch(made, base_offset=offset) if made else b"",
                }
            )
        answer = {"responses": [{"topic": "t", "topic_id": ID, "partitions": told}]}
        events = self.feed(encode_response(1, version, correlation_id, answer))
        assert isinstance(events[-1], FetchDone)
        assert self.fetcher.done(events[-1].fetched.correlation_id) == self.partitions(body)


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
    assert topic["partitions"][0]["partition_max_bytes"] == 1 << 20
