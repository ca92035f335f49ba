"""Flow control of consumers: the Master's rules and the wait before the next GET (spec: tubemq 14)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.reading.fetched import Fetched

NOT_FOUND_WAIT_MS = 400
_WAITS: dict[int, int] = {
    Code.MOVED: 200,
    Code.BAD_REQUEST: 300,
    Code.FORBIDDEN: 2000,
    Code.INTERNAL_SERVER_ERROR: 300,
    Code.SERVICE_UNAVAILABLE: 300,
}
_OTHER_WAIT_MS = 300
_MOST_PAUSE_MS = 300_000
_GMT8_S = 8 * 3600
_MIB = 1 << 20
_WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class DataLimit:
    """A limit of the bytes a minute, for a part of the day and a lag. ``start`` and ``end`` are minutes of the day."""

    start: int
    end: int
    lag_bytes: int
    bytes_a_minute: int
    wait_ms: int

    @property
    def bytes_a_window(self) -> int:
        """The bytes that may be read in 5 s."""
        return self.bytes_a_minute // 12


@dataclass(frozen=True, slots=True)
class FlowRules:
    """The rules of a group or of the cluster. ``empties`` are pairs of empty responses in a row and wait in ms."""

    limits: tuple[DataLimit, ...] = ()
    empties: tuple[tuple[int, int], ...] = ()
    pauses_ms: tuple[int, int, int] | None = None
    """After a GET with messages: without filters, with filters, and with filters near the end of the partition."""

    def limit(self, lag_bytes: int, minute: int) -> DataLimit | None:
        """Return the limit that holds for a lag at a minute of the day, that of the greatest lag."""
        found = [one for one in self.limits if one.start <= minute < one.end and lag_bytes > one.lag_bytes]
        return max(found, key=lambda one: one.lag_bytes, default=None)

    def empty_wait_ms(self, empties: int) -> int | None:
        """Return the wait after ``empties`` empty responses in a row; None without a rule."""
        found = [(count, wait) for count, wait in self.empties if empties >= count]
        return max(found)[1] if found else None


NO_RULES = FlowRules()


def minute_of_day(unix_s: float) -> int:
    """Return the minute of the day by which rules hold: GMT+8."""
    return int(unix_s + _GMT8_S) % 86400 // 60


def read_rules(text: str) -> FlowRules:
    """Read the JSON text of the Master; a blank text means no rules. Raises ProtocolError."""
    if not text.strip():
        return NO_RULES
    try:
        groups = json.loads(text)
        limits: list[DataLimit] = []
        empties: list[tuple[int, int]] = []
        pauses = None
        for group in groups:
            kind = int(group["type"])
            for rule in group["rule"]:
                if kind == 0:
                    limits.append(_limit(rule))
                elif kind == 1:
                    empties.append((int(rule["zeroCnt"]), _pause(rule["freqInMs"])))
                elif kind == 3:
                    names = ("normFreqInMs", "filterFreqInMs", "minDataFilterFreqInMs")
                    first, second, third = (_pause(rule.get(name, 0)) for name in names)
                    pauses = first, second, third
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as exc:
        raise ProtocolError("flow rules", detail=f"{text[:200]!r}: {exc}") from None
    return FlowRules(tuple(limits), tuple(empties), pauses)


def _limit(rule: Mapping[str, Any]) -> DataLimit:
    lag, rate = int(rule["dltInM"]), int(rule["limitInM"])
    if lag < 0 or rate < 0:
        raise ValueError("a limit is negative")
    return DataLimit(_minute(rule["start"]), _minute(rule["end"]), lag * _MIB, rate * _MIB, _pause(rule["freqInMs"]))


def _minute(text: str) -> int:
    hour, colon, minute = text.partition(":")
    found = int(hour) * 60 + (int(minute) if colon else 0)
    if not 0 <= found <= 24 * 60:
        raise ValueError(f"{text} is no time of a day")
    return found


def _pause(value: Any) -> int:
    return min(max(int(value), 0), _MOST_PAUSE_MS)


def wait_ms(
    code: int,
    *,
    group: FlowRules = NO_RULES,
    cluster: FlowRules = NO_RULES,
    empties: int = 0,
    filtered: bool = False,
    require_slow: bool = False,
    min_limit_ms: int = -1,
    escaped: bool = False,
    over: DataLimit | None = None,
) -> int:
    """Return the wait in ms between a GET response with ``code`` and the next GET of its partition.

    ``empties`` counts the empty responses in a row up to this one. ``escaped`` is ``escFlowCtrl`` of the response.
    ``over`` is the limit whose bytes are used up in this window of 5 s. The rule of the group goes before that of the
    cluster.
    """
    if code == Code.SUCCESS:
        if over is not None:
            return max(over.wait_ms, min_limit_ms)
        pauses = group.pauses_ms if group.pauses_ms is not None else cluster.pauses_ms
        if pauses is None:
            return 0
        return pauses[2 if require_slow else 1] if filtered else pauses[0]
    if code == Code.NOT_FOUND:
        soon = min(NOT_FOUND_WAIT_MS, 1 << min(empties, 16))
        if escaped:
            return soon  # no wait, says the broker; one that says so always is not asked in a tight loop
        found = group.empty_wait_ms(empties)
        if found is None:
            found = cluster.empty_wait_ms(empties)
        if found is not None:
            return found
        if min_limit_ms <= 0:
            return NOT_FOUND_WAIT_MS
        # Not the end (spec: tubemq 11.2): a broker that has skipped entries of others goes on with the next GET.
        return min(min_limit_ms, soon)
    if code == Code.SERVER_CONSUME_SPEED_LIMIT:
        return min(min_limit_ms, _MOST_PAUSE_MS) if min_limit_ms > 0 else NOT_FOUND_WAIT_MS
    return _WAITS.get(code, _OTHER_WAIT_MS)


@dataclass(slots=True)
class Pace:
    """Flow control of one partition: the time of its next GET (spec: tubemq 14). ``filtered`` says if it has filters.

    ``due`` is a time of the caller's clock, in seconds. ``escape`` is what the next GET says in ``escFlowCtrl``: a
    limit of the group holds, which goes before that of the cluster, the only one that brokers know.
    """

    filtered: bool = False
    due: float = 0.0
    escape: bool = False
    _empties: int = 0  # responses without messages in a row
    _offset: int = -1  # where the last GET began
    _window: float = 0.0  # the time when the window of the data limit began
    _window_bytes: int = 0

    def answered(
        self, fetched: Fetched, now: float, unix_s: float, group: FlowRules = NO_RULES, cluster: FlowRules = NO_RULES
    ) -> None:
        """Plan the next GET after a response. ``unix_s`` is the time since 1970, by which rules hold."""
        code = fetched.code
        over: DataLimit | None = None
        if code == Code.SUCCESS:
            if not fetched.messages and fetched.offset == self._offset:
                code = Code.NOT_FOUND  # the broker stands still
            self._offset = fetched.offset
            over = self._used_up(fetched, now, minute_of_day(unix_s), group, cluster)
        self._empties = 0 if fetched.messages else self._empties + 1
        wait = wait_ms(
            code,
            group=group,
            cluster=cluster,
            empties=self._empties,
            filtered=self.filtered,
            require_slow=fetched.require_slow,
            min_limit_ms=fetched.min_limit_ms,
            escaped=fetched.escaped,
            over=over,
        )
        self.due = now + wait / 1000

    def _used_up(
        self, fetched: Fetched, now: float, minute: int, group: FlowRules, cluster: FlowRules
    ) -> DataLimit | None:
        """Count the bytes of a response; return the limit that they have used up."""
        own = group.limit(fetched.lag_bytes, minute)
        self.escape = own is not None
        limit = own or cluster.limit(fetched.lag_bytes, minute)
        if now - self._window >= _WINDOW_S:
            self._window, self._window_bytes = now, 0
        self._window_bytes += fetched.nbytes
        return limit if limit is not None and self._window_bytes >= limit.bytes_a_window else None
