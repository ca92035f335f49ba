"""Log records that repeat: the first of a burst is written at once, the others as one line with their count."""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 10.0
MOST = 1000  # kinds of records that are remembered at a time

AMOUNTS = frozenset({"dead_letters", "records", "rows", "times", "entries"})
"""Fields of records that are added up where the records repeat."""
EXAMPLES = frozenset({"position", "why"})
"""Fields beside amounts that are those of the first of several records."""
_Key = tuple[Hashable, ...]


@dataclass(slots=True)
class _Burst:
    """Records that repeat; ``last`` is the newest one."""

    began: float
    last: logging.LogRecord
    repeated: int = 0
    fields: dict[str, Any] = field(default_factory=dict)  # of the line about those that repeat

    def count(self, record: logging.LogRecord) -> None:
        """Add a record that repeats."""
        self.repeated += 1
        self.last = record
        new: dict[str, Any] = getattr(record, "fields", {})
        amounts = {name: self.fields.get(name, 0) + new[name] for name in AMOUNTS & new.keys()}
        self.fields = {**new, **self.fields, **amounts}


class BurstHandler(logging.Handler):
    """Passes records on to ``target``, but equal warnings and errors only once in ``WINDOW_S``.

    Records are equal if logger, level, event and all fields are, but for amounts and what goes with these. Those that
    follow the first one within the window are written at its end as one line: their number is in the field
    ``repeated``, and their amounts are added up, so that the amounts of all lines add up to what has happened. Records
    with a traceback are always written.
    """

    def __init__(self, target: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        assert self.lock is not None
        self._locked = self.lock
        self.target = target
        self._clock = clock
        self._bursts: dict[_Key, _Burst] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record now, or count it."""
        if record.levelno < logging.WARNING or record.exc_info:
            self.target.handle(record)
            return
        now = self._clock()
        self._write(now)
        key = _key(record)
        burst = self._bursts.get(key)
        if burst is not None:
            burst.count(record)
            return
        if len(self._bursts) < MOST:
            self._bursts[key] = _Burst(now, record)
        self.target.handle(record)

    def write_repeated(self) -> None:
        """Write the counts of windows that are over; to be called now and then."""
        if self._bursts:
            with self._locked:
                self._write(self._clock())

    def flush(self) -> None:
        """Write all counts now."""
        with self._locked:
            self._write(float("inf"))
        self.target.flush()

    def close(self) -> None:
        """Write all counts and close the target."""
        self.flush()
        self.target.close()
        super().close()

    def _write(self, now: float) -> None:
        for key, burst in list(self._bursts.items()):
            if now < burst.began + WINDOW_S:
                continue
            if burst.repeated:
                self.target.handle(_repeated(burst))
            if burst.repeated and now < float("inf"):
                burst.began, burst.repeated, burst.fields = now, 0, {}
            else:
                del self._bursts[key]


def _key(record: logging.LogRecord) -> _Key:
    fields: dict[str, Any] = getattr(record, "fields", {})
    left_out = AMOUNTS | EXAMPLES if AMOUNTS & fields.keys() else frozenset()
    same = ((name, str(value)) for name, value in fields.items() if name not in left_out)
    return record.name, record.levelno, record.getMessage(), *same


def _repeated(burst: _Burst) -> logging.LogRecord:
    record = logging.makeLogRecord(burst.last.__dict__)
    record.fields = {**burst.fields, "repeated": burst.repeated}
    return record
