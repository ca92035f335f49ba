"""Fixtures of database servers."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.databases.postgresql import MISSING, Postgres, binaries, query

if TYPE_CHECKING:
    from tests.databases.shop import Shop

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of this process."""
    programs = binaries()
    if programs is None:
        pytest.skip(MISSING)
    with Postgres(programs) as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The URL of an empty database."""
    name = f"shop{next(_numbers)}"
    query(postgres.url(), f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    return postgres.url(name)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> "Iterator[Shop]":
    """Makes sinks for a table of an empty database."""
    from tests.databases.shop import Shop

    made = Shop(database, tmp_path)
    yield made
    made.close()
