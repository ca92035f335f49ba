"""Text of a configuration: line numbers of keys, sizes and times, ``${…}`` in strings.

``tomllib`` does not return the lines of keys, so :func:`key_lines` scans the text once more.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KeyPath = tuple[str | int, ...]

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


_MOST_TIME_S = 36_500 * 86_400.0  # timers and calendars of libraries overflow behind it
_MOST_DIGITS = 30  # more than any size or time needs; hundreds of digits would overflow a float


def either(choices: list[str]) -> str:
    """Return ``choices`` as words for a message: ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def every(names: list[str]) -> str:
    """Return ``names`` as words for a message: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def parse_size(value: object) -> int:
    """Return a number of bytes from ``"128MiB"`` (powers of 1024), ``"128MB"`` (of 1000) or a plain number of bytes.

    Raises ValueError.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"a size cannot be negative, not {value}")
        return value
    if not isinstance(value, str):
        raise ValueError(f'must be a size such as "128MiB", not {kind(value)}')
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError(f'must be a size such as "128MiB", not "{value}"')
    number, unit = match.groups()
    factor = _SIZE_UNITS.get(unit.lower())
    if factor is None:
        letter = unit[:1].upper()
        if letter in "KMGT" and len(unit) == 1:
            raise ValueError(f'"{value}" can be read in two ways: write "{number}{letter}iB" or "{number}{letter}B"')
        raise ValueError(f'"{value}" has an unknown unit: the units are B, KB, MB, GB, TB, KiB, MiB, GiB or TiB')
    if len(number) > _MOST_DIGITS:
        raise ValueError(f'"{value[:_MOST_DIGITS]}…" has too many digits')
    return round(float(number) * factor) if "." in number else int(number) * factor


def format_size(size: int) -> str:
    """Return ``size`` (bytes) as text for a configuration file, in the largest exact unit."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _SIZE_UNITS[unit.lower()]
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    if size >= 2**20:
        return f"{size / 2**20:.1f}MiB"
    return f"{size}B"


def parse_duration(value: object, most_s: float = _MOST_TIME_S) -> float:
    """Return seconds from ``"30s"``, ``"500ms"``, ``"5m"``, ``"1h30m"`` or ``"2d"``.

    Raises ValueError, also for more than ``most_s``.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'needs a unit: write "{value}s" for seconds')
    if not isinstance(value, str):
        raise ValueError(f'must be a time such as "30s", not {kind(value)}')
    seconds, at = 0.0, 0
    while match := _TIME_PART.match(value, at):
        number, unit = match.groups()
        if unit.lower() not in _TIME_UNITS:
            raise ValueError(f'"{value}" has an unknown unit: the units are ms, s, m, h or d')
        if len(number) > _MOST_DIGITS:
            raise ValueError(f'"{value[:_MOST_DIGITS]}…" has too many digits')
        seconds += float(number) * _TIME_UNITS[unit.lower()]
        at = match.end()
    if at == 0 or at < len(value):
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            raise ValueError(f'"{value}" needs a unit: write "{value.strip()}s" for seconds')
        raise ValueError(f'must be a time such as "30s", not "{value}"')
    if seconds > most_s:
        raise ValueError(f'"{value}" is too long: at most {format_duration(most_s)}')
    return seconds


def format_duration(seconds: float) -> str:
    """Return ``seconds`` as text for a configuration file."""
    for unit in ("d", "h", "m"):
        factor = _TIME_UNITS[unit]
        if seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:.0f}{unit}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean "x"?`` for the known word most similar to ``word``, or "" if none is similar."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f', did you mean "{close[0]}"?' if close else ""


def kind(value: object) -> str:
    """Name the TOML type of ``value`` for a message; the value itself may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    return "a date or time"


# -- ${…} ------------------------------------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Interpolation:
    """The result of :func:`interpolate`: the document, and the problems found in it."""

    tree: dict[str, Any]
    problems: list[tuple[KeyPath, str]] = field(default_factory=list)
    substituted: dict[KeyPath, list[tuple[str, str]]] = field(default_factory=dict)
    """By key: (placeholder, substituted text). Messages show the placeholder, because the text may be a secret."""


def interpolate(tree: Mapping[str, Any], environ: Mapping[str, str]) -> Interpolation:
    """Replace ``${NAME}``, ``${NAME:-default}`` and ``${file:/path}`` inside the string values of a parsed document.

    Substituted text is not scanned again. The default applies when the variable is unset or empty. ``$${`` stands for a
    plain ``${``. The last line end of a file is removed.
    """
    result = Interpolation({})

    def walk(value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            return _interpolate_text(value, path, environ, result) if "${" in value else value
        if isinstance(value, Mapping):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        return value

    result.tree = walk(tree, ())
    return result


def _interpolate_text(text: str, path: KeyPath, environ: Mapping[str, str], result: Interpolation) -> str:
    def replace(match: re.Match[str]) -> str:
        whole, inner = match.group(0), match.group(1)
        if whole == "$${":
            return "${"
        try:
            if inner is None:
                raise ValueError('"${" without a "}" after it: write "$${" for a plain "${"')
            became = _resolve(inner, environ)
        except ValueError as exc:
            result.problems.append((path, str(exc)))
            return whole
        result.substituted.setdefault(path, []).append((whole, became))
        return became

    return _PLACEHOLDER.sub(replace, text)


def _resolve(inner: str, environ: Mapping[str, str]) -> str:
    if inner.startswith("file:"):
        name = inner.removeprefix("file:")
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as exc:
            raise ValueError(f"cannot read {name}: {exc.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"cannot read {name}: it is not UTF-8 text") from None
        return text.removesuffix("\n").removesuffix("\r")
    name, has_default, default = inner.partition(":-")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f'"${{{inner}}}" is not one of ${{NAME}}, ${{NAME:-default}}, ${{file:/path}}')
    value = environ.get(name)
    if has_default and not value:
        return default
    if value is None:
        raise ValueError(f'environment variable {name} is not set (to give a default, write "${{{name}:-default}}")')
    return value


# -- places ----------------------------------------------------------------------------------------------------------


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of every table, key and array item of a *valid* TOML document."""
    places = _Places(text)
    places.document()
    return places.lines


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRINGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    # Up to two quotes may stand right before the closing three.
    ('"""', re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL)),
    ("'''", re.compile(r"'''.*?'{3,5}", re.DOTALL)),
    ('"', re.compile(r'"(?:[^"\\\n]|\\.)*"')),
    ("'", re.compile(r"'[^'\n]*'")),
)


class _Places:
    """Scans a document that tomllib has accepted; on any other text it stops early with incomplete lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._counted_to = 0
        self._line = 1
        self._array_sizes: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_SPACE)
            if self.at >= len(self.text):
                return
            before = self.at
            if self.text.startswith("[[", self.at):
                table = self._header(2)
            elif self.text[self.at] == "[":
                table = self._header(1)
            else:
                self._pair(table)
            if self.at == before:
                return

    def _header(self, brackets: int) -> KeyPath:
        line = self._here()
        self.at += brackets
        path: KeyPath = ()
        for part in self._key():
            path = (*path, part)
            if path in self._array_sizes:
                path = (*path, self._array_sizes[path] - 1)
            self.lines.setdefault(path, line)
        if brackets == 2 and path:
            path = path[:-1] if isinstance(path[-1], int) else path
            index = self._array_sizes.get(path, 0)
            self._array_sizes[path] = index + 1
            path = (*path, index)
        self.lines[path] = line
        self.at += brackets
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._here()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._skip(_BLANK)
        if self._take("="):
            self._skip(_BLANK)
            self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] in ("'", '"'):
                raw = self._string()
                parts.append(_unquote(raw))
            elif match := _BARE_KEY.match(self.text, self.at):
                self.at = match.end()
                parts.append(match.group())
            self._skip(_BLANK)
            if not self._take("."):
                return parts

    def _value(self, path: KeyPath) -> None:
        if self.text[self.at : self.at + 1] in ("'", '"'):
            self._string()
        elif self._take("["):
            index = 0
            self._skip(_SPACE)
            while self.at < len(self.text) and not self._take("]"):
                before = self.at
                self.lines[*path, index] = self._here()
                self._value((*path, index))
                index += 1
                self._skip(_SPACE)
                self._take(",")
                self._skip(_SPACE)
                if self.at == before:
                    return
        elif self._take("{"):
            self._skip(_SPACE)
            while self.at < len(self.text) and not self._take("}"):
                before = self.at
                self._pair(path)
                self._skip(_SPACE)
                self._take(",")
                self._skip(_SPACE)
                if self.at == before:
                    return
        else:
            self._skip(_SCALAR)

    def _string(self) -> str:
        for opening, pattern in _STRINGS:
            if self.text.startswith(opening, self.at) and (match := pattern.match(self.text, self.at)):
                self.at = match.end()
                return match.group()
        return ""

    def _take(self, mark: str) -> bool:
        found = self.text.startswith(mark, self.at)
        if found:
            self.at += len(mark)
        return found

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def _here(self) -> int:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPED: Mapping[str, str] = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def _unquote(raw: str) -> str:
    inner = raw[1:-1]
    if raw[:1] != '"':
        return inner

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code[1:], 16)) if code[0] in "uU" else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, inner)
