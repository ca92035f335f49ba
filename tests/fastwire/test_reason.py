"""The reasons of dead letters are one list, which people and programs can look up."""

import pickle
import re

import pytest

from fastwire.decode.avro.walk import REASONS as AVRO
from fastwire.decode.json.walk import REASONS as JSON
from fastwire.decode.protobuf.walk import REASONS as PROTOBUF
from fastwire.reason import Reason
from tests.support.source_tree import ROOT


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_name_with_a_cause_and_an_advice(reason: Reason) -> None:
    assert {each.value: each for each in Reason}[str(reason)] is reason
    assert f"{reason}: odd" == f"{reason.value}: odd"
    assert re.fullmatch(r"[A-Z]\w+", reason)
    assert reason.when.endswith(".")
    assert reason.todo.endswith((".", "bytes."))
    assert pickle.loads(pickle.dumps(reason)) is reason


def test_the_decoders_give_no_other_reasons() -> None:
    assert {*AVRO, *JSON, *PROTOBUF} <= set(Reason)


def test_no_reason_is_written_beside_the_list() -> None:
    """A name in quotes would be one that the table of the documents lacks."""
    quoted = re.compile("[\"'](" + "|".join(Reason) + ")[\":']")
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for folder in ("fastwire", "daemon")
        for file in (ROOT / folder).rglob("*.py*")
        if file.suffix in (".py", ".pyx", ".pxd") and file.name != "reason.py" and "devbroker" not in file.parts
        for name in quoted.findall(file.read_text(encoding="utf-8"))
        if name != "CorruptMessage"  # is also the name of a class
    ]
    assert found == []


def test_each_reason_is_given_somewhere() -> None:
    texts = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("fastwire", "daemon")
        for file in (ROOT / folder).rglob("*.py*")
        if file.suffix in (".py", ".pyx") and file.name != "reason.py"
    )
    assert [each.name for each in Reason if not re.search(rf"\bReasons?\.{each.name}\b", texts)] == []
