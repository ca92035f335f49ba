from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.sinks.postgresql.scene import Shop


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database, tmp_path)
    yield made
    made.close()
