"""Log output on stderr (stdout is a sink): readable lines on a terminal, else one JSON object per line.

A line is an event in plain words with named fields::

    log = get_logger("pipeline")
    log.info("committed", pipeline="orders", rows=131072)
"""

import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from .bursts import BurstHandler
from .terminal import printable

if TYPE_CHECKING:
    from rich.console import Console


_SECRET_WORDS = ("token", "password", "passwd", "secret", "authorization", "credential", "private_key", "auth_data")
_NOT_SECRET_ENDS = ("_file", "_path", "_type", "_method", "_seconds", "_bytes")
_HIDDEN = "***"
_REMEMBERED = 20  # kinds of warnings and errors for the status page
_RESERVED = ("ts", "level", "logger", "event", "traceback")

of_pipeline: ContextVar[str] = ContextVar("of_pipeline", default="")
"""The pipeline that the running task or callback works for; log lines name it. "" for the process itself."""
on_errand: ContextVar[bool] = ContextVar("on_errand", default=False)
"""True in tasks that do something small now and then: what would be logged as info is of no interest, and debug."""

_console: "Console | None" = None
_level = "info"
_bursts: BurstHandler | None = None
_recent: OrderedDict[tuple[str, ...], dict[str, Any]] = OrderedDict()  # by kind, the newest last


def redact(fields: Mapping[str, object]) -> dict[str, object]:
    """Return ``fields`` with the value of every key that names a secret hidden, in nested tables too."""
    return {str(key): _HIDDEN if _is_secret(str(key)) else _without_secrets(value) for key, value in fields.items()}


def _without_secrets(value: object) -> object:
    if isinstance(value, Mapping):
        return redact(value)
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value


def _is_secret(key: str) -> bool:
    lower = key.lower().replace("-", "_")
    return any(word in lower for word in _SECRET_WORDS) and not lower.endswith(_NOT_SECRET_ENDS)


class Logger:
    """Writes the events of one part of the daemon. The value of a field whose key names a secret is hidden."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"fastwire.{name}")

    def debug(self, event: str, /, **fields: object) -> None:
        """Log an event that helps to diagnose a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log an event of normal operation."""
        self._write(logging.DEBUG if on_errand.get() else logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log a problem from which the daemon recovers without an operator."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log a problem that an operator has to look at."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, traceback=True)

    def _write(self, level: int, event: str, fields: dict[str, object], traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            if pipeline := of_pipeline.get():
                fields = {"pipeline": pipeline, **fields}
            self._logger.log(level, "%s", event, exc_info=traceback, extra={"fields": fields})


def get_logger(name: str) -> Logger:
    """Return the logger of one part of the daemon: ``pipeline``, ``transport``, ``dataset`` …"""
    return Logger(name)


def configure(*, level: str = "info", stream: TextIO | None = None, human: bool | None = None) -> None:
    """Send all log lines of the process to ``stream`` (default: stderr).

    ``level`` is debug, info, warning or error. ``human`` selects readable lines; by default it is true on a terminal.
    Other libraries log warnings and errors only. A burst of equal warnings becomes one line with a count. May be
    called again: the last call wins.
    """
    global _console, _level, _bursts
    stream = stream if stream is not None else sys.stderr
    human = human if human is not None else stream.isatty()
    handler: logging.Handler
    if human:
        from rich.console import Console  # not paid for under systemd

        _console = Console(file=stream, soft_wrap=True, highlight=False, markup=False, emoji=False)
        handler = _HumanHandler(_console)
    else:
        _console = None
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, BurstHandler):
            root.removeHandler(old)
    handler.addFilter(_remember)
    _bursts = BurstHandler(handler)
    root.addHandler(_bursts)
    root.setLevel(logging.WARNING)
    _level = level
    logging.getLogger("fastwire").setLevel(level.upper())
    logging.captureWarnings(True)


def switch_debug() -> str:
    """Change the level to ``debug``, or from there back to the one of ``configure``; return the level in force."""
    ours = logging.getLogger("fastwire")
    level = "debug" if ours.level != logging.DEBUG else _level
    ours.setLevel(level.upper())
    return level


def write_repeated() -> None:
    """Write the counts of bursts of equal warnings that are over; a service calls it now and then."""
    if _bursts is not None:
        _bursts.write_repeated()


def recent_warnings() -> list[dict[str, Any]]:
    """Return the last warning or error of each kind, the newest first: the fields of its log line.

    A kind is an event of a pipeline. ``count`` says how often it was logged, if more than once.
    """
    return list(reversed(_recent.values()))


def console() -> "Console | None":
    """Return the console that readable lines go to, so that a progress line can share it; None off a terminal."""
    return _console


def _remember(record: logging.LogRecord) -> bool:
    """Keep a warning or an error that is about to be written, without its traceback."""
    if record.levelno >= logging.WARNING:
        line = _line(record)
        kind = (line["level"], line["logger"], line["event"], str(line.get("pipeline", "")))
        before = _recent.pop(kind, {})
        count = before.get("count", 1 if before else 0) + line.get("repeated", 1)
        _recent[kind] = {**line, "count": count} if count > 1 else line
        if len(_recent) > _REMEMBERED:
            _recent.popitem(last=False)
    return True


def _line(record: logging.LogRecord) -> dict[str, Any]:
    return {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name.removeprefix("fastwire."),
        "event": record.getMessage(),
        **_fields(record),
    }


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = redact(getattr(record, "fields", {}))
    return {f"{key}_" if key in _RESERVED else key: value for key, value in fields.items()}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(record)
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return to_json(line).decode()


def to_json(value: object, *, indent: bool = False) -> bytes:
    """Return ``value`` as JSON; values that JSON cannot represent become text."""
    try:
        return orjson.dumps(
            value, default=_as_text, option=orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
        )
    except TypeError:  # a number beyond 64 bits, a file name that is no UTF-8
        return json.dumps(value, default=_as_text, indent=2 if indent else None).encode()


def _as_text(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


class _HumanHandler(logging.Handler):
    _STYLES: Mapping[str, str] = {"WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red", "DEBUG": "dim"}

    def __init__(self, console: "Console") -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        from rich.text import Text

        try:
            time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
            line = Text(f"{time} ", style="dim")
            line.append(f"{record.levelname.lower():<7} ", self._STYLES.get(record.levelname, "green"))
            line.append(printable(record.getMessage()), "bold" if record.levelno >= logging.WARNING else "default")
            for key, value in _fields(record).items():
                line.append(f" {printable(key)}=", "dim")
                line.append(f"{value:g}" if isinstance(value, float) else printable(str(_as_text(value))), "default")
            if record.exc_info and record.exc_info[0] is not None:
                for each in logging.Formatter().formatException(record.exc_info).split("\n"):
                    line.append(f"\n  {printable(each)}", "dim")  # no line of it looks like one of the log
            self._console.print(line)
        except Exception:
            self.handleError(record)
