"""Names of columns that readers would take for others."""

import pytest

from fastwire.decode.evolution import Column
from fastwire_daemon.dataset.columnnames import ANY_NAME, NameRule


def column(name: str, *children: Column, arrow: str = "+s") -> Column:
    return Column(name, arrow if children else "i", True, children)


@pytest.mark.parametrize(
    ("rule", "columns", "said"),
    [
        (NameRule(("dt", "hh")), [column("id"), column("dt")], '"dt" names the folders dt=…, too'),
        (NameRule(("dt",)), [column("DT")], '"DT" names the folders dt=…, too'),
        (NameRule(("country",)), [column("Country")], '"Country" names the folders country=…, too'),
        (NameRule(("dt",)), [column("place", column("dt"))], ""),  # a field of a struct is not a level
        (NameRule(folded=True), [column("a"), column("A")], '"A" and "a" differ by case only'),
        (NameRule(folded=True), [column("a"), column("b", column("a"))], ""),
        (NameRule(folded=True), [column("s", column("b"), column("B"))], '"s.B" and "s.b" differ by case only'),
        (
            NameRule(folded=True),
            [column("l", column("item", column("x"), column("X")), arrow="+l")],
            '"l.item.X" and "l.item.x" differ by case only',
        ),
        (
            NameRule(folded=True),
            [column("m", column("entries", column("key"), column("value", column("x"), column("X"))), arrow="+m")],
            '"m.entries.value.X" and "m.entries.value.x" differ by case only',
        ),
        (NameRule(), [column("a"), column("A")], ""),
        (ANY_NAME, [column("dt"), column("DT")], ""),
    ],
)
def test_names_that_readers_take_for_others(rule: NameRule, columns: list[Column], said: str) -> None:
    found = rule.refusal(columns)
    assert found.startswith(said) and bool(found) == bool(said)
