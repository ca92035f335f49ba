"""The compiled modules are the ones loaded, and they are those of this tree."""

import importlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.support.source_tree import Source, sources

PYX = sources(".pyx")


def test_there_is_something_compiled() -> None:
    assert PYX


@pytest.mark.parametrize("source", PYX, ids=str)
def test_the_compiled_module_is_loaded(source: Source) -> None:
    loaded = importlib.import_module(source.module).__file__
    assert loaded is not None
    assert loaded.endswith(tuple(EXTENSION_SUFFIXES))
    assert Path(loaded).resolve().parent == source.path.parent


@pytest.mark.parametrize("source", PYX, ids=str)
def test_the_compiled_module_is_not_older_than_its_source(source: Source) -> None:
    loaded = importlib.import_module(source.module).__file__
    assert loaded is not None
    assert Path(loaded).stat().st_mtime >= source.path.stat().st_mtime, f"{source} has changed: run `make build`"


@pytest.mark.parametrize("compiled", sources(".so"), ids=str)
def test_a_compiled_module_has_a_source(compiled: Source) -> None:
    source = compiled.path.with_name(compiled.path.name.partition(".")[0] + ".pyx")
    assert source.exists(), f"{compiled} was left behind: run `make clean build`"


@pytest.mark.parametrize("source", PYX, ids=str)
def test_no_python_module_hides_behind_a_compiled_one(source: Source) -> None:
    assert not source.path.with_suffix(".py").exists()
