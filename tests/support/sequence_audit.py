"""Sequence audit: numbered records that were produced against what the files of a dataset hold.

A numbered record's value begins with its number in nine digits, so that any reader can find it; numbers run from 0
over a whole test, whatever the topic or partition.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DIGITS = 9

# Ledger, entry, index in the batch; of Kafka the offset alone.
RowPosition = tuple[int, ...]
NOWHERE: RowPosition = (-1, -1, -1)


def numbered(number: int, size: int = 100) -> bytes:
    """The value of a numbered record, padded to ``size`` bytes."""
    return f"{number:0{DIGITS}d}".encode().ljust(size, b".")


def numbers_of(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The numbers of a column of values."""
    heads = pc.binary_slice(values.cast(pa.binary()) if pa.types.is_string(values.type) else values, 0, DIGITS)
    return pc.cast(pc.cast(heads, pa.string()), pa.int64())


def visible_files(path: Path) -> list[Path]:
    """Return the files of a plain reader: data files outside the folder of the log, in log order."""
    found = [file for file in path.rglob("*") if file.suffix in (".parquet", ".arrow", ".jsonl")]
    visible = (file for file in found if "_fastwire" not in file.relative_to(path).parts)
    return sorted(visible, key=lambda file: (file.name, file))


def assert_each_once(path: Path, produced: int | Iterable[int]) -> None:
    """The files hold every produced number once and nothing else; a failure says which are missing or twice."""
    wanted = set(range(produced)) if isinstance(produced, int) else set(produced)
    landed = landed_numbers(path)
    missing = sorted(wanted - landed.keys())
    strange = sorted(landed.keys() - wanted)
    twice = sorted(number for number, times in landed.items() if times > 1)
    assert not (missing or strange or twice), (
        f"of {len(wanted)} records {len(missing)} are missing ({_first(missing)}), {len(twice)} landed more than once "
        f"({_first(twice)}), {len(strange)} were never produced ({_first(strange)})"
    )


def landed_numbers(path: Path) -> Counter[int]:
    """Count each number in the files."""
    landed: Counter[int] = Counter()
    for file in visible_files(path):
        landed.update(_numbers_in(file))
    return landed


def assert_in_order(path: Path) -> None:
    """Rows of a partition stand in broker order within each file, and from one log entry to the next.

    The files of one log entry may interleave: several writers take chunks in turn. For ordered subscriptions only.
    """
    landed: dict[tuple[Any, ...], RowPosition] = {}
    for _, files in groupby(visible_files(path), key=lambda file: file.name.partition("-")[0]):
        furthest = dict(landed)
        for file in files:
            last = dict(landed)
            for log, here in _places_in(file):
                before = last.get(log, NOWHERE)
                assert here > before, f"{file.name}: {here} of partition {log[1]} stands behind {before}"
                last[log] = here
            furthest = {log: max(last.get(log, NOWHERE), furthest.get(log, NOWHERE)) for log in last | furthest}
        landed = furthest


def _places_in(file: Path) -> Iterator[tuple[tuple[Any, ...], RowPosition]]:
    with pq.ParquetFile(file) as data:
        names = data.schema_arrow.names
        wanted = [name for name in ("ledger", "offset", "batchIndex", "row") if name in names]
        table = data.read(["topic", "partition", *wanted])
    for topic, partition, *place in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        yield (topic, partition), tuple(place)


def _numbers_in(file: Path) -> list[int]:
    if file.suffix == ".jsonl":
        lines = file.read_text().splitlines()
        return [int(json.loads(line)["value"][:DIGITS]) for line in lines]
    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as source:
            values = pa.ipc.open_file(source).read_all().column("value")
            found: list[int] = numbers_of(values).to_pylist()
            return found
    values = pq.read_table(file, columns=["value"], partitioning=None).column("value")
    found = numbers_of(values).to_pylist()
    return found


def _first(numbers: list[int]) -> str:
    return "none" if not numbers else ", ".join(map(str, numbers[:5])) + (" …" if len(numbers) > 5 else "")
