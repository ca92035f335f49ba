"""Fixtures of database servers."""

import itertools
from collections.abc import Iterator

import pytest

from tests.databases.postgresql import MISSING, Postgres, binaries, query

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
