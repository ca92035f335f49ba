"""The sink of a dataset whose columns are inferred: it is made with those of the dataset, or of the first records."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column
from fastwire.errors import FastwireError
from fastwire.position import Log, Position

from ..config import ConfigError, PipelineConfig, Start
from ..dataset.deadletters.sums import DeadLetterSums
from ..dataset.origin import look_at
from ..dataset.place import bucket_of
from ..net.schemaregistry import TopicSchemas
from ..runtime.errors import DatasetMismatchError, SinkFailedError
from ..runtime.logs import get_logger
from ..sinks.base import Decoded
from ..sinks.dataset import DatasetSink
from ..sinks.registry import build_sink, value_decoder
from ..sinks.valuedecoder import MOST_SAMPLES, ValueDecoder
from ..systems.registry import reading

__all__ = ["InferredSink", "inferred_sink"]

MOST_BYTES = 16 << 20
LIMIT_S = 20.0  # for the reading of the first records
Columns = Sequence[Column]
_log = get_logger("sink")


def inferred_sink(
    config: PipelineConfig, *, memory: int, topics: TopicSchemas | None = None, many: bool = False
) -> "InferredSink":
    """Return a sink over ``build_sink`` with these arguments. Raises ConfigError."""

    def make(types: Columns) -> DatasetSink:
        made = build_sink(config, memory=memory, topics=topics, many=many, types=types)
        assert isinstance(made, DatasetSink)
        return made

    return InferredSink(config, make)


class InferredSink:
    """A ``LoggedSink`` of a pipeline ``config`` with ``decode.schema = "infer"``.

    ``make`` makes the sink whose dataset has some columns from its beginning on. While there is no dataset, ``open``
    reads the first records, which moves no cursor, and raises SinkFailedError as long as there are none. The
    writer that creates the dataset fixes its columns in it: each writer takes those.
    """

    def __init__(self, config: PipelineConfig, make: Callable[[Columns], DatasetSink]) -> None:
        self._config = config
        self._make = make
        self._types: Columns = ()
        self._inner = make(())  # knows what chunks must have
        self._stop = threading.Event()

    # --- state, for any thread

    @property
    def exists(self) -> bool:
        """See the protocol."""
        return self._inner.exists

    @property
    def cluster(self) -> str:
        """See the protocol."""
        return self._inner.cluster

    @property
    def needed_columns(self) -> frozenset[str]:
        """See the protocol."""
        return self._inner.needed_columns

    @property
    def staged_bytes(self) -> int:
        """See the protocol."""
        return self._inner.staged_bytes

    @property
    def unpooled_bytes(self) -> int:
        """See the protocol."""
        return self._inner.unpooled_bytes

    @property
    def too_many_files(self) -> bool:
        """See the protocol."""
        return self._inner.too_many_files

    @property
    def committed_files(self) -> int:
        """See the protocol."""
        return self._inner.committed_files

    @property
    def committed_bytes(self) -> int:
        """See the protocol."""
        return self._inner.committed_bytes

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """See the protocol."""
        return self._inner.stage_ns

    @property
    def waiting(self) -> str | None:
        """See the protocol."""
        return self._inner.waiting

    @property
    def decoded(self) -> Decoded | None:
        """See the protocol."""
        return self._inner.decoded

    @property
    def dead_letter_sums(self) -> DeadLetterSums:
        """See the protocol."""
        return self._inner.dead_letter_sums

    @property
    def unpublished(self) -> str:
        """See the protocol."""
        return self._inner.unpublished

    @property
    def publishing(self) -> bool:
        """See the protocol."""
        return self._inner.publishing

    @property
    def threads(self) -> list[int | None]:
        """See the protocol."""
        return self._inner.threads

    def interrupt(self) -> None:
        """See the protocol."""
        self._stop.set()
        self._inner.interrupt()

    # --- the sink

    def open(self) -> Coverage:
        """Find the columns, and open the sink that has them.

        Raises DatasetMismatchError if no sink can have the columns of the values.
        """
        self._stop.clear()
        sink = self._config.sink
        assert sink.path is not None, "the configuration was checked"
        found = look_at(sink.path, None, bucket_of(sink))
        if found is not None:
            self._take(found.types)
        elif not self._types:
            self._take(self._inferred())
        return self._inner.open()

    def create_dataset(self) -> None:
        """See the protocol."""
        self._inner.create_dataset()

    def identify(self, cluster_id: str) -> None:
        """See the protocol."""
        self._inner.identify(cluster_id)

    def write(self, chunk: Chunk) -> None:
        """See the protocol."""
        self._inner.write(chunk)

    def refresh(self) -> Coverage:
        """See the protocol."""
        return self._inner.refresh()

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """See the protocol."""
        self._inner.raise_floors(floors)

    def commit(self) -> Coverage:
        """See the protocol."""
        return self._inner.commit()

    def close(self) -> None:
        """See the protocol."""
        self._inner.close()

    # --- inside

    def _take(self, types: Columns) -> None:
        if types == self._types:
            return
        self._inner.close()
        try:
            self._inner = self._make(types)
        except ConfigError as exc:
            raise DatasetMismatchError(f"the inferred columns do not fit: {exc}") from exc
        self._types = types

    def _inferred(self) -> Columns:
        """Return the columns of the first records. Raises SinkFailedError while there are none with columns."""
        source = self._config.source
        topics = ", ".join(source.topics) or str(source.topics_pattern)
        decoder = value_decoder(self._config)
        assert isinstance(decoder, ValueDecoder), "a pipeline that infers has no transform"
        values: list[bytes] = []
        for start in self._starts():
            values = asyncio.run(self._first_values(start))
            refused = decoder.infer(values)
            if decoder.types:
                for field in refused:
                    _log.warning("a field cannot have a column, its values will be dead letters", field=field)
                _log.info("the columns are inferred from the first records", topics=topics, records=len(values))
                return decoder.types
        if source.start.kind == "latest" and self._inner.columns:
            return ()  # a wait would end with a record that is before the first position; the first roll has columns
        raise SinkFailedError(
            f"no columns can be inferred yet: none of {len(values)} records of {topics} is an object of JSON with a "
            "value. The dataset begins with the first one"
        )

    def _starts(self) -> Sequence[Start]:
        """Return where to look for records: at the start of the pipeline, and before it."""
        earliest, configured = Start("earliest"), self._config.source.start
        return [configured, earliest] if configured.kind == "time" else [earliest]

    async def _first_values(self, start: Start) -> list[bytes]:
        """Return the values of the first records from ``start`` on that there are now."""
        source = self._config.source
        values: list[bytes] = []
        left = MOST_BYTES
        try:
            async with asyncio.timeout(LIMIT_S), reading(source, source.chosen, start) as reader:
                async for chunk in reader.up_to_now():
                    if self._stop.is_set():
                        raise SinkFailedError("the sink was stopped while it read the first records")
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
        except SinkFailedError:
            raise
        except FastwireError as exc:
            raise SinkFailedError(f"the first records cannot be read: {exc}") from exc
        return values
