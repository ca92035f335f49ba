"""The totals of a pipeline, for programs and for people."""

from fastwire_daemon.service.totals import Totals


def test_a_sentence_has_rows_bytes_files_and_rate() -> None:
    totals = Totals(
        rows=3000,
        payload_bytes=25_893,
        files=1,
        file_bytes=3589,
        seconds=0.5,
        cpu_s=0.009,
        stages={"limit": "encode", "setting": "sink.writers, sink.compression"},
    )
    assert totals.sentence("orders") == (
        "orders has ended: 3,000 rows committed (25.9 kB) in 1 file (3.6 kB), 0.5 s, 6,000 rows/s, 3.00 µs of CPU a row"
        "; limited by: encode (what helps: sink.writers, sink.compression)"
    )
    assert totals.fields() == {
        "rows": 3000,
        "payload_bytes": 25_893,
        "files": 1,
        "file_bytes": 3589,
        "seconds": 0.5,
        "rows_per_s": 6000,
        "cpu_us_per_row": 3.0,
        "limit": "encode",
        "setting": "sink.writers, sink.compression",
    }


def test_a_pipeline_without_rows_says_no_more_than_that() -> None:
    totals = Totals(rows=0, payload_bytes=0, files=0, file_bytes=0)
    assert totals.sentence("orders") == "orders has ended: 0 rows committed"
    assert totals.fields() == {"rows": 0, "payload_bytes": 0, "files": 0, "file_bytes": 0}


def test_a_sink_without_files_and_a_limit_without_a_setting() -> None:
    totals = Totals(
        rows=1,
        payload_bytes=5,
        files=0,
        file_bytes=0,
        seconds=1.0,
        cpu_s=0.0,
        stages={"limit": "broker", "setting": ""},
    )
    assert totals.sentence("orders") == (
        "orders has ended: 1 row committed (5 B), 1.0 s, 1 rows/s, 0.00 µs of CPU a row; limited by: broker"
    )


def test_dead_letters_are_told() -> None:
    totals = Totals(rows=0, payload_bytes=0, files=0, file_bytes=0, dead_letters=2)
    assert totals.sentence("orders") == "orders has ended: 0 rows committed and 2 dead letters"
    assert totals.fields()["dead_letters"] == 2
