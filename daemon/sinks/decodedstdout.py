"""A sink that prints the columns of decoded values as one JSON object per line, at least once."""

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter
from fastwire.coverage import Coverage
from fastwire.systems import row_of

from ..dataset.deadletters.sums import DeadLetterSums
from ..runtime.errors import SinkFailedError
from .base import Decoded
from .recordrows import Runs, taken
from .stdout import PIECE_BYTES, StdoutSink
from .valuedecoder import ValueDecoder

if TYPE_CHECKING:
    from .transform import TransformedValues


class DecodedStdoutSink(StdoutSink):
    """Writes decoded rows of ``system`` as the files of JSON lines have them: bytes of values are base64.

    Values that do not match the schema are not printed, and logged with the commit, or stop their partition, as the
    decoder says.
    """

    def __init__(self, decoder: "ValueDecoder | TransformedValues", system: str, descriptor: int | None = None) -> None:
        super().__init__(descriptor)
        self._decoder = decoder
        self._own = {f"{decoder.prefix}{name}" for name in row_of(system).names}
        self._stop = threading.Event()
        self.decoded = Decoded()
        """Counts of all values so far."""
        self.dead_letter_sums = DeadLetterSums()
        """Values since the last commit that did not match."""
        self.waiting: str | None = None
        """The reason why a write waits, for the status; None if it does not."""

    def open(self) -> Coverage:
        """See ``UnloggedSink.open``."""
        self._stop.clear()
        return super().open()

    def interrupt(self) -> None:
        """End a wait for a registry: the call that waits raises SinkFailedError. From any thread."""
        self._stop.set()

    def write(self, chunk: Chunk) -> None:
        """Print the rows of ``chunk`` whose values match; waits for a slow reader. Raises as ``StdoutSink.write``."""
        if chunk.rows:
            self._print_rows(*taken(chunk))
        self.written(chunk)

    def commit(self) -> Coverage:
        """See ``UnloggedSink.commit``."""
        self._decoder.trim()
        return super().commit()

    def _print_rows(self, batch: pa.RecordBatch, runs: Runs) -> None:
        for rows in self._decoder.decode(batch, runs, self._pause):
            self.dead_letter_sums.add(rows.dead_letters)
            fields = rows.batch.select([name for name in rows.batch.schema.names if name in self._decoder.columns])
            encoded = [name for name in fields.schema.names if name not in self._own or name in self._decoder.texts]
            if fields.num_rows:
                LineFormatter(fields, base64=encoded).write(self.put, PIECE_BYTES)
            values, dead_letters, columns, filtered = self.decoded
            self.decoded = Decoded(
                values + fields.num_rows, dead_letters + len(rows.dead_letters), columns, filtered + rows.filtered
            )

    def _pause(self, why: str, seconds: float) -> None:
        self.waiting = why
        try:
            if self._stop.wait(seconds):
                raise SinkFailedError(f"the sink was stopped while it waited: {why}")
        finally:
            self.waiting = None
