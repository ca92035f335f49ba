"""The sink of PostgreSQL keeps the contract of sinks: nothing lost and nothing twice, whoever is killed when."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from fastwire_daemon.config.sinks.database import connection_uri
from fastwire_daemon.dataset.tableschema import data_columns
from fastwire_daemon.sinks.postgresql.options import PostgresOptions
from fastwire_daemon.sinks.postgresql.session import Server
from fastwire_daemon.sinks.postgresql.sink import PostgresSink
from fastwire_daemon.sinks.postgresql.target import Target
from fastwire_daemon.sinks.recordrows import RecordRows
from fastwire_daemon.testing import SinkConformance
from tests.databases.postgresql import query

pytestmark = pytest.mark.database

URL = "FASTWIRE_TEST_DATABASE"  # for the children that are killed


@pytest.fixture(autouse=True)
def _database(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, database)


def table_of(path: Path) -> str:
    return f"t{sha256(str(path).encode()).hexdigest()[:12]}"


class TestPostgresSink(SinkConformance):
    kills = 4  # the crash tests kill daemons at each step and at random

    def make_sink(self, path: Path) -> PostgresSink:
        columns = ("key", "value", "timestamp", "topic")
        options = PostgresOptions(
            system="pulsar",
            cluster="feed",
            hosts=("broker:6650",),
            shared=False,
            columns=data_columns("pulsar", columns, ()),
        )
        return PostgresSink(
            Server(connection_uri(os.environ[URL], None), "the database", 30.0),
            Target("public", table_of(path), (), {}, frozenset(columns)),
            options,
            RecordRows(columns, "pulsar"),
        )

    def read_values(self, path: Path) -> list[bytes]:
        url, table = os.environ[URL], table_of(path)
        if not query(url, f"SELECT to_regclass('{table}') IS NOT NULL")[0][0]:
            return []
        return [value for (value,) in query(url, f"SELECT value FROM {table}")]
