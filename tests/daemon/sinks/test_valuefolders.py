"""Folders of a dataset by the values of decoded columns."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fastwire.columns.chunk import Chunk
from fastwire_daemon.dataset.proof.verify import verify
from tests.support.avro import encode
from tests.support.decoded_dataset import GivenFeed, Opened, dead_letters, decoder, files, of_registry, orders, rows
from tests.support.schema_registry import SchemaRegistryServer

PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "country", "type": ["null", "string"]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "number", "type": "int"},
    ],
}
DAY_MS = 86_400_000


class Places(GivenFeed):
    """A feed of places whose countries and days come in turn, and the numbers of those of each country and day."""

    def __init__(self, *countries: str | None, days: Sequence[int] = (0,)) -> None:
        super().__init__()
        self._countries, self._days = countries, days
        self.numbers: dict[tuple[str | None, int], list[int]] = {}
        self._number = 0

    def places(self, count: int) -> Chunk:
        """Return the next places."""
        values = []
        for number in range(self._number, self._number + count):
            country, day = self._countries[number % len(self._countries)], self._days[number % len(self._days)]
            self.numbers.setdefault((country, day), []).append(number)
            values.append(encode(PLACE, {"country": country, "seen": day * DAY_MS, "number": number}))
        self._number += count
        return self.chunk_of(values)


@pytest.mark.parametrize("split", ["none", "partition"])
def test_columns_of_values_become_folders(opened: Opened, tmp_path: Path, split: str) -> None:
    feed = Places("DE", "FR", None, "", "a/b=c", "DE")
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",), split=split)
    for _ in range(4):
        sink.write(feed.places(60))
    sink.commit()
    found: dict[str, list[int]] = {}
    for file in files(tmp_path / "data"):
        table = pq.read_table(file, partitioning=None)
        assert table.schema.names == ["seen", "number"]
        found.setdefault(file.parent.name, []).extend(table["number"].to_pylist())
    numbers = {country: those for (country, _), those in feed.numbers.items()}
    assert {name: sorted(those) for name, those in found.items()} == {
        "country=DE": numbers["DE"],
        "country=FR": numbers["FR"],
        "country=a%2Fb%3Dc": numbers["a/b=c"],
        "country=__HIVE_DEFAULT_PARTITION__": sorted(numbers[None] + numbers[""]),
    }
    assert verify(tmp_path / "data", deep=True).problems == []
    read = pq.read_table(tmp_path / "data", filters=[("country", "==", "FR")])
    assert sorted(read["number"].to_pylist()) == numbers["FR"]


def test_the_day_of_a_column_becomes_a_folder(opened: Opened, tmp_path: Path) -> None:
    feed = Places("x", days=(0, 1, 19_000, 10_000_000))  # the last one is beyond calendars
    sink = opened(decoder(("*",), PLACE, extra=("seen",)), partition_by="day(seen)")
    sink.write(feed.places(16))
    sink.commit()
    days = {
        "dt=1970-01-01": 0,
        "dt=1970-01-02": 1,
        "dt=2022-01-08": 19_000,
        "dt=__HIVE_DEFAULT_PARTITION__": 10_000_000,
    }
    assert {
        file.parent.name: pq.read_table(file, partitioning=None)["number"].to_pylist()
        for file in files(tmp_path / "data")
    } == {name: feed.numbers["x", day] for name, day in days.items()}


def test_a_value_that_is_too_long_for_a_folder_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    fits = "x" * (255 - len("country="))
    feed = Places("DE", fits, fits + "x", "/" * 100)
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",))
    sink.write(feed.places(16))
    sink.commit()
    assert sorted(row["number"] for row in rows(tmp_path / "data")) == sorted(
        feed.numbers["DE", 0] + feed.numbers[fits, 0]
    )
    dead = dead_letters(tmp_path / "data")
    assert {letter["reason"] for letter in dead} == {"TooLongForAFolder at byte 0 of the value, in country"}
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.filtered, len(dead)) == ([], 8, 8, 8)


def test_each_of_many_folders_has_its_rows(opened: Opened, tmp_path: Path) -> None:
    feed = Places(*(f"c{number}" for number in range(1_000)))
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",))
    for _ in range(30):
        sink.write(feed.places(100))
    sink.commit()
    for file in files(tmp_path / "data"):
        country = file.parent.name.removeprefix("country=")
        assert pq.read_table(file, partitioning=None)["number"].to_pylist() == feed.numbers[country, 0]
    assert len(files(tmp_path / "data")) == 1_000


def test_a_column_that_names_folders_is_no_column_of_the_files(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    """Nor is it one that a schema of the registry adds, which evolve = "strict" would refuse."""
    made = of_registry(registry, extra=("country",), levels=("country",), evolve="strict")
    assert [column.name for column in made.types] == ["id", "tag"]
    sink = opened(made, levels=("country",))
    sink.write(GivenFeed().chunk_of(orders(3)))
    sink.commit()
    (file,) = files(tmp_path / "data")
    assert file.parent.name == "country=DE"
    assert pq.read_schema(file).names == ["id", "tag"]
