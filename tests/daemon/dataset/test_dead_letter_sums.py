"""The log lines about the dead letters of a commit: they say where and why, and add up."""

from typing import Any

import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.decode.program import BadRecord
from fastwire.position import Log, Position
from fastwire_daemon.dataset.deadletters.reasons import field_of, kind_of
from fastwire_daemon.dataset.deadletters.sums import MOST_KEPT, MOST_TOLD, DeadLetterSums


def letter(reason: str, partition: int = 0, offset: int = 7, rows: int = 1) -> DeadLetter:
    return DeadLetter(Log("kafka", "c", "orders", str(partition)), Position(offset, -1), reason, b"x", rows)


def told(
    sums: DeadLetterSums, caplog: pytest.LogCaptureFixture, *, kept: bool = True
) -> list[tuple[str, dict[str, Any]]]:
    caplog.clear()
    sums.tell("p", kept=kept)
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
    return [(record.getMessage(), vars(record)["fields"]) for record in caplog.records]


def test_a_line_for_each_partition_reason_and_field(caplog: pytest.LogCaptureFixture) -> None:
    sums = DeadLetterSums()
    bad = [str(BadRecord(0, "Truncated", "customer.tags[]", byte)) for byte in (3, 9)]
    sums.add([letter(bad[0], offset=20), letter(bad[1], offset=21), letter("CorruptMessage: torn", rows=500)])
    sums.add([letter("CorruptMessage: torn", partition=1, rows=0), letter("CorruptMessage: odd", rows=20)])
    common = {"pipeline": "p", "topic": "orders"}
    assert told(sums, caplog) == [
        (
            "records have become dead letters",
            {**common, "partition": "0", "position": "20", "reason": "Truncated", "field": "customer.tags[]",
             "why": bad[0], "dead_letters": 2, "records": 2},
        ),
        (
            "records have become dead letters",
            {**common, "partition": "0", "position": "7", "reason": "CorruptMessage",
             "why": "CorruptMessage: torn", "dead_letters": 2, "records": 520},
        ),
        (
            "records have become dead letters",
            {**common, "partition": "1", "position": "7", "reason": "CorruptMessage",
             "why": "CorruptMessage: torn", "dead_letters": 1, "records": 0},
        ),
    ]  # fmt: skip
    assert told(sums, caplog) == [], "the next commit begins anew"


def test_a_sink_that_keeps_none_says_so(caplog: pytest.LogCaptureFixture) -> None:
    sums = DeadLetterSums()
    sums.add([letter("CorruptMessage: torn")])
    [(event, _)] = told(sums, caplog, kept=False)
    assert event == "records cannot be decoded: the sink leaves them out"


def test_a_void_roll_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    sums = DeadLetterSums()
    sums.add([letter("CorruptMessage: torn")])
    sums.clear()
    assert told(sums, caplog) == []


def test_lines_add_up_also_where_there_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    sums = DeadLetterSums()
    sums.add(letter("CorruptMessage: torn", partition, rows=3) for partition in range(MOST_KEPT + 50))
    lines = told(sums, caplog)
    assert len(lines) == MOST_TOLD + 1
    assert sum(fields["dead_letters"] for _, fields in lines) == MOST_KEPT + 50
    assert sum(fields["records"] for _, fields in lines) == 3 * (MOST_KEPT + 50)


def test_sums_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    sums = DeadLetterSums()
    sums.add([letter("A: x"), letter("A: y", 1), letter("B")])
    assert sums.tell("p", kept=True) == {"A": 2, "B": 1}


@pytest.mark.parametrize(
    ("reason", "kind", "field"),
    [
        ("Truncated at byte 3 of the value, in a.b", "Truncated", "a.b"),
        ("Truncated at byte 3 of the value", "Truncated", ""),
        ("Truncated at byte 3 of the key 0x2c20, in id", "Truncated", "id"),
        ("TransformFailed: no function, in query", "TransformFailed", ""),
        ("checksum", "checksum", ""),
    ],
)
def test_the_parts_of_a_reason(reason: str, kind: str, field: str) -> None:
    assert (kind_of(reason), field_of(reason)) == (kind, field)
