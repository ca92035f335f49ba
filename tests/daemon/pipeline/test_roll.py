"""When a roll ends: by what is in it, by its age, or earlier where a broker waits for acks."""

import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Log, Position
from fastwire_daemon.pipeline.roll import Roll, RollPolicy

LETTER = DeadLetter(
    Log("kafka", "c", "t", "0"), Position(40, 1), "CorruptMessage: odd", b"x", 20, start=Position(20, 1)
)


@pytest.mark.parametrize(
    ("policy", "step_s", "reason"),
    [
        (RollPolicy(max_rows=10), 0.0, "rows"),
        (RollPolicy(max_age_s=5, max_idle_s=1000), 5.0, "age"),
        (RollPolicy(max_age_s=1000, max_idle_s=3), 3.0, "idle"),
    ],
)
def test_a_roll_ends_by_the_policy(policy: RollPolicy, step_s: float, reason: str) -> None:
    roll = Roll(policy)
    roll.wrote(9, [], 100.0)
    assert roll.due(0, 100.0) is None
    roll.wrote(1, [], 100.0)
    assert roll.due(0, 100.0 + step_s) == reason


def test_a_roll_ends_by_bytes_and_progress_alone_waits_for_the_age() -> None:
    roll = Roll(RollPolicy(max_bytes=100, max_age_s=60, max_idle_s=1))
    roll.wrote(1, [], 0.0)
    assert roll.due(99, 0.5) is None
    assert roll.due(100, 0.5) == "bytes"
    roll.restart()
    assert roll.due(1000, 100.0) is None and roll.next_look(100.0) is None
    roll.wrote(0, [], 100.0)
    assert roll.due(0, 159.0) is None and roll.next_look(159.0) == 1.0
    assert roll.due(0, 160.0) == "age"


def test_dead_letters_end_a_roll_as_rows_do() -> None:
    roll = Roll(RollPolicy(max_rows=3, max_bytes=100))
    roll.wrote(0, [LETTER], 0.0)
    assert roll.due(99, 0.0) is None and roll.due(100, 0.0) == "bytes"
    roll.wrote(1, [LETTER], 0.0)
    assert roll.due(0, 0.0) == "rows"


def test_an_unacknowledged_limit_makes_later_rolls_smaller() -> None:
    roll = Roll(RollPolicy(max_rows=1000))
    roll.limit_unacked(500)
    roll.limit_unacked(5000)
    roll.wrote(400, [], 0.0)
    assert roll.due(0, 0.0) == "rows"
