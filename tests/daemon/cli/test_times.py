"""Times of records outside of the calendar, from a broker through ``run`` into each format, and on the terminal."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.devbroker.kafka.broker import KafkaDevBroker
from fastwire_daemon.devbroker.server import running
from tests.support.nursery import shared
from tests.support.tables import rows_by_duckdb

YEAR_55840 = 1_700_000_000_000_000  # microseconds where milliseconds belong
DAY = 1_767_225_600_000  # 2026-01-01
TIMES = {b"far": YEAR_55840, b"early": -1_000, b"ancient": -62_135_596_800_001, b"day": DAY, b"none": -1}
UNFIT = {b"huge": (1 << 63) - 1}
MICROS = {name.decode(): None if milli == -1 else milli * 1000 for name, milli in TIMES.items()}
FOLDERS = {"far": None, "early": "1969-12-31", "ancient": None, "day": "2026-01-01", "none": None}


@pytest.fixture(scope="module")
def broker() -> Any:
    with running(KafkaDevBroker()) as made:
        for topic, times in (("orders", TIMES), ("unfit", UNFIT)):
            made.create_topic(topic, 1)
            made.append(topic, [encode_batch([Record(value=name, timestamp=milli) for name, milli in times.items()])])
        yield made


def land(broker: KafkaDevBroker, folder: Path, sink: str, topic: str = "orders") -> str:
    config = folder / "config.toml"
    source = f'url = "{broker.url}"\ntopics = ["{topic}"]\ngroup = "{folder.name}"\n'
    source += 'start = "earliest"\ngroup_protocol = "none"\n'
    config.write_text(
        f'daemon.http = ""\n[pipelines.x.source]\n{source}[pipelines.x.sink]\npath = "{folder}/data"\n{sink}\n'
    )
    ran = shared().run("run", config, "--until-end")
    assert ran.returncode == 0, ran.stderr
    checked = shared().run("verify", folder / "data", "--deep", "--config", config)
    assert checked.returncode == 0, checked.stdout
    return ran.stderr


def values(rows: Any) -> dict[str, int | None]:
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    return dict(zip((value.decode() for value in rows["value"].to_pylist()), times, strict=True))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_times_are_kept_in_files(broker: KafkaDevBroker, tmp_path: Path, form: str) -> None:
    said = land(broker, tmp_path, f'type = "{form}"\npartition_by = "day"')
    assert '"level": "warning"' not in said
    found = ds.dataset(tmp_path / "data", format=form, partitioning="hive").to_table()
    assert values(found) == MICROS
    days = dict(
        zip(found["value"].cast(pa.string()).to_pylist(), found["dt"].cast(pa.string()).to_pylist(), strict=True)
    )
    assert days == FOLDERS


def test_times_are_kept_in_delta(broker: KafkaDevBroker, tmp_path: Path) -> None:
    land(broker, tmp_path, 'type = "delta"\npartition_by = "day"')
    assert values(DeltaTable(tmp_path / "data").to_pyarrow_table()) == MICROS
    found = rows_by_duckdb(tmp_path / "data", "value::VARCHAR, epoch_us(timestamp)")
    assert dict(found) == MICROS
    near = DeltaTable(tmp_path / "data").to_pyarrow_table(filters=[("dt", "=", date(2026, 1, 1))])
    assert values(near) == {"day": DAY * 1000}


def test_times_are_kept_in_iceberg(broker: KafkaDevBroker, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    land(
        broker, tmp_path, f'type = "iceberg"\ntable = "shop.x"\ncatalog = {{ type = "sql", uri = "{uri}" }}\n'
        'partition_by = "day"',
    )  # fmt: skip
    assert values(SqlCatalog("default", uri=uri).load_table("shop.x").scan().to_arrow()) == MICROS


def test_times_are_kept_in_lines_and_shown(broker: KafkaDevBroker, tmp_path: Path) -> None:
    land(broker, tmp_path, 'type = "jsonl"')
    (lines,) = (tmp_path / "data").glob("*.jsonl")
    for form in ("jsonl", "pretty"):
        shown = shared().run("tail", broker.url, "orders", "--from", "earliest", "--until-end", "--format", form)
        for text in (shown.stdout, lines.read_text()):
            assert "+055840-11-08T22:13:20.000000Z" in text, text
            assert "1969-12-31T23:59:59.000000Z" in text


def test_a_time_that_does_not_fit_is_told(broker: KafkaDevBroker, tmp_path: Path) -> None:
    said = land(broker, tmp_path, 'type = "parquet"', topic="unfit")
    assert said.count("do not fit into 64 bits of microseconds") == 1
    found = ds.dataset(tmp_path / "data", format="parquet").to_table()
    assert values(found) == {"huge": ((1 << 63) - 1) // 1000 * 1000}
    shown = shared().run("tail", broker.url, "unfit", "--from", "earliest", "--until-end")
    assert "1 times do not fit" in shown.stderr
