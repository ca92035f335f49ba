"""Tables of many pages, drawn: the same as `python -m tests.fuzz.parquet`, which draws for hours."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.parquet import agree, run_case


@pytest.mark.parametrize("number", range(40))
def test_a_large_table_reads_as_that_of_pyarrow(number: int) -> None:
    assert agree(number)["table"] == 1


@pytest.mark.parametrize("name", found("parquet_table"))
def test_what_was_found_before(name: str) -> None:
    run_case(kept(name))
