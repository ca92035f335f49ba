"""Conformance tests of an encoder."""

import functools
import gc
import io
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from fastwire.pulsar.columns import ROW

from ..encoders.base import Encoder, EncoderOptions, parse_compression
from .feed import Feed
from .lock import warn_if_long

_ENTRIES, _ROWS = 8, 100


class _FailingFile(io.RawIOBase):
    """A file that raises at the first write beyond ``good`` bytes, and counts the failed writes."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.good = good
        self.failures = 0

    def write(self, data: Any, /) -> int:
        size = len(data)
        self.good -= size
        if self.good < 0:
            self.failures += 1
            raise OSError(5, "this disk fails on purpose")
        return size


class EncoderConformance:
    """Inherit, set ``encoder``, define :meth:`read_values` if you can, and run pytest."""

    encoder: ClassVar[type[Encoder]]

    def read_values(self, data: bytes, compression: str) -> list[bytes]:
        """Return the column ``value`` of a file with the content ``data``, in order. Optional; row tests need it."""
        pytest.skip("read_values is not defined")

    # --- the contract

    def test_names_what_it_writes(self) -> None:
        """The encoder has an extension and a list of compressions."""
        assert self.encoder.extension
        assert not set(self.encoder.extension) & set("/.")
        assert self.encoder.compressions
        assert all(not more or more.startswith(".") for more in self.encoder.compressions.values())

    def test_every_row_comes_out_in_order(self) -> None:
        """A file has the rows of all batches in order, under every compression."""
        feed = Feed(rows=_ROWS)
        batches = [pa.record_batch(feed.chunk(_ENTRIES)) for _ in range(3)]
        # Dictionaries of other topics and producers, a slice, and a batch of nothing.
        batches.append(pa.record_batch(Feed(topic="another", partitions=3, rows=_ROWS).chunk(_ENTRIES)).slice(17))
        batches.append(batches[0].slice(0, 0))
        expected = [value for batch in batches for value in batch.column("value").to_pylist()]
        for compression in self.encoder.compressions:
            data = self._encoded(batches, compression)
            assert self.read_values(data, compression) == expected, compression

    def test_a_file_of_few_columns(self) -> None:
        """A file may have a single column."""
        batch = pa.record_batch(Feed(rows=_ROWS).chunk(_ENTRIES)).select(["value"])
        default = next(iter(self.encoder.compressions))
        assert self.read_values(self._encoded([batch], default), default) == batch.column("value").to_pylist()

    def test_row_groups_of_any_size(self) -> None:
        """The limits of row groups do not change the rows."""
        batch = pa.record_batch(Feed(rows=_ROWS).chunk(_ENTRIES))
        default = next(iter(self.encoder.compressions))
        for rows, size in ((1, 1 << 20), (250, 1 << 20), (1 << 20, 1)):
            data = self._encoded([batch] * 3, default, row_group_rows=rows, row_group_bytes=size)
            assert self.read_values(data, default) == batch.column("value").to_pylist() * 3

    def test_what_it_gathers_is_bounded_and_said(self) -> None:
        """Buffered bytes stay below the limit and ``pending_bytes`` reports them."""
        feed = Feed(rows=_ROWS)
        batch = pa.record_batch(feed.chunk(_ENTRIES))
        limit = 3 * batch.nbytes
        encoder = self._made(io.BytesIO(), batch.schema, row_group_bytes=limit)
        for number in range(20):
            encoder.write(batch)
            assert 0 <= encoder.pending_bytes <= limit + batch.nbytes
            assert encoder.rows == (number + 1) * batch.num_rows
        encoder.flush()
        assert encoder.pending_bytes == 0
        encoder.finish()

    def test_memory_goes_back_with_flush(self) -> None:
        """After ``flush`` the encoder holds no memory of chunks."""
        feed = Feed(rows=_ROWS)
        batch = pa.record_batch(feed.chunk(_ENTRIES))
        encoder = self._made(io.BytesIO(), batch.schema)
        encoder.write(batch)
        del batch
        for _ in range(3):
            encoder.write(pa.record_batch(feed.chunk(_ENTRIES)))
        encoder.flush()
        assert feed.held_bytes == 0
        encoder.finish()

    def test_the_file_is_left_open(self) -> None:
        """The encoder neither closes the file nor writes to it after ``finish``."""
        file = io.BytesIO()
        batch = pa.record_batch(Feed(rows=_ROWS).chunk(_ENTRIES))
        encoder = self._made(file, batch.schema)
        encoder.write(batch)
        encoder.finish()
        size = file.tell()
        del encoder
        gc.collect()
        assert not file.closed
        assert file.tell() == size > 0

    @pytest.mark.parametrize("good", [0, 100, 2_000])
    def test_a_failed_write_is_raised_and_the_file_left_alone(self, good: int) -> None:
        """A failed write raises, and no write follows it, not even in a finalizer."""
        file = _FailingFile(good)
        with pytest.raises(OSError, match="fails on purpose"):
            self._write_until_it_fails(file)
        gc.collect()
        assert file.failures == 1
        assert not file.closed

    def test_calls_do_not_hold_the_interpreter_lock(self) -> None:
        """No call holds the interpreter lock for long; warns only, because other load disturbs the measurement."""
        batch = pa.record_batch(Feed(partitions=1, rows=16_000, value_bytes=100).chunk(1))

        def prepare() -> Callable[[], object]:
            encoder = self._made(io.BytesIO(), batch.schema)
            return functools.partial(self._write_and_flush, encoder, batch)

        warn_if_long("write and flush", prepare)

    # --- parts of the tests

    def _options(self, compression: str | None, changes: dict[str, Any]) -> EncoderOptions:
        chosen = parse_compression(compression, self.encoder.compressions)
        return EncoderOptions(compression=chosen, columns=ROW.columns, **changes)

    def _made(self, file: Any, schema: pa.Schema, **changes: int) -> Encoder:
        return self.encoder(file, schema, self._options(None, changes))

    def _encoded(self, batches: list[pa.RecordBatch], compression: str, **changes: int) -> bytes:
        file = io.BytesIO()
        encoder = self.encoder(file, batches[0].schema, self._options(compression, changes))
        for batch in batches:
            encoder.write(batch)
        encoder.finish()
        assert encoder.rows == sum(batch.num_rows for batch in batches)
        assert encoder.pending_bytes == 0
        return file.getvalue()

    def _write_until_it_fails(self, file: Any) -> None:
        batch = pa.record_batch(Feed(rows=_ROWS).chunk(_ENTRIES))
        encoder = self._made(file, batch.schema)
        for _ in range(200):
            encoder.write(batch)
            encoder.flush()
        encoder.finish()

    @staticmethod
    def _write_and_flush(encoder: Encoder, batch: pa.RecordBatch) -> None:
        encoder.write(batch)
        encoder.flush()
