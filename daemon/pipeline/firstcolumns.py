"""The columns of a new dataset where they are not configured: those of the first records, or of their schemas."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.decode.evolution import Column
from fastwire.errors import FastwireError
from fastwire.position import Log

from ..config import PipelineConfig, Start
from ..net.schemaregistry import RegistryAwayError, UnknownSchemaError
from ..runtime.errors import LogRefusedError, NoRecordYet, SinkFailedError
from ..runtime.logs import get_logger, on_errand
from ..sinks.base import FirstColumns
from ..sinks.recordrows import Runs, taken
from ..sinks.valuedecoder import MOST_SAMPLE_BYTES, MOST_SAMPLES, ValueDecoder
from ..systems.registry import reading

LIMIT_S = 20.0  # for the reading of the first records
LOOK_S = 0.2  # between two looks whether to stop
EARLIEST = Start("earliest")
_log = get_logger("sink")


def first_columns(config: PipelineConfig) -> FirstColumns:
    """Return the first columns of a pipeline whose configuration has none."""
    assert config.decode is not None
    return RegisteredColumns(config) if config.decode.registered else InferredColumns(config)


class _Found(ABC):
    """The ``sinks.base.FirstColumns`` that are found in a pipeline's topics, once for all decoders of the pipeline.

    No cursor moves.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._source = config.source
        self._topics = ", ".join(self._source.topics) or str(self._source.topics_pattern)
        self._some = False
        """True if there was a record at the last reading."""
        self._columns: Sequence[Column] = ()

    def __call__(self, decoder: ValueDecoder, stop: threading.Event) -> None:
        """See the protocol."""
        if self._columns:
            decoder.adopt(self._columns)
            return
        own = decoder.columns
        why = self._begin(decoder, stop)
        if decoder.types:
            self._columns = decoder.types
        elif self._source.start.kind != "latest" or not own:
            if self._some:
                raise SinkFailedError(why)
            raise NoRecordYet(f"there is no record in {self._topics} yet: the dataset begins with the first")
        # Else a wait would end with a record that is before the first position; the first roll has columns.

    @abstractmethod
    def _begin(self, decoder: ValueDecoder, stop: threading.Event) -> str:
        """Give ``decoder`` columns, after a look at the first records if need be. Return why there are none, or ""."""

    def _read_until(self, start: Start, stop: threading.Event, enough: Callable[[Chunk], bool]) -> None:
        """Give the records from ``start`` on that there are now to ``enough``, until it returns True.

        It blocks. Raises SinkFailedError, also soon after ``stop`` is set.
        """
        asyncio.run(self._until(stop, self._read(start, enough)))

    async def _until(self, stop: threading.Event, reading: Coroutine[Any, Any, None]) -> None:
        on_errand.set(True)
        task = asyncio.ensure_future(reading)
        while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
            if stop.is_set():
                task.cancel()
                await asyncio.wait([task])
                raise SinkFailedError("the sink was stopped while it read the first records")
        task.result()

    async def _read(self, start: Start, enough: Callable[[Chunk], bool]) -> None:
        self._some = False
        try:
            async with asyncio.timeout(LIMIT_S), reading(self._source, self._source.chosen, start) as reader:
                async for chunk in reader.up_to_now():
                    self._some = self._some or bool(chunk.rows or chunk.dead_letters)
                    if enough(chunk):
                        break
        except TimeoutError:
            if not self._some:
                raise SinkFailedError(f"the brokers have given no first record within {LIMIT_S:.0f} s") from None
        except SinkFailedError:
            raise
        except FastwireError as exc:
            raise SinkFailedError(f"the first records cannot be read: {exc}") from exc


class InferredColumns(_Found):
    """The columns that are inferred from the first records."""

    def _begin(self, decoder: ValueDecoder, stop: threading.Event) -> str:
        values: list[bytes] = []
        refused: Sequence[str] = ()
        for start in self._starts():
            values = self._values(start, stop)
            refused = decoder.infer(values)
            for field in refused:
                _log.warning("a field cannot have a column, its values will be dead letters", field=field)
            if decoder.types:
                _log.info("the columns are inferred from the first records", topics=self._topics, records=len(values))
                return ""
        found = f"none of {len(values)} records of {self._topics} is an object of JSON with a value"
        if not values:
            found = f"no record of {self._topics} has a value"
        why = f"; {refused[0]}" if refused else ""
        return f"no columns can be inferred yet: {found}{why}. The dataset begins with the first that has one"

    def _starts(self) -> Sequence[Start]:
        """Return where to look for records: at the start of the pipeline, and before it."""
        start = self._source.start
        return [start, EARLIEST] if start.kind == "time" else [EARLIEST]

    def _values(self, start: Start, stop: threading.Event) -> list[bytes]:
        """Return the values of the first records from ``start`` on that there are now."""
        values: list[bytes] = []
        left = MOST_SAMPLE_BYTES

        def enough(chunk: Chunk) -> bool:
            nonlocal left
            for value in taken(chunk)[0].column("value").slice(0, MOST_SAMPLES - len(values)):
                if value.is_valid and left > 0:
                    values.append(value.as_py())
                    left -= len(values[-1])
            return len(values) >= MOST_SAMPLES or left <= 0

        self._read_until(start, stop, enough)
        return values


class RegisteredColumns(_Found):
    """The columns of the topics' newest schemas, or else of the schema of the first record that has one."""

    def _begin(self, decoder: ValueDecoder, stop: threading.Event) -> str:
        missing: list[str] = []
        try:
            for topic in self._source.topics:
                try:
                    decoder.begin(topic)
                except UnknownSchemaError as exc:
                    missing.append(str(exc))
            if not decoder.types:
                missing += self._begin_with_records(decoder, stop)
        except RegistryAwayError as exc:
            raise SinkFailedError(f"the schema registry is away: {exc}") from None
        if decoder.types:
            columns = [str(each) for each in decoder.types]
            _log.info("the columns are those of registered schemas", topics=self._topics, columns=columns)
            return ""
        missing.append(f"no record of {self._topics} has a schema")
        return f"no columns are known yet: {'; '.join(missing)}. The dataset begins with the first schema"

    def _begin_with_records(self, decoder: ValueDecoder, stop: threading.Event) -> Sequence[str]:
        """Add the columns of the schema of the first record that has one. Return why there are none."""
        found: list[tuple[pa.RecordBatch, Runs]] = []

        def enough(chunk: Chunk) -> bool:
            found.append(taken(chunk))
            rows, nbytes = (sum(getattr(batch, size) for batch, _ in found) for size in ("num_rows", "nbytes"))
            return bool(rows >= MOST_SAMPLES or nbytes >= MOST_SAMPLE_BYTES)

        self._read_until(EARLIEST, stop, enough)
        stopped: dict[Log, str] = {}
        for batch, runs in found:
            for log, first, rows in runs:
                if log in stopped:
                    continue
                try:
                    # A decoder learns a schema at its first record, before it yields its rows.
                    for _ in decoder.decode(batch.slice(first, rows), [(log, 0, rows)], _give_up):
                        if decoder.types:
                            return ()
                except LogRefusedError as exc:  # the pipeline stops at this record, too, and reads other logs
                    stopped[log] = str(exc)
        return [*stopped.values()]


def _give_up(why: str, seconds: float) -> None:
    raise SinkFailedError(why)
