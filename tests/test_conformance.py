"""The built-in sinks and encoders keep the promises that plug-ins are held to; and the suite notices who does not."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import zstandard

from fastwire.columns.schema import column_names
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.base import Encoder
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.base import Sink
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.discard import DiscardSink
from fastwire_daemon.sinks.stdout import StdoutSink
from fastwire_daemon.testing import EncoderConformance, SinkConformance

# A figure of a loaded machine is no failure.
pytestmark = pytest.mark.filterwarnings("default::fastwire_daemon.testing.LongLockWarning")


def values_of_lines(data: bytes) -> list[bytes]:
    return [json.loads(line)["value"].encode() for line in data.splitlines()]


class TestParquetEncoder(EncoderConformance):
    encoder = ParquetEncoder

    def read_values(self, data: bytes, compression: str) -> list[bytes]:
        values: list[bytes] = pq.read_table(io.BytesIO(data))["value"].to_pylist()
        return values


class TestArrowEncoder(EncoderConformance):
    encoder = ArrowEncoder

    def read_values(self, data: bytes, compression: str) -> list[bytes]:
        with pa.ipc.open_file(data) as file:
            values: list[bytes] = file.read_all()["value"].to_pylist()
        return values


class TestJsonlEncoder(EncoderConformance):
    encoder = JsonlEncoder

    def read_values(self, data: bytes, compression: str) -> list[bytes]:
        if compression == "gzip":
            data = gzip.decompress(data)
        elif compression == "zstd":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return values_of_lines(data)


class BuiltIn(SinkConformance):
    @pytest.mark.crash
    def test_a_kill_at_any_time_loses_nothing(self, tmp_path: Path) -> None:
        super().test_a_kill_at_any_time_loses_nothing(tmp_path)


class DatasetConformance(BuiltIn):
    encoder: ClassVar[type[Encoder]]
    writers: ClassVar[int] = 1
    split: ClassVar[str] = "none"
    partition_by: ClassVar[str] = "none"
    kills = 3

    def make_sink(self, path: Path) -> Sink:
        options = DatasetOptions(
            system="pulsar",
            cluster="feed",
            columns=column_names("pulsar"),
            extension=self.encoder.extension,
            split=self.split,
            partition_by=self.partition_by,
        )
        return DatasetSink(path, options, self.encoder, writers=self.writers)

    def read_file(self, path: Path) -> list[bytes]:
        raise NotImplementedError

    def read_values(self, path: Path) -> list[bytes]:
        files = [file for file in path.rglob(f"*.{self.encoder.extension}") if "_fastwire" not in file.parts]
        return [value for file in files for value in self.read_file(file)]


class TestParquetDataset(DatasetConformance):
    encoder = ParquetEncoder
    kills = 8

    def read_file(self, path: Path) -> list[bytes]:
        values: list[bytes] = pq.read_table(path, partitioning=None)["value"].to_pylist()
        return values


class TestSplitDatasetWithTwoWriters(TestParquetDataset):
    writers = 2
    kills = 3
    split = "partition"
    partition_by = "hour"


class TestArrowDataset(DatasetConformance):
    encoder = ArrowEncoder

    def read_file(self, path: Path) -> list[bytes]:
        with pa.ipc.open_file(path) as file:
            values: list[bytes] = file.read_all()["value"].to_pylist()
        return values


class TestJsonlDataset(DatasetConformance):
    encoder = JsonlEncoder
    writers = 2

    def read_file(self, path: Path) -> list[bytes]:
        return values_of_lines(path.read_bytes())


class TestStdout(BuiltIn):
    exactly_once = False
    kills = 2

    def make_sink(self, path: Path) -> Sink:
        return StdoutSink(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))

    def read_values(self, path: Path) -> list[bytes]:
        # A killed process may leave half a line, and the next one goes on behind it.
        values = []
        for line in path.read_bytes().splitlines():
            try:
                values += values_of_lines(line)
            except ValueError:
                continue
        return values


class TestDiscard(BuiltIn):
    exactly_once = False
    kills = 0

    def make_sink(self, path: Path) -> Sink:
        return DiscardSink()
