"""The built-in sinks and encoders keep the promises that plug-ins are held to; and the suite notices who does not."""

import contextlib
import gzip
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import zstandard

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.pulsar.columns import ROW
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.base import Encoder, EncoderOptions, WritableFile
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.base import Sink
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.discard import DiscardSink
from fastwire_daemon.sinks.stdout import StdoutSink
from fastwire_daemon.testing import EncoderConformance, LongLockWarning, SinkConformance

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
    kills = 1  # the crash tests kill at each step

    def make_sink(self, path: Path) -> Sink:
        options = DatasetOptions(
            system="pulsar",
            cluster="feed",
            columns=ROW.names,
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

    def read_file(self, path: Path) -> list[bytes]:
        values: list[bytes] = pq.read_table(path, partitioning=None)["value"].to_pylist()
        return values


class TestSplitDatasetWithTwoWriters(TestParquetDataset):
    writers = 2
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


# Plug-ins that do not keep their promises: each must fail the test that is about it, and no earlier one hides it.


class ForgetfulSink(DiscardSink):
    """Says that rows are durable, and has forgotten them after a restart."""


class HoardingSink(DiscardSink):
    """Keeps the memory of all chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[pa.RecordBatch] = []

    def write(self, chunk: Chunk) -> None:
        self.batches.append(pa.record_batch(chunk))
        super().write(chunk)


class ChangingSink(DiscardSink):
    """Gives its own Coverage away instead of a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.coverage = Coverage()

    def write(self, chunk: Chunk) -> None:
        for span in chunk.spans():
            self.coverage.add(span)

    def commit(self) -> Coverage:
        return self.coverage


class LateSink(DiscardSink):
    """Holds the last chunk's progress back."""

    def commit(self) -> Coverage:
        self.landed, landed = super().commit(), getattr(self, "landed", Coverage())
        return landed


class StubbornSink(DiscardSink):
    """Holds the interpreter lock."""

    def write(self, chunk: Chunk) -> None:
        pa.record_batch(chunk).to_pylist()
        super().write(chunk)


class GreedyEncoder(JsonlEncoder):
    """Closes a file that is not its own."""

    def finish(self) -> None:
        super().finish()
        self._outlet._file.close()  # type: ignore[union-attr]


class LossyEncoder(JsonlEncoder):
    def write(self, batch: pa.RecordBatch) -> None:
        super().write(batch.slice(1))
        self.rows += 1


class SilentEncoder(JsonlEncoder):
    """Swallows what goes wrong."""

    def write(self, batch: pa.RecordBatch) -> None:
        with contextlib.suppress(OSError):
            super().write(batch)


class ModestEncoder(ParquetEncoder):
    """Gathers without end and does not say so."""

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        super().__init__(file, schema, replace(options, row_group_rows=1 << 30, row_group_bytes=1 << 30))


def of_sink(sink: type[Sink], **attributes: Any) -> SinkConformance:
    attributes["make_sink"] = lambda self, path: sink()
    suite: SinkConformance = type("OfSink", (SinkConformance,), attributes)()
    return suite


def of_encoder(encoder: type[Encoder]) -> TestJsonlEncoder:
    suite: TestJsonlEncoder = type("OfEncoder", (TestJsonlEncoder,), {"encoder": encoder})()
    return suite


@pytest.mark.parametrize(
    ("sink", "test"),
    [
        (ForgetfulSink, "test_what_is_durable_is_known_after_a_restart"),
        (ForgetfulSink, "test_what_another_writer_landed_is_not_landed_twice"),
        (HoardingSink, "test_memory_goes_back"),
        (ChangingSink, "test_a_returned_coverage_does_not_change_later"),
        (LateSink, "test_commit_returns_all_that_was_written"),
        (LateSink, "test_progress_without_rows_is_progress"),
        (LateSink, "test_entries_that_cannot_be_decoded_are_taken"),
    ],
)
def test_the_suite_notices_a_sink_that_breaks_a_promise(sink: type[Sink], test: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(of_sink(sink), test)(tmp_path)


@pytest.mark.parametrize(
    ("encoder", "test"),
    [
        (GreedyEncoder, "test_the_file_is_left_open"),
        (LossyEncoder, "test_every_row_comes_out_in_order"),
        (LossyEncoder, "test_a_file_of_few_columns"),
        (LossyEncoder, "test_row_groups_of_any_size"),
        (ModestEncoder, "test_what_it_gathers_is_bounded_and_said"),
    ],
)
def test_the_suite_notices_an_encoder_that_breaks_a_promise(encoder: type[Encoder], test: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        getattr(of_encoder(encoder), test)()


def test_the_suite_notices_an_encoder_that_swallows_failures() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        of_encoder(SilentEncoder).test_a_failed_write_is_raised_and_the_file_left_alone(0)


@pytest.mark.crash
def test_the_suite_notices_rows_that_a_kill_took(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Forgetting().test_a_kill_at_any_time_loses_nothing(tmp_path)


class Forgetting(SinkConformance):
    """Says that it is exactly once, and is not."""

    def make_sink(self, path: Path) -> Sink:
        return ForgetfulSink()


def test_the_suite_warns_of_a_lock_that_is_held_long(tmp_path: Path) -> None:
    with pytest.warns(LongLockWarning, match="write and commit holds the interpreter lock for"):
        of_sink(StubbornSink).test_calls_do_not_hold_the_interpreter_lock(tmp_path)


def test_tests_that_do_not_apply_are_skipped_with_a_reason(tmp_path: Path) -> None:
    modest = of_sink(DiscardSink, exactly_once=False)
    with pytest.raises(pytest.skip.Exception, match="does not remember what is durable"):
        modest.test_what_is_durable_is_known_after_a_restart(tmp_path)
    with pytest.raises(pytest.skip.Exception, match="not made for several writers"):
        of_sink(DiscardSink, several_writers=False).test_what_another_writer_landed_is_not_landed_twice(tmp_path)
    modest.test_commit_returns_all_that_was_written(tmp_path)
