"""The first records of a pipeline's topics, from which a sink infers its columns before it creates its dataset."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pyarrow as pa

from fastwire.decode.evolution import Column
from fastwire.errors import FastwireError

from ..config import PipelineConfig, Start
from ..runtime.errors import SinkFailedError
from ..runtime.logs import get_logger
from ..sinks.valuedecoder import MOST_SAMPLE_BYTES, MOST_SAMPLES, ValueDecoder
from ..systems.registry import reading

__all__ = ["FirstRecords"]

LIMIT_S = 20.0  # for the reading of the first records
LOOK_S = 0.2  # between two looks whether to stop
_log = get_logger("sink")


class FirstRecords:
    """The ``sinks.base.FirstColumns`` of the first records of a pipeline's topics, which it reads; no cursor moves."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._columns: Sequence[Column] = ()

    def __call__(self, decoder: ValueDecoder, stop: threading.Event) -> None:
        """See the protocol."""
        if self._columns:
            decoder.adopt(self._columns)
            return
        source = self._config.source
        topics = ", ".join(source.topics) or str(source.topics_pattern)
        own = decoder.columns
        values: list[bytes] = []
        refused: Sequence[str] = ()
        for start in self._starts():
            values = asyncio.run(self._until(stop, self._values(start)))
            refused = decoder.infer(values)
            for field in refused:
                _log.warning("a field cannot have a column, its values will be dead letters", field=field)
            if decoder.types:
                self._columns = decoder.types
                _log.info("the columns are inferred from the first records", topics=topics, records=len(values))
                return
        if source.start.kind == "latest" and own:
            return  # a wait would end with a record that is before the first position; the first roll has columns
        why = f"; {refused[0]}" if refused else ""
        raise SinkFailedError(
            f"no columns can be inferred yet: none of {len(values)} records of {topics} is an object of JSON with a "
            f"value{why}. The dataset begins with the first one"
        )

    def _starts(self) -> Sequence[Start]:
        """Return where to look for records: at the start of the pipeline, and before it."""
        earliest, configured = Start("earliest"), self._config.source.start
        return [configured, earliest] if configured.kind == "time" else [earliest]

    async def _until(self, stop: threading.Event, reading: Coroutine[Any, Any, list[bytes]]) -> list[bytes]:
        """Return what ``reading`` returns. Raises SinkFailedError soon after ``stop`` is set."""
        task = asyncio.ensure_future(reading)
        while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
            if stop.is_set():
                task.cancel()
                await asyncio.wait([task])
                raise SinkFailedError("the sink was stopped while it read the first records")
        return task.result()

    async def _values(self, start: Start) -> list[bytes]:
        """Return the values of the first records from ``start`` on that there are now."""
        source = self._config.source
        values: list[bytes] = []
        left = MOST_SAMPLE_BYTES
        try:
            async with asyncio.timeout(LIMIT_S), reading(source, source.chosen, start) as reader:
                async for chunk in reader.up_to_now():
                    column = pa.record_batch(chunk).column("value")
                    chunk.release()
                    for value in column.slice(0, MOST_SAMPLES - len(values)):
                        if value.is_valid and left > 0:
                            values.append(value.as_py())
                            left -= len(values[-1])
                    if len(values) >= MOST_SAMPLES or left <= 0:
                        break
        except TimeoutError:
            if not values:
                raise SinkFailedError(f"the brokers have given no first record within {LIMIT_S:.0f} s") from None
        except FastwireError as exc:
            raise SinkFailedError(f"the first records cannot be read: {exc}") from exc
        return values
