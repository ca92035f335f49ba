"""Bursts of equal warnings: the first line at once, the rest as one line with a count."""

import io
import json
import logging
from typing import Any

from fastwire_daemon.runtime.bursts import WINDOW_S, BurstHandler


class Written(logging.Handler):
    """Keeps the records that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), record.__dict__["fields"]))


class Burst:
    """A handler with a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.written = Written()
        self.handler = BurstHandler(self.written, lambda: self.now)

    def log(self, event: str, level: int = logging.WARNING, **fields: Any) -> None:
        self.handler.handle(logging.makeLogRecord({"levelno": level, "msg": event, "name": "x", "fields": fields}))

    @property
    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        lines, self.written.lines = self.written.lines, []
        return lines


def test_equal_warnings_are_counted_and_told_once_a_window() -> None:
    burst = Burst()
    for _ in range(5):
        burst.log("lost", broker="a")
    assert burst.lines == [("lost", {"broker": "a"})]
    burst.now += WINDOW_S - 0.1
    burst.handler.write_repeated()
    assert burst.lines == []
    burst.now += 0.1
    burst.handler.write_repeated()
    assert burst.lines == [("lost", {"broker": "a", "repeated": 4})]
    # The burst goes on: counted again, without another first line.
    burst.log("lost", broker="a")
    assert burst.lines == []
    burst.now += WINDOW_S
    burst.handler.write_repeated()
    assert burst.lines == [("lost", {"broker": "a", "repeated": 1})]
    burst.now += WINDOW_S
    burst.handler.write_repeated()
    burst.log("lost", broker="a")
    assert burst.lines == [("lost", {"broker": "a"})]


def test_a_later_record_writes_the_count_of_a_window_that_is_over() -> None:
    burst = Burst()
    burst.log("lost")
    burst.log("lost")
    burst.now += WINDOW_S
    burst.log("other")
    assert burst.lines == [("lost", {}), ("lost", {"repeated": 1}), ("other", {})]


def test_other_fields_levels_and_loggers_are_other_records() -> None:
    burst = Burst()
    burst.log("lost", broker="a")
    burst.log("lost", broker="b")
    burst.log("lost", level=logging.ERROR, broker="a")
    burst.log("found", broker="a")
    assert len(burst.lines) == 4


def test_information_and_tracebacks_are_always_written() -> None:
    burst = Burst()
    for _ in range(3):
        burst.log("committed", level=logging.INFO)
    error = ValueError("boom")
    for _ in range(2):
        burst.handler.handle(
            logging.makeLogRecord(
                {"levelno": logging.ERROR, "msg": "failed", "fields": {}, "exc_info": (ValueError, error, None)}
            )
        )
    assert [event for event, _ in burst.lines] == ["committed"] * 3 + ["failed"] * 2


def test_a_flush_writes_all_counts() -> None:
    burst = Burst()
    burst.log("lost")
    burst.log("lost")
    burst.handler.flush()
    burst.handler.flush()
    assert burst.lines == [("lost", {}), ("lost", {"repeated": 1})]


def test_many_kinds_of_records_do_not_fill_the_memory() -> None:
    burst = Burst()
    for number in range(5000):
        burst.log("lost", number=number)
    assert len(burst.lines) == 5000
    assert len(burst.handler._bursts) <= 1000


def test_the_process_log_counts_bursts() -> None:
    from fastwire_daemon.runtime.logs import configure, get_logger

    stream = io.StringIO()
    configure(stream=stream)
    for _ in range(3):
        get_logger("x").warning("lost", broker="a")
    for handler in logging.getLogger().handlers:
        if isinstance(handler, BurstHandler):
            handler.flush()
    first, counted = map(json.loads, stream.getvalue().splitlines())
    assert "repeated" not in first
    assert counted["repeated"] == 2


def test_amounts_of_lines_that_repeat_are_added_up() -> None:
    """The sum over all lines of the log is what has happened."""
    burst = Burst()
    for number, letters in enumerate((3, 5, 7)):
        burst.log(
            "dead", topic="t", position=str(number), why=f"at {number}", dead_letters=letters, records=letters * 2
        )
    burst.log("dead", topic="u", position="0", why="other", dead_letters=1, records=1)
    burst.now += WINDOW_S
    burst.handler.write_repeated()
    first, other, again = (fields for _, fields in burst.lines)
    assert (first["dead_letters"], other["dead_letters"]) == (3, 1)
    assert again == {"topic": "t", "position": "1", "why": "at 1", "dead_letters": 12, "records": 24, "repeated": 2}
    burst.log("dead", topic="t", position="9", why="later", dead_letters=2, records=2)
    burst.now += WINDOW_S
    burst.handler.write_repeated()
    assert [fields["dead_letters"] for _, fields in burst.lines] == [2], "the sum begins anew"


def test_positions_without_amounts_are_other_records() -> None:
    burst = Burst()
    burst.log("odd", position="1")
    burst.log("odd", position="2")
    assert len(burst.lines) == 2
