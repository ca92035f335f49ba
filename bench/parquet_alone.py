"""The rows of a dataset, in memory, into one Parquet file with our encoder's settings by pyarrow; or its pages by the
codec alone.

    python -m bench.parquet_alone SYSTEM DATASET pyarrow|codec

Run by ``to_parquet``, ``tank`` and ``tubemq`` as a child process; prints one JSON line.
"""

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from zstandard import ZstdCompressor

from fastwire.systems import row_of
from fastwire_daemon.encoders.base import EncoderOptions, parse_compression
from fastwire_daemon.encoders.parquet import ParquetEncoder

from .pyarrow_writer import writer_settings

ROW_GROUP = 131_072
PAGE = 1 << 20
MOST_ROWS = 300_000
ROUNDS = 10


def first_rows(folder: Path) -> pa.Table:
    """Some row groups, read to the end before anything is measured: a dataset's ``head`` goes on in the background."""
    groups: list[pa.Table] = []
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            if sum(each.num_rows for each in groups) < MOST_ROWS:
                groups.append(file.read_row_group(group, use_threads=False))
    return pa.concat_tables(groups).slice(0, MOST_ROWS)


def by_pyarrow(system: str, table: pa.Table) -> Callable[[], int]:
    """Return what writes the rows, and returns the size of the file."""
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):  # the daemon encodes them from dictionaries
            table = table.set_column(at, field.name, table[field.name].dictionary_encode())
    table = table.combine_chunks()
    options = EncoderOptions(
        compression=parse_compression("zstd:1", ParquetEncoder.compressions),
        columns=row_of(system).columns,
        row_group_rows=ROW_GROUP,
    )
    settings = writer_settings(table.schema, options)

    def write() -> int:
        file = io.BytesIO()
        with pq.ParquetWriter(pa.PythonFile(file, mode="w"), table.schema, **settings) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP)
        return file.tell()

    return write


def by_codec(table: pa.Table) -> Callable[[], int]:
    """Return what compresses the column of values, as it lies in pages."""
    cells = table["value"].to_pylist()
    plain = b"".join(len(cell).to_bytes(4, "little") + cell for cell in cells)
    pages = [plain[at : at + PAGE] for at in range(0, len(plain), PAGE)]
    compressor = ZstdCompressor(level=1)
    return lambda: sum(len(compressor.compress(page)) for page in pages)


def main() -> None:
    """Read, write, tell what writing took."""
    system, dataset, who = sys.argv[1:]
    table = first_rows(Path(dataset))
    write = by_pyarrow(system, table) if who == "pyarrow" else by_codec(table)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(ROUNDS):  # the mean of them, as what it is compared with is a mean
        size = write()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rows = table.num_rows
    told = {
        "rows": rows,
        "cpu_us_per_row": cpu / rows / ROUNDS * 1e6,
        "rows_per_s": round(rows * ROUNDS / wall),
        "file_bytes": size,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
