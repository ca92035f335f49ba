"""Numbers for the schemas of a batch, where brokers keep the schemas and each record has the version of its own."""

from collections.abc import Iterable

import pyarrow as pa

from ..encoders.gather import row_codes

_BUILT_IN = 8  # bytes of a version that is a number


class SchemaVersions:
    """Numbers pairs of a topic and a version as they come: the first has the number 0."""

    needed = frozenset({"topic", "schemaVersion"})
    """Columns that batches must have."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, bytes | None], int] = {}
        self._keys: list[tuple[str, bytes | None]] = []

    def of(self, batch: pa.RecordBatch) -> tuple[memoryview, Iterable[int]]:
        """Return the number of the schema of each row, as 32-bit integers, and the different ones."""
        import pyarrow.compute as pc  # takes as long as the rest of pyarrow

        topics = batch.column("topic")
        topics = topics.dictionary_decode() if isinstance(topics, pa.DictionaryArray) else topics
        codes, key_of = row_codes([topics, batch.column("schemaVersion")])
        different = codes.unique()
        numbers = pa.array([self.number(*key_of(code)) for code in different.to_pylist()], pa.int32())
        rows = numbers.take(pc.index_in(codes, value_set=different))
        return memoryview(rows.buffers()[1]).cast("B").cast("i")[rows.offset : rows.offset + len(rows)], set(
            numbers.to_pylist()
        )

    def key(self, number: int) -> tuple[str, bytes | None]:
        """Return the topic and the version of a number; the version is None for records without a schema."""
        return self._keys[number]

    def name(self, number: int) -> str:
        """Return a schema as text: its version, and the topic."""
        topic, version = self._keys[number]
        if version is None:
            return f"of {topic}"
        text = str(int.from_bytes(version, "big")) if len(version) == _BUILT_IN else "0x" + version.hex()
        return f"{text} of {topic}"

    def number(self, topic: str, version: bytes | None) -> int:
        """Return the number of a topic and a version."""
        key = (topic, version or None)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]
