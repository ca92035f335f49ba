"""A database that breaks, hangs, is read-only, restored or shared: nothing lost, nothing twice, and said aloud."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastwire.columns.chunk import marker_chunk
from fastwire.position import Position, Span, Until
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.runtime.errors import (
    DatasetDamagedError,
    DatasetGoneError,
    DatasetMismatchError,
    DiskFullError,
    SinkFailedError,
    Superseded,
)
from fastwire_daemon.runtime.outside import waiting
from fastwire_daemon.sinks.postgresql import recorded, session
from tests.databases.postgresql import MISSING, Postgres, binaries, query
from tests.databases.shop import ORDER, Given, Shop, order
from tests.support.tcp_proxy import Proxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.database


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server of this test alone."""
    programs = binaries()
    if programs is None:
        pytest.skip(MISSING)
    with Postgres(programs) as server:
        yield server


def landed(shop: Shop) -> list[int]:
    return [id for (id,) in shop.query("SELECT id FROM orders ORDER BY id")]


def through(shop: Shop, proxy: Proxy) -> str:
    return f"postgresql://loader@127.0.0.1:{proxy.port}/{shop.url.rpartition('/')[2]}?sslmode=disable"


@pytest.mark.parametrize("step", ["locked", "loaded", "landed"])
def test_a_connection_that_breaks(shop: Shop, step: str) -> None:
    """Behind "landed" comes COMMIT: the server may have carried it out or not."""
    with Proxy(int(shop.url.rpartition(":")[2].partition("/")[0])) as proxy:
        cut = [step]

        def reached(name: str) -> None:
            if name in cut:
                cut.clear()
                proxy.cut()

        sink, feed = shop.sink(ORDER, url=through(shop, proxy), reached=reached), Given()
        sink.write(feed.records([order(1), order(2)]))
        with pytest.raises(SinkFailedError):
            sink.commit()
        coverage = sink.open()
        again = Given(coverage) if len(coverage) else Given()
        sink.write(again.records([order(1), order(2)] if not len(coverage) else [order(3)]))
        sink.commit()
        assert landed(shop) in ([1, 2], [1, 2, 3])


def test_a_session_that_was_idle_for_too_long_costs_no_roll(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER), Given()
    sink.create_dataset()
    for number in (1, 2):
        sink.write(feed.records([order(number)]))
        own = "application_name = 'fastwire' AND datname = current_database()"
        assert shop.query(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {own}") == [(True,)]
        sink.commit()
    assert landed(shop) == [1, 2]


@pytest.mark.parametrize("search", [False, True])
def test_a_column_whose_type_is_changed_meanwhile_gets_no_other_value(shop: Shop, search: bool) -> None:
    """Eight bytes of a bigint are some double, too."""
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1)]))
    sink.commit()
    shop.query("ALTER TABLE orders ALTER id TYPE double precision")
    sink.write(feed.records([order(2), *([order(3, "a\0b")] if search else [])]))
    with pytest.raises(SinkFailedError, match="has other columns than before"):
        sink.commit()
    with pytest.raises(DatasetMismatchError, match="id is double precision, and the records have values for bigint"):
        sink.open()
    shop.query("ALTER TABLE orders ALTER id TYPE bigint, ADD more integer")
    sink.write(Given(sink.open()).records([order(2)]))
    shop.query("ALTER TABLE orders ADD again integer")  # a column that the records do not have
    sink.commit()
    assert landed(shop) == [1, 2]


def test_the_answer_to_commit_is_lost(shop: Shop) -> None:
    """The server has committed, and the connection breaks before its answer: the positions decide."""
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1)]))
    connection = sink._session
    assert connection is not None
    commit = connection.commit

    def lost() -> None:
        commit()
        raise session.Refused("", "server closed the connection unexpectedly")

    sink.recorded.create(connection)
    connection.commit = lost  # type: ignore[method-assign]
    with pytest.raises(SinkFailedError, match="closed the connection"):
        sink.commit()
    coverage = sink.open()
    assert coverage.end(feed.logs[0]) is not None
    sink.write(Given(coverage).records([order(2)]))
    sink.commit()
    assert landed(shop) == [1, 2]


def test_a_commit_that_still_runs_is_waited_for(shop: Shop) -> None:
    """A daemon that has lost its connection meets its own transaction, which the server still works on."""
    sink, feed = shop.sink(ORDER), Given()
    sink.write(marker_chunk([Span(feed.logs[0], PULSAR_EARLIEST, PULSAR_EARLIEST, 0)]))
    sink.commit()
    held, go, done = threading.Event(), threading.Event(), threading.Event()

    def reached(step: str) -> None:
        if step == "landed":
            held.set()
            assert go.wait(30)

    slow = shop.sink(ORDER, reached=reached)

    def commit_slowly() -> None:
        slow.write(Given().records([order(1)]))
        slow.commit()
        done.set()

    thread = threading.Thread(target=commit_slowly)
    thread.start()
    assert held.wait(30)
    sink.write(feed.records([order(1)]))
    failed: list[Exception] = []

    def commit_again() -> None:
        try:
            sink.commit()
        except Superseded as exc:
            failed.append(exc)

    other = threading.Thread(target=commit_again)
    other.start()
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    eventually(lambda: shop.query(waits) == [(1,)], "it waits for the positions")
    go.set()
    thread.join(30)
    other.join(30)
    assert done.is_set()
    assert len(failed) == 1
    assert landed(shop) == [1]


def test_two_begin_at_once(shop: Shop) -> None:
    one, other = shop.sink(ORDER), shop.sink(ORDER)
    failed: list[BaseException] = []

    def begin(sink: object, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            sink.create_dataset()  # type: ignore[attr-defined]
        except BaseException as exc:
            failed.append(exc)

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=begin, args=(each, barrier)) for each in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    assert shop.query("SELECT count(*) FROM fastwire_tables") == [(1,)]
    assert one.exists and other.exists


def test_disjoint_partitions_do_not_wait_for_each_other(shop: Shop) -> None:
    feed = Given()
    sink = shop.sink(ORDER)
    sink.create_dataset()
    held, go = threading.Event(), threading.Event()

    def reached(step: str) -> None:
        if step == "landed":
            held.set()
            assert go.wait(30)

    slow = shop.sink(ORDER, reached=reached)
    slow.write(feed.records([order(1)]))
    thread = threading.Thread(target=slow.commit)
    thread.start()
    assert held.wait(30)
    others = Given()
    (log,) = others.logs
    sink.write(marker_chunk([Span(replace(log, partition="7"), PULSAR_EARLIEST, PULSAR_EARLIEST, 0)]))
    assert len(sink.commit()) == 1
    go.set()
    thread.join(30)
    assert len(sink.refresh()) == 2


def test_a_server_that_hangs_holds_nobody(own: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "GRACE_S", 0.5)
    shop = Shop(own.url(), tmp_path)
    sink, feed = shop.sink(ORDER, timeout="500ms"), Given()
    sink.create_dataset()
    sink.write(feed.records([order(1)]))
    failed: list[Exception] = []

    def commit() -> None:
        try:
            sink.commit()
        except SinkFailedError as exc:
            failed.append(exc)

    with own.frozen():
        commit()  # it has a limit
        assert "has not answered within 1 s" in str(failed.pop())
        monkeypatch.setattr(session, "CONNECT_S", 0.5)
        with pytest.raises(SinkFailedError, match=r"has not answered within 1 s|timeout expired"):
            sink.open()
    sink.open()
    monkeypatch.setattr(session, "GRACE_S", 60.0)
    sink.write(Given().records([order(1)]))
    with own.frozen():
        thread = threading.Thread(target=commit)
        thread.start()
        eventually(lambda: (waiting([thread.ident]) or "").startswith("waits for PostgreSQL at"), "it says so")
        sink.interrupt()
        thread.join(60)
        assert not thread.is_alive()
        assert "was stopped while it waited" in str(failed.pop())
    assert len(sink.open()) == 0
    sink.write(Given().records([order(1)]))
    sink.commit()
    assert landed(shop) == [1]
    shop.close()


def test_a_lock_of_others_has_a_limit(shop: Shop) -> None:
    import adbc_driver_postgresql.dbapi as driver

    sink, feed = shop.sink(ORDER, timeout="300ms"), Given()
    sink.create_dataset()
    sink.write(feed.records([order(1)]))
    with driver.connect(shop.url) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE orders")
        with pytest.raises(SinkFailedError, match=r"55P03|57014"):
            sink.commit()
    sink.open()
    sink.write(Given().records([order(1)]))
    sink.commit()
    assert landed(shop) == [1]


def test_a_partition_that_is_being_rewritten_holds_back_no_rows_of_others(shop: Shop) -> None:
    """As by VACUUM FULL, which may take hours."""
    import adbc_driver_postgresql.dbapi as driver

    shop.query("CREATE TABLE orders (id bigint, note text) PARTITION BY RANGE (id)")
    for name, first, end in (("old", 0, 10), ("new", 10, 20)):
        shop.query(f"CREATE TABLE {name} PARTITION OF orders FOR VALUES FROM ({first}) TO ({end})")
    sink, feed = shop.sink(ORDER, timeout="2s"), Given()
    sink.write(feed.records([order(1)]))
    sink.commit()
    with driver.connect(shop.url) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE old")
        sink.write(feed.records([order(11)]))
        sink.commit()
    assert landed(shop) == [1, 11]


def test_a_read_only_server_is_tried_again(shop: Shop) -> None:
    name = shop.url.rpartition("/")[2]
    shop.query(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(SinkFailedError, match="is read-only"):
        shop.sink(ORDER)


def test_a_lacking_right_names_the_command_that_tells_which(shop: Shop) -> None:
    guest = f"guest_of_{shop.url.rpartition('/')[2]}"
    shop.query(f"CREATE ROLE {guest} LOGIN")
    try:
        sink, feed = shop.sink(ORDER, url=shop.url.replace("loader", guest)), Given()
        sink.write(feed.records([order(1)]))
        with pytest.raises(SinkFailedError, match=r"schema public.+check --connect says which"):
            sink.commit()
        sink.close()
    finally:
        shop.query(f"DROP ROLE {guest}")


def test_a_table_with_policies_is_refused_at_the_start(shop: Shop) -> None:
    guest = f"guest_of_{shop.url.rpartition('/')[2]}"
    shop.query("CREATE TABLE orders (id bigint, note text)")
    shop.query("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    shop.query(f"CREATE ROLE {guest} LOGIN")
    try:
        with pytest.raises(DatasetMismatchError, match="row-level security from this user"):
            shop.sink(ORDER, url=shop.url.replace("loader", guest))
        shop.sink(ORDER, url=shop.url.replace("loader", guest), mode="upsert", key=["id"], table="other")
    finally:
        shop.close()
        shop.query(f"DROP ROLE {guest}")


def test_commits_are_durable_where_that_is_off(shop: Shop) -> None:
    shop.query(f"ALTER DATABASE {shop.url.rpartition('/')[2]} SET synchronous_commit = off")
    seen: list[str] = []

    def reached(step: str) -> None:
        if step == "landed" and sink._session is not None:
            seen.append(sink._session.rows("SHOW synchronous_commit")[0][0])

    sink = shop.sink(ORDER, reached=reached)
    sink.write(Given().records([order(1)]))
    sink.commit()
    assert seen == ["on"]


def test_nothing_is_held_while_records_are_gathered(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER), Given()
    sink.create_dataset()
    sink.write(feed.records([order(1)]))
    states = "SELECT state, backend_xmin IS NULL FROM pg_stat_activity WHERE application_name = 'fastwire'"
    assert shop.query(f"{states} AND datname = current_database()") == [("idle", True)]


def test_a_restored_copy_is_told_from_the_newest(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1)]))
    sink.commit()
    shop.query("CREATE TABLE older AS SELECT * FROM fastwire_coverage")
    sink.write(feed.records([order(2)]))
    sink.commit()
    shop.query("DELETE FROM fastwire_coverage")
    shop.query("INSERT INTO fastwire_coverage SELECT * FROM older")
    with pytest.raises(DatasetDamagedError, match="has lost commits"):
        sink.open()
    shop.query("DELETE FROM fastwire_tables")
    with pytest.raises(DatasetGoneError, match="nothing of it is recorded"):
        sink.open()
    shop.query("DELETE FROM fastwire_coverage")
    shop.sink(ORDER).create_dataset()
    with pytest.raises(DatasetMismatchError, match="it was recorded anew"):
        sink.open()


def test_another_cluster_is_refused(shop: Shop) -> None:
    sink = shop.sink(ORDER, source={"cluster": None, "url": "pulsar://a:6650"})
    sink.create_dataset()
    sink.identify("")
    other = shop.sink(ORDER, source={"cluster": None, "url": "pulsar://b:6650"})
    assert other.cluster == "a:6650"
    with pytest.raises(DatasetMismatchError, match="holds records of the cluster at a:6650"):
        other.identify("")
    shop.sink(ORDER, source={"cluster": None, "url": "pulsar+ssl://A:6651"}).identify("")
    sink = shop.sink(ORDER, source={"cluster": None, "url": "pulsar://a:6650"})
    sink.identify("one")
    sink.identify("one")
    with pytest.raises(DatasetMismatchError, match="has the id two"):
        sink.identify("two")


def test_witnesses_and_ends_of_runs_are_kept(shop: Shop) -> None:
    (log,) = Given().logs
    end = Until(Position(9, 5), "2026-01-01")
    span = Span(log, Position(9, 1), Position(9, 2), 0, witness=(1 << 64) - 1, until=end)
    sink = shop.sink(ORDER)
    sink.write(marker_chunk([span]))
    sink.commit()
    for coverage in (sink.refresh(), shop.sink(ORDER).refresh()):
        assert coverage.witness(log) == (1 << 64) - 1
        assert coverage.until(log) == end


def test_new_columns_do_not_queue_behind_readers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    import adbc_driver_postgresql.dbapi as driver

    monkeypatch.setattr(recorded, "ADD_LOCK_TIMEOUT", "100ms")
    sink = shop.sink(ORDER)
    sink.create_dataset()
    sink.close()
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}
    sink = shop.sink(more)
    sink.write(Given().records([order(1)]))
    with driver.connect(shop.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        cursor.fetchall()
        with pytest.raises(SinkFailedError, match="55P03"):
            sink.commit()
    sink.open()
    sink.write(Given().records([order(1)]))
    sink.commit()
    assert list(shop.types()) == ["id", "note", "more"]


def test_a_server_without_space_is_tried_again(shop: Shop) -> None:
    """A full disk of the server is no fault of the rows."""
    sink, feed = shop.sink(ORDER), Given()
    sink.create_dataset()
    shop.query(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$"
    )
    shop.query("CREATE TRIGGER full_disk BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION full_disk()")
    sink.write(feed.records([order(1)]))
    with pytest.raises(DiskFullError, match="53100: could not extend file"):
        sink.commit()
    shop.query("DROP TRIGGER full_disk ON orders")
    assert len(sink.open()) == 0
    sink.write(Given().records([order(1)]))
    sink.commit()
    assert landed(shop) == [1]
    assert shop.letters() == []


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_failover_to_a_replica(tmp_path: Path, synchronous: bool) -> None:
    """A replica that has all commits goes on; one that lacks some stops the pipeline of a process that knows better."""
    programs = binaries()
    if programs is None:
        pytest.skip(MISSING)
    with Postgres(programs, wal_level="replica") as primary, Postgres(programs, primary, hot_standby="on") as replica:
        if synchronous:
            query(primary.url(), "ALTER SYSTEM SET synchronous_standby_names = 'replica'")
            query(primary.url(), "SELECT pg_reload_conf()")
        both = f"postgresql://loader@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
        shop = Shop(primary.url(), tmp_path)
        sink, feed = shop.sink(ORDER, url=both), Given()
        sink.write(feed.records([order(1)]))
        sink.commit()
        has_it = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
        eventually(lambda: query(primary.url(), has_it) == [(1,)], "the replica has it")
        with pytest.raises(SinkFailedError, match="is read-only"):
            shop.sink(ORDER, url=replica.url())
        if not synchronous:
            query(replica.url(), "SELECT pg_wal_replay_pause()")
            replica.stop(signal.SIGKILL)
            (replica.folder / "data" / "postmaster.pid").unlink()
        sink.write(feed.records([order(2)]))
        coverage = sink.commit()
        primary.stop(signal.SIGKILL)
        sink.write(feed.records([order(3)]))
        with pytest.raises(SinkFailedError):
            sink.commit()
        if not synchronous:
            replica.start()
        with pytest.raises(SinkFailedError):
            sink.open()  # there is no primary yet
        replica.promote()
        shop.url = replica.url()
        if synchronous:
            assert sink.open() == coverage
            sink.write(Given(coverage).records([order(3)]))
            sink.commit()
            assert landed(shop) == [1, 2, 3]
        else:
            with pytest.raises(DatasetDamagedError, match="has lost commits"):
                sink.open()
            restarted = shop.sink(ORDER, url=both)
            restarted.write(Given(restarted.refresh()).records([order(2)]))
            restarted.commit()
            assert landed(shop) == [1, 2]
        shop.close()


def test_a_password_is_in_no_message(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SinkFailedError) as refused:
        shop.sink(ORDER, url="postgresql://nobody@127.0.0.1:1/shop", password="s3cret with & and %")
    assert "127.0.0.1:1/shop" in str(refused.value)
    assert "s3cret" not in str(refused.value) + repr(refused.value.__cause__) + caplog.text


def test_a_password_is_passed_on(own: Postgres, tmp_path: Path) -> None:
    query(own.url(), "CREATE ROLE alice LOGIN SUPERUSER PASSWORD 's3cret with & and %'")
    settings = own.folder / "data" / "pg_hba.conf"
    settings.write_text("host all alice 127.0.0.1/32 scram-sha-256\n" + settings.read_text())
    query(own.url(), "SELECT pg_reload_conf()")
    url = own.url().replace("loader@", "alice@")
    shop = Shop(url, tmp_path)
    with pytest.raises(SinkFailedError, match="password"):
        shop.sink(ORDER, password="other")
    shop.sink(ORDER, password="s3cret with & and %").create_dataset()
    shop.close()


def test_a_closed_sink_leaves_no_thread_in_the_driver(shop: Shop) -> None:
    """A thread that the end of the interpreter meets in the driver's C++ would abort the process."""
    sink = shop.sink(ORDER)
    assert sink._session is not None
    thread = sink._session._thread
    sink.close()
    assert not thread.is_alive()
