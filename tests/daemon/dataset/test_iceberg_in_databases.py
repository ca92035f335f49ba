"""Catalogs of Iceberg that are tables of a database, which the library makes with the first use."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from fastwire_daemon.dataset.tables.icebergworker import _Worker
from tests.support import icebergs


def test_two_that_make_one_catalog_at_a_time_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, made = Barrier(2), SqlCatalog.create_tables
    calls = []

    def create_tables(catalog: SqlCatalog) -> None:
        calls.append(catalog)
        if len(calls) > 2:
            made(catalog)
            return
        both.wait(timeout=30)
        SqlCatalogBaseTable.metadata.create_all(catalog.engine, checkfirst=False)

    monkeypatch.setattr(SqlCatalog, "create_tables", create_tables)
    place = {"root": str(tmp_path), "location": f"file://{tmp_path}", "store": {}}
    worker = _Worker()

    def look(table: str) -> dict[str, Any]:
        settings = icebergs.catalog(tmp_path) | place | {"table": table}
        return worker.reply(json.dumps({"do": "look", "owner": "", "client": "", "table": settings}))

    with ThreadPoolExecutor(2) as threads:
        replies = list(threads.map(look, ("shop.orders", "shop.lines")))
    assert replies == [{"answer": None}, {"answer": None}]
