"""The Parquet encoder in memory, beside pyarrow's writer with the encodings that cost it least, and the codec alone.

    python -m bench.parquet [--json]

zstd:1, one row group. CPU of the process; the three take turns, and the best round of each counts. The codec has the
pages of the value column or, for typed columns, those of all of them.
"""

import io
from collections.abc import Callable, Sequence
from time import process_time_ns
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from zstandard import ZstdCompressor

from fastwire.pulsar.columns import ROW
from fastwire_daemon.encoders.base import EncoderOptions, parse_compression
from fastwire_daemon.encoders.parquet import ParquetEncoder

from .child import show
from .encoded import CASES, encode
from .pyarrow_writer import writer_settings

ROUNDS = 9
PAGE = 1 << 20


def pages_of(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    """The column of values as PLAIN, or the file without compression; in pages."""
    if "value" in batches[0].schema.names:
        cells = (value for batch in batches for value in batch["value"].to_pylist())
        plain = b"".join(len(cell).to_bytes(4, "little") + cell for cell in cells)
    else:
        file = io.BytesIO()
        encode(batches, "none", file.write)
        plain = file.getvalue()
    return [plain[at : at + PAGE] for at in range(0, len(plain), PAGE)]


def ways(batches: Sequence[pa.RecordBatch]) -> dict[str, Callable[[], int]]:
    """Return what is compared; each returns the size of what it makes."""
    options = EncoderOptions(compression=parse_compression("zstd:1", ParquetEncoder.compressions), columns=ROW.columns)
    settings = writer_settings(batches[0].schema, options)
    pages, compressor = pages_of(batches), ZstdCompressor(level=1)

    def ours() -> int:
        file = io.BytesIO()
        encode(batches, "zstd", file.write)
        return file.tell()

    def theirs() -> int:
        file = io.BytesIO()
        with pq.ParquetWriter(file, batches[0].schema, **settings) as writer:
            writer.write_table(pa.Table.from_batches(batches).unify_dictionaries(), 1 << 26)
        return file.tell()

    return {
        "fastwire": ours,
        "pyarrow": theirs,
        "codec alone": lambda: sum(len(compressor.compress(page)) for page in pages),
    }


def measured(name: str) -> list[dict[str, Any]]:
    """A row for each way, with its CPU as a part of ours."""
    batches = CASES[name]()
    rows = sum(batch.num_rows for batch in batches)
    best: dict[str, int] = {}
    size: dict[str, int] = {}
    made = ways(batches)
    for _ in range(ROUNDS):
        for who, run in made.items():
            began = process_time_ns()
            size[who] = run()
            best[who] = min(process_time_ns() - began, best.get(who, 1 << 62))
    return [
        {
            "bench": "parquet",
            "rows": name,
            "who": who,
            "cpu_us_per_message": round(best[who] / rows / 1000, 4),
            "ours_times": round(best["fastwire"] / best[who], 2),
            "file_bytes_per_message": round(size[who] / rows, 1),
        }
        for who in made
    ]


def main() -> None:
    """Measure and print."""
    show([row for name in CASES for row in measured(name)])


if __name__ == "__main__":
    main()
