"""Folder levels: what readers of Hive style folders demand, and nothing that could leave the dataset."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fastwire.decode.evolution import Column
from fastwire_daemon.dataset.description import DatasetOptions, Description, read_description
from fastwire_daemon.dataset.level import check_directory, hive_directory, level_directory, level_keys, time_level
from fastwire_daemon.dataset.tableschema import partition_values
from fastwire_daemon.runtime.errors import DatasetMismatchError

TOPIC = "persistent://public/default/orders~ü %41=x"


def microseconds(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("split", "partition_by", "expected"),
    [
        ("none", "none", ""),
        ("topic", "none", "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders%7Eü%20%2541%3Dx/"),
        ("partition", "none", "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders%7Eü%20%2541%3Dx/p=1%3A3/"),
        ("none", "day", "dt=2026-01-02/"),
        ("none", "hour", "dt=2026-01-02/hh=03/"),
    ],
)
def test_levels(split: str, partition_by: str, expected: str) -> None:
    time = microseconds(2026, 1, 2, 3, 59, 59)
    directory = level_directory(split, partition_by, topic=TOPIC, partition="1:3", timestamp_us=time)
    assert directory == expected
    keys = level_keys(split, partition_by)
    check_directory(directory, keys)
    assert len(keys) == directory.count("/")


def _name(topic: str) -> str:
    directory = level_directory("topic", "none", topic=topic)
    check_directory(directory, ("t",))
    assert directory.count("/") == 1
    return directory.rstrip("/")


PREFIX = "persistent://public/default/"


@pytest.mark.parametrize("filler", ["n", "ü", "€", "😀", "~", "/", "ab😀"])
def test_a_topic_of_any_length_has_a_folder_of_its_own(filler: str, tmp_path: Path) -> None:
    names: dict[str, str] = {}
    for length in range(1, 300):
        topic = PREFIX + filler * length
        name = _name(topic)
        assert names.setdefault(name, topic) == topic
        (tmp_path / name).mkdir()  # the file system takes it
        value = unquote(name.removeprefix("t="), errors="strict")
        if value != topic:
            prefix, digest = value[:-33], value[-32:]
            assert value[-33] == "-" and digest == hashlib.sha256(topic.encode()).hexdigest()[:32]
            encoded = len(f"t={quote(value, safe='').replace('~', '%7E')}")  # the size that decides, since ever
            assert topic.startswith(prefix) and 255 - 12 < encoded <= 255, "as much as there is room for"
            # A topic that is called like that has a folder of its own, too.
            assert _name(value) != name
    assert _name(PREFIX + "n" * 215) == "t=" + quote(PREFIX, safe="") + "n" * 215, "255 bytes"
    assert _name(PREFIX + "n" * 216).startswith("t=" + quote(PREFIX, safe="") + "n" * 182 + "-")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Zürich", "Zürich"),  # Spark and Hive would read the bytes %C3 and %BC as two letters
        ("東京", "東京"),
        ("New York", "New%20York"),
        ("a/b=c%", "a%2Fb%3Dc%25"),
        ("".join(map(chr, range(64))), None),
        ("".join(map(chr, range(64, 128))), None),
        ("", ""),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_values_have_names_of_their_own(value: str | None, name: str | None) -> None:
    directory = hive_directory([("c", value)])
    if name is not None:
        assert directory == f"c={name}/"
    column = Column("c", "u", True)
    assert partition_values(directory, [column]) == {"c": value}
    in_table = hive_directory([("c", value)], table=True)
    assert in_table.isascii() and partition_values(in_table, [column]) == {"c": value}


def test_a_short_topic_that_ends_with_hex_digits_keeps_its_name() -> None:
    assert _name(f"orders-{'0' * 32}") == f"t=orders-{'0' * 32}"


def test_a_partition_column_is_not_shortened_because_files_do_not_hold_it() -> None:
    assert len(hive_directory([("country", "x" * 247)])) == 256
    with pytest.raises(
        ValueError, match=r"a value of country is too long .* may have 255 bytes and would have 256: xxx"
    ):
        hive_directory([("date", "2026"), ("country", "x" * 248)])


@pytest.mark.parametrize("partition", ["-1", "0", "12"])
def test_partitions_keep_their_text(partition: str) -> None:
    assert level_directory("partition", "none", topic="a", partition=partition) == f"t=a/p={partition}/"


@pytest.mark.parametrize(
    ("timestamp_us", "day"),
    [
        (-1, "1969-12-31/hh=23"),
        (0, "1970-01-01/hh=00"),
        (microseconds(9999, 12, 31, 23), "9999-12-31/hh=23"),
        ((1 << 63) - 1, "__HIVE_DEFAULT_PARTITION__/hh=__HIVE_DEFAULT_PARTITION__"),
        (-(1 << 63), "__HIVE_DEFAULT_PARTITION__/hh=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_times_that_producers_make_up(timestamp_us: int, day: str) -> None:
    assert level_directory("none", "hour", timestamp_us=timestamp_us) == f"dt={day}/"


@pytest.mark.parametrize("directory", ["", "t=a", "p=a/", "t=a/p=1/", "/t=a/", "t=a//", "../t=a/", "x/", "t=a\0/"])
def test_other_folders_are_refused(directory: str) -> None:
    with pytest.raises(ValueError, match="does not have the levels t of this dataset"):
        check_directory(directory, ("t",))


def test_readers_get_the_names_back(tmp_path: Path) -> None:
    time = microseconds(2026, 1, 2, 3)
    folder = tmp_path / level_directory("partition", "hour", topic=TOPIC, partition="4", timestamp_us=time)
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"value": [1, 2]}), folder / "000000000001-0.parquet")
    expected = {"t": TOPIC, "p": "4", "dt": "2026-01-02", "hh": "3"}

    def plain(row: dict[str, object]) -> dict[str, str]:
        return {key: str(int(row[key]) if key == "hh" else row[key]) for key in expected}  # type: ignore[call-overload]

    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert plain(table.to_pylist()[0]) == expected
    assert plain(pl.read_parquet(tmp_path / "**/*.parquet", hive_partitioning=True).to_dicts()[0]) == expected
    relation = duckdb.sql(f"select * from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning=true)")
    assert relation is not None
    rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    assert plain(rows[0]) == expected


def test_the_time_of_a_column() -> None:
    assert time_level("day(seen)") == ("day", "seen")
    assert time_level("hour") == ("hour", "")
    assert level_keys("topic", "hour(seen_at)") == ("t", "dt", "hh")
    for text in ("day()", "day(a b)", "none(seen)", "week(seen)", "day(seen"):
        with pytest.raises(ValueError, match="partition_by is"):
            time_level(text)


def test_options_name_what_they_know() -> None:
    fixed = {"system": "pulsar", "cluster": "c", "columns": ("value",)}
    with pytest.raises(ValueError, match="split is 'topics'; it can be none, topic, partition"):
        DatasetOptions(**fixed, split="topics")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="partition_by is 'week'; it can be none, day, hour"):
        DatasetOptions(**fixed, partition_by="week")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'\.parquet' cannot end a file's name"):
        DatasetOptions(**fixed, extension=".parquet")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'a=b' cannot name a folder level"):
        DatasetOptions(**fixed, levels=("a=b",))  # type: ignore[arg-type]


def test_levels_of_a_table() -> None:
    fixed = {"system": "spark", "cluster": "c", "columns": ("value",)}
    options = DatasetOptions(**fixed, levels=("date", "country"))  # type: ignore[arg-type]
    assert options.level_keys == ("date", "country")
    directory = hive_directory([("date", "2026-01-02"), ("country", None)])
    assert directory == "date=2026-01-02/country=__HIVE_DEFAULT_PARTITION__/"
    check_directory(directory, options.level_keys)
    described = Description.of(options, id="1", created="now")
    assert read_description(described.encode(), "/data") == described
    with pytest.raises(DatasetMismatchError, match="partition columns of the dataset: date, country; configured: none"):
        described.check(DatasetOptions(**fixed), "/data")  # type: ignore[arg-type]
