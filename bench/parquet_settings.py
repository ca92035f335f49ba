"""CPU and size of Parquet files, setting by setting, beside pyarrow's own defaults for the same rows.

Rows are those of a Pulsar topic as a sink gets them: values of 100 bytes, half of them random hex, keys, four
partitions, batches of 1,000, chunks of 16,000 rows. Settings take turns and the best round of each counts, so that
what else the machine does falls out.

    python -m bench.parquet_settings [--json] [--rounds N]
"""

import io
import json
import sys
from collections.abc import Callable
from functools import partial
from time import process_time_ns
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from zstandard import ZstdCompressor

from fastwire.pulsar.columns import ROW
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.base import Encoder, EncoderOptions, parse_compression
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder

from .encoded import ENTRIES, ROWS, JsonFeed
from .pyarrow_writer import writer_settings

CHUNKS = 16
ROW_GROUP = 131_072
PAGE = 1 << 20


def options(encoder: type[Encoder], compression: str) -> EncoderOptions:
    """Those of a sink with memory enough."""
    chosen = parse_compression(compression, encoder.compressions)
    return EncoderOptions(compression=chosen, columns=ROW.columns, row_group_rows=ROW_GROUP)


def encode(encoder: type[Encoder], compression: str, batches: list[pa.RecordBatch]) -> int:
    """Our encoder; returns the size of the file."""
    file = io.BytesIO()
    writer = encoder(file, batches[0].schema, options(encoder, compression))
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return file.tell()


def write(settings: dict[str, Any], batches: list[pa.RecordBatch]) -> int:
    """Pyarrow alone, a row group at a time."""
    file = io.BytesIO()
    with pq.ParquetWriter(file, batches[0].schema, **settings) as writer:
        for first in range(0, len(batches), 8):
            writer.write_table(pa.Table.from_batches(batches[first : first + 8]).unify_dictionaries(), ROW_GROUP * 2)
    return file.tell()


def values_of(batches: list[pa.RecordBatch]) -> list[bytes]:
    """The column of values as the pages of 1 MiB that a Parquet file has of it."""
    values = (value for batch in batches for value in batch["value"].to_pylist())
    plain = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    return [plain[at : at + PAGE] for at in range(0, len(plain), PAGE)]


def compress(pages: list[bytes]) -> int:
    """The codec alone; returns the size of what it makes."""
    compressor = ZstdCompressor(level=1)
    return sum(len(compressor.compress(page)) for page in pages)


def cases(batches: list[pa.RecordBatch]) -> dict[str, Callable[[], int]]:
    """Return the settings to compare, by name."""
    zstd = {"compression": "zstd", "compression_level": 1}
    strings = ["topic", "producer"]
    constant = [column.name for column in ROW.columns if column.role == "constant"]
    counters = {column.name: "DELTA_BINARY_PACKED" for column in ROW.columns if column.role == "counter"}
    steps: dict[str, dict[str, Any]] = {
        "pyarrow: its defaults, zstd:1": zstd,
        "pyarrow: no dictionaries": zstd | {"use_dictionary": False},
        "pyarrow: dictionaries of topic, producer": zstd | {"use_dictionary": strings},
        "pyarrow: and of all that repeats": zstd | {"use_dictionary": constant},
        "pyarrow: and deltas for counters": zstd | {"use_dictionary": constant, "column_encoding": counters},
    }
    ours = writer_settings(batches[0].schema, options(ParquetEncoder, "zstd:1"))
    more: dict[str, dict[str, Any]] = {
        "data pages 2.0": {"data_page_version": "2.0"},
        "data pages of 256 KiB": {"data_page_size": 256 << 10},
        "write batches of 8,192": {"write_batch_size": 8_192},
        "a page index": {"write_page_index": True},
        "checksums of pages": {"write_page_checksum": True},
    }
    for name, settings in more.items():
        steps[f"pyarrow: our settings and {name}"] = ours | settings
    steps["pyarrow: our settings"] = ours
    made: dict[str, Callable[[], int]] = {name: partial(write, settings, batches) for name, settings in steps.items()}
    made["codec alone: the values, zstd:1"] = partial(compress, values_of(batches))
    encoders: tuple[type[Encoder], ...] = (ParquetEncoder, ArrowEncoder, JsonlEncoder)
    for encoder in encoders:
        for codec in encoder.compressions:
            text = "gzip:1" if codec == "gzip" else codec
            made[f"ours: {encoder.extension} {text}"] = partial(encode, encoder, text, batches)
    return made


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    feed = JsonFeed(partitions=4, rows=ROWS)
    batches = [pa.record_batch(feed.chunk(ENTRIES)) for _ in range(CHUNKS)]
    rows = sum(batch.num_rows for batch in batches)
    best: dict[str, int] = {}
    size: dict[str, int] = {}
    for _ in range(rounds):
        for name, run in cases(batches).items():
            start = process_time_ns()
            size[name] = run()
            best[name] = min(process_time_ns() - start, best.get(name, 1 << 62))
    for name in best:
        row = {"case": name, "ns_per_row": round(best[name] / rows, 1), "bytes_per_row": round(size[name] / rows, 1)}
        if "--json" in sys.argv:
            print(json.dumps(row))
        else:
            print(f"{name:45} {row['ns_per_row']:8} ns a row {row['bytes_per_row']:8} B a row")


if __name__ == "__main__":
    main()
