"""The matrices name tests that exist, and show what has none."""

import ast
from functools import cache

import pytest

from fastwire_daemon.testing.system import SystemConformance
from tests.matrix import kafka as kafka_matrix
from tests.matrix import postgresql as postgresql_matrix
from tests.matrix import pulsar as pulsar_matrix
from tests.matrix import tubemq as tubemq_matrix
from tests.matrix.table import WITNESSES, Row, cell, written
from tests.support.source_tree import ROOT

CONFORMANCE = "tests/daemon/systems/test_conformance.py"


@cache
def functions(path: str) -> frozenset[str]:
    if path == CONFORMANCE:  # its classes inherit their tests
        return frozenset(dir(SystemConformance))
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(row: Row) -> list[str]:
    """Tests that a row names and nobody has written."""
    named = [test.split("::") for column in row.proofs for test in cell(row, column)]
    return [f"{path}::{name}" for path, name in named if not (ROOT / path).is_file() or name not in functions(path)]


@pytest.mark.parametrize(
    "row",
    [*pulsar_matrix.ROWS, *kafka_matrix.ROWS, *tubemq_matrix.ROWS, *postgresql_matrix.ROWS],
    ids=lambda row: row.what,
)
def test_every_test_of_the_matrix_exists(row: Row) -> None:
    assert not set(row.proofs) - set(WITNESSES) and not set(row.open) - set(WITNESSES)
    assert not set(row.open) & set(row.proofs), "open is what has no test"
    assert row.proofs
    assert missing(row) == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert missing(Row("p", "w", {"D": "matrix/test_matrix::test_x no::test_y"})) == [
        "tests/matrix/test_matrix.py::test_x",
        "tests/no.py::test_y",
    ]


def test_holes_are_shown() -> None:
    lines = list(written([Row("p", "w", {"D": "a::b"}, open="R")], lambda tests: "✓"))
    assert lines[1:] == ["✓ · – · ·  p: w", "holes: 1\n  – w: a real broker"]
