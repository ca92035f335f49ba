"""The table of abilities names test modules that exist, and its marks are those of their tests."""

from pathlib import Path

import pytest

from tests.support.abilities import Ability, marked, read, unknown, written

OUTCOMES = {"tests/a.py": {"passed", "skipped"}, "tests/b.py": {"passed", "failed"}, "tests/c.py": {"skipped"}}


def test_each_ability_has_tests_that_exist() -> None:
    abilities = list(read())
    assert {ability.system for ability in abilities} == {"Pulsar", "Kafka", "TubeMQ", "PostgreSQL"}
    assert [(ability.what, names) for ability in abilities if (names := unknown(ability))] == []
    assert all(any(name != "–" for cell in ability.cells for name in cell) for ability in abilities)


def test_a_module_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    table.write_text(
        "## S\n\n| ability | D | G | R | P | C |\n|---|---|---|---|---|---|\n| w | no | test_position | – | |  |\n"
    )
    (row,) = read(table)
    assert row == Ability("S", "w", (("tests/no.py",), ("tests/fastwire/test_position.py",), ("–",), (), ()))
    assert unknown(row) == ["tests/no.py"]


@pytest.mark.parametrize(
    ("modules", "mark"),
    [("a", "✓"), ("a b", "✗"), ("a c", "?"), ("d", "?"), ("", "·")],
)
def test_marks(modules: str, mark: str) -> None:
    names = tuple(f"tests/{name}.py" for name in modules.split())
    assert marked(names, OUTCOMES) == mark
    row = Ability("S", "w", (names, ("–",)))
    assert list(written([row], lambda cell: marked(cell, OUTCOMES)))[1] == f"{mark} –  S: w"
