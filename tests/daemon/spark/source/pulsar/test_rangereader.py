"""Ranges of entries, read ahead on a thread: the same rows each time, and what is lost is said."""

import threading
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.format.payload import Entry, Record, encode_chunks
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.spark.source.ranges import DataLossError
from tests.support.hostile import pulsar as hostile
from tests.support.source_pipe import entries, entry
from tests.support.spark_source import at, client, eventually, numbers, part, read, reading, serving
from tests.support.tcp_proxy import Proxy


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 49), (7, 7), (19, 20), (20, 39), (5, 44)])
def test_a_range_is_all_between_its_ends(first: int, last: int) -> None:
    with serving(50) as broker:
        one = client(broker.url)
        wanted = part(at(broker, last), at(broker, first - 1) if first else PULSAR_EARLIEST)
        for _ in range(2):  # and again over the same connection
            assert numbers(read(one, wanted)) == list(range(first, last + 1))
        one.close()


def test_a_broker_that_reads_ahead_sends_more_than_the_range() -> None:
    with serving(50, read_ahead=20) as broker:
        one = client(broker.url)
        for first, last in ((0, 3), (4, 4), (5, 49)):
            start = at(broker, first - 1) if first else PULSAR_EARLIEST
            assert numbers(read(one, part(at(broker, last), start))) == list(range(first, last + 1))
        one.close()


def test_ranges_are_read_at_the_same_time_and_move_no_cursor() -> None:
    with serving(30) as broker:
        found: dict[int, list[int]] = {}

        def run(number: int) -> None:
            one = client(broker.url)
            found[number] = numbers(read(one, part(at(broker, 29))))
            one.close()

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {number: list(range(30)) for number in range(3)}
        eventually(lambda: broker.subscriptions("t") == [])


def test_a_cut_connection_goes_on_where_it_was() -> None:
    with serving(50) as broker, Proxy(broker.port) as proxy:
        one = client(proxy.url)
        proxy.cut_in_frame(30)
        assert numbers(read(one, part(at(broker, 49)))) == list(range(50))
        assert proxy.cuts == 1
        assert proxy.connections >= 2
        one.close()


def test_a_topic_that_moves_while_it_is_read() -> None:
    with serving(50) as broker:
        one = client(broker.url, window=100)
        batches = reading(one, part(at(broker, 49)))
        # No row is given out before the range is whole or a chunk is full, so the move comes first.
        threading.Timer(0, broker.unload, ("t",)).start()
        assert numbers(batches) == list(range(50))
        one.close()


def test_a_broker_that_restarts() -> None:
    broker = PulsarDevBroker()
    with running(broker):
        broker.create_topic("t")
        broker.append("t", entries(0, 10))
        end, port = at(broker, 9), broker.port
    one = client(f"pulsar://127.0.0.1:{port}")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(numbers(read(one, part(end)))))
    thread.start()
    with running(broker):
        thread.join(60)
        assert found == list(range(10))
        one.close()


def test_nobody_there_is_said_when_patience_ends() -> None:
    one = client("pulsar://127.0.0.1:1")
    with pytest.raises(FastwireError, match=r"nothing came for 0\.05 s, at last: cannot connect .* refused"):
        read(one, part(Position(3, 0)), patience_s=0.05)
    one.close()


# --- what is lost


def lossy(broker: PulsarDevBroker, wanted: Any, why: str) -> list[int]:
    """Reading fails for this reason; and if losses may be, what is left."""
    one = client(broker.url)
    with pytest.raises(DataLossError, match=why):
        read(one, wanted)
    left = numbers(read(one, wanted, fail=False))
    one.close()
    return left


def test_a_trimmed_start() -> None:
    with serving(50) as broker:
        start, end = at(broker, 5), at(broker, 49)
        broker.trim("t", *at(broker, 20))
        assert lossy(broker, part(end, start), "the entry at 3:5, where it begins, is gone") == list(range(20, 50))


def test_a_trimmed_start_is_no_loss_where_the_broker_held_the_rest() -> None:
    with serving(50) as broker:
        start, end = at(broker, 19), at(broker, 49)
        broker.trim("t", *at(broker, 20))
        one = client(broker.url)
        wanted = part(end, start, start_exists=False, end_exists=False)
        assert numbers(read(one, wanted)) == list(range(20, 50))
        one.close()


def test_a_trimmed_end() -> None:
    with serving(50) as broker:
        end = at(broker, 9)
        broker.trim("t", *at(broker, 20))
        assert lossy(broker, part(end), "the entry at the end did not come") == []


def test_a_topic_that_does_not_exist() -> None:
    with serving() as broker:
        broker.delete_topic("t")
        assert lossy(broker, part(Position(3, 9)), "the broker does not know the topic") == []


def test_a_topic_that_was_made_again() -> None:
    with serving(20) as broker:
        end = at(broker, 19)
        broker.delete_topic("t")
        broker.create_topic("t")
        assert lossy(broker, part(end), "the topic is empty, before the range does") == []
        broker.append("t", entries(0, 5))
        assert lossy(broker, part(end), "the entry at the end did not come") == []


def test_a_topic_that_ends_before_the_range() -> None:
    with serving(20) as broker:
        last = at(broker, 19)
        wanted = part(Position(last.a, last.b + 5))
        assert lossy(broker, wanted, "the topic ends at 3:19, before the range does") == list(range(20))


def parts(uuid: str, value: bytes = b"x" * 90) -> list[Entry]:
    """One message in three parts."""
    return encode_chunks(
        Record(value=value), chunk_bytes=30, producer_name="p", sequence_id=1, publish_time=1, uuid=uuid
    )


def test_an_entry_that_cannot_be_decoded() -> None:
    with serving(5) as broker:
        broker.append("t", parts("u")[1:2])  # its first part never came
        broker.append("t", entries(6, 5))
        left = lossy(broker, part(at(broker, 10)), r"the entry at 3:5 cannot be decoded: Chunked")
        assert left == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
        # At the end of a range it is met all the same.
        assert lossy(broker, part(at(broker, 5)), "cannot be decoded") == [0, 1, 2, 3, 4]


def test_a_message_in_parts_belongs_to_the_range_of_its_last_part() -> None:
    """However ranges are cut: each message once, also where its parts lie among those of another."""
    with serving(ledger_entries=4) as broker:
        one, two = parts("one", b"1" * 90), parts("two", b"2" * 90)
        broker.append("t", [entry(0), one[0], entry(2), two[0], one[1], two[1], entry(6), one[2], entry(8), two[2]])
        places = [PULSAR_EARLIEST, *(at(broker, index) for index in range(10))]
        other = client(broker.url)

        def values(first: int, last: int) -> list[bytes]:
            wanted = part(places[last], places[first])
            return [value[:1] for batch in read(other, wanted) for value in batch.column("value").to_pylist()]

        whole = values(0, 10)
        assert whole == [b"0"] * 10 + [b"2"] * 10 + [b"6"] * 10 + [b"1"] + [b"8"] * 10 + [b"2"]
        for middle in range(1, 10):
            assert values(0, middle) + values(middle, 10) == whole
        assert [value for step in range(10) for value in values(step, step + 1)] == whole
        other.close()


def test_a_message_whose_first_part_is_gone() -> None:
    with serving() as broker:
        broker.append("t", [entry(0), *parts("u"), entry(4)])
        start, end = at(broker, 1), at(broker, 4)
        broker.trim("t", *at(broker, 1))
        broker.trim("t", *start)
        one = client(broker.url)
        assert [batch.num_rows for batch in read(one, part(end, start))] == [1 + 10]
        one.close()
        broker.trim("t", start.a, start.b + 1)
        assert lossy(broker, part(end, start, start_exists=False), "cannot be decoded: Chunked") == [4]


def test_damaged_entries() -> None:
    with serving(9, hostile.BadCrc(every=3)) as broker:
        assert lossy(broker, part(at(broker, 8)), "cannot be decoded") == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("make", [hostile.CutInFrame, hostile.ClosingConsumers, hostile.UnknownCommands])
def test_brokers_with_bad_manners(make: Any) -> None:
    hostile_one = make(every=3, times=2)
    with serving(30, hostile_one) as broker:
        one = client(broker.url)
        assert numbers(read(one, part(at(broker, 29)))) == list(range(30))
        assert hostile_one.hits
        one.close()


def test_a_silent_broker_is_left_when_patience_ends() -> None:
    with serving(5) as broker:
        one = client(broker.url, operation_timeout_s=0.1)
        end = at(broker, 4)
        read(one, part(end))
        broker.muted = True
        with pytest.raises(FastwireError, match=r"nothing came for 0\.3 s"):
            read(one, part(end), patience_s=0.3)
        one.close()


def test_a_task_that_takes_no_rows_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """No data is received meanwhile, and pings keep the broker from closing the connection."""
    pings = []
    monkeypatch.setattr("fastwire.pulsar.protocol.connection.SUSPENDED_FIRST_PING_S", 0.0)
    monkeypatch.setattr("fastwire.pulsar.protocol.connection.Connection._ping", lambda self, now: pings.append(now))
    with serving(8000) as broker:
        one = client(broker.url)
        batches = reading(one, part(at(broker, 7999)))
        found = [next(batches)]
        eventually(lambda: len(pings) > 0)
        assert numbers([*found, *batches]) == list(range(8000))
        assert broker.accepted == 1
        one.close()


def test_a_connection_lost_while_nobody_takes_rows_is_made_anew() -> None:
    with serving(3000) as broker:
        one = client(broker.url)
        batches = reading(one, part(at(broker, 2999)))
        found = [next(batches)]
        broker.drop_connections()
        assert numbers([*found, *batches]) == list(range(3000))
        assert broker.accepted == 2
        one.close()


def test_a_task_that_ends_early_cancels_its_reading() -> None:
    with serving(3000) as broker:
        one = client(broker.url)
        batches = reading(one, part(at(broker, 2999)))
        next(batches)
        batches.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "fastwire-read"]
        eventually(lambda: broker.subscriptions("t") == [])
        assert numbers(read(one, part(at(broker, 9)))) == list(range(10))  # nothing of it is left on the connections
        one.close()
