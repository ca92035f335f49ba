"""Sinks that decode values, and a registry with one schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from tests.support.decoded_dataset import REGISTERED, Opened, decoder
from tests.support.schema_registry import SchemaRegistryServer, serving


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Makes opened sinks with a decoder, all for one folder, and closes them."""
    made: list[DatasetSink] = []

    def make(
        made_by: ValueDecoder | None = None, encoder: Any = ParquetEncoder, *, compression: Any = None, **fixed: Any
    ) -> DatasetSink:
        decoder_ = decoder() if made_by is None else made_by
        options = DatasetOptions(
            **{"system": "pulsar", "cluster": "feed", "columns": decoder_.columns, "types": decoder_.types, **fixed}
        )
        made.append(DatasetSink(tmp_path / "data", options, encoder, decoder=decoder_, compression=compression))
        made[-1].open()
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with serving() as server:
        server.register(7, REGISTERED)
        yield server
