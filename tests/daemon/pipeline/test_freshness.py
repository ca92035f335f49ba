"""The age of the last commit, and of the newest record that has landed."""

from fastwire.columns.chunk import marker_chunk
from fastwire.wire.pool import Pool
from fastwire_daemon.pipeline.freshness import Freshness
from fastwire_daemon.runtime.metrics import DaemonMetrics
from tests.daemon.runtime.test_metrics import samples
from tests.support.pipeline_bed import Bed, Chunks

LAG, COMMIT = (f'fastwire_sink_{name}_seconds{{pipeline="p"}}' for name in ("lag", "last_commit_time"))


def test_the_lag_is_the_age_of_the_newest_record_while_there_are_others() -> None:
    metrics, now = DaemonMetrics("0"), [1000.0]
    freshness = Freshness(metrics.pipeline("p"), lambda: now[0])
    freshness.look(5)
    assert freshness.status() == {"last_commit_s_ago": None, "lag_s": None, "lag_history": [5]}
    assert LAG not in samples(metrics) and COMMIT not in samples(metrics), "a 0 would say that it is fresh"
    freshness.committed(900_000_000)
    freshness.committed(800_000_000)  # an older record makes nothing older
    freshness.committed(None)
    now[0] = 1010.0
    freshness.look(5)
    assert freshness.status() == {"last_commit_s_ago": 10.0, "lag_s": 110.0, "lag_history": [5]}
    assert (samples(metrics)[LAG], samples(metrics)[COMMIT]) == (110, 1000)
    freshness.look(0)
    assert (freshness.status()["lag_s"], samples(metrics)[LAG]) == (0.0, 0)
    freshness.look(None)
    assert freshness.status()["lag_s"] is None and LAG not in samples(metrics)
    freshness.look(None)
    freshness.committed(2_000_000_000)
    freshness.look(1)
    assert samples(metrics)[LAG] == 0, "a record from the future"


async def test_a_pipeline_measures_what_it_has_committed() -> None:
    bed = Bed()
    await bed.running()
    bed.source.backlog = 3
    await bed.give()  # published at 1 ms
    bed.pipeline.look()
    assert bed.pipeline.status()["lag_s"] is None, "nothing has landed yet"
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: bed.pipeline.figures.rows_committed > 0)
    bed.pipeline.look()
    assert bed.pipeline.status()["lag_s"] > 1_700_000_000
    assert bed.pipeline.status()["last_commit_s_ago"] is not None
    bed.source.backlog = 0
    bed.pipeline.look()
    assert bed.pipeline.status()["lag_s"] == 0
    await bed.end()


def test_the_newest_time_of_a_chunk_is_that_of_its_rows() -> None:
    pool = Pool(64 << 20)
    chunk = Chunks(pool).next()
    assert chunk.newest_time() == 1000
    chunk.release()
    assert chunk.newest_time() is None
    assert marker_chunk([]).newest_time() is None
