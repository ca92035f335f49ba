"""Texts that several commands print."""

from collections.abc import Mapping

import pytest

from fastwire_daemon.cli.printed import place_of


@pytest.mark.parametrize(
    ("system", "row", "text"),
    [
        ("pulsar", {"ledger": 12, "offset": 34, "batchIndex": 5}, "12:34:5"),
        ("pulsar", {"ledger": 12, "offset": 34, "batchIndex": -1}, "12:34"),
        ("kafka", {"offset": 34}, "34"),
        ("tank", {"offset": 34}, "34"),
        ("tubemq", {"offset": 84, "row": 0}, "84:0"),
    ],
)
def test_the_place_of_a_record_is_told_by_the_columns_of_its_system(
    system: str, row: Mapping[str, int], text: str
) -> None:
    assert place_of({"partition": 3, **row}, system) == text
