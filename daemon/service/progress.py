"""The progress line on a terminal: records received, rate, files and memory."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..runtime.amounts import counted, format_bytes
from ..runtime.rates import Rate
from ..runtime.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


class ProgressFacts(NamedTuple):
    """The figures of the progress line; totals since the start."""

    rows: int
    payload_bytes: int
    files: int | None = None
    memory_bytes: int = 0
    memory_limit: int = 0
    note: str = ""
    """The cause of a wait, if there is one: ``disk full``, ``no broker``."""


class Progress:
    """One line that is redrawn in place; shows nothing off a terminal (``console`` is None).

    A ``transient`` line is gone once it is closed; any other one stays.
    """

    def __init__(
        self, console: "Console | None", clock: Callable[[], float] = time.monotonic, *, transient: bool = False
    ) -> None:
        self._console = console
        self._transient = transient
        self._clock = clock
        self._rate = Rate()
        self._live: Live | None = None

    def show(self, facts: Callable[[], ProgressFacts]) -> None:
        """Redraw the line; call it a few times a second. Off a terminal nothing is counted for it."""
        if self._console is None or not self._console.is_terminal:
            return
        from rich.live import Live
        from rich.text import Text

        told = facts()
        rate = self._rate.take(self._clock(), told.rows)
        line = Text(progress_line(told, rate), no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(
                line, console=self._console, auto_refresh=False, redirect_stdout=False, transient=self._transient
            )
            self._live.start()
            self._console.show_cursor(True)  # an abort must not leave a terminal without a cursor
        self._live.update(line, refresh=True)

    def close(self) -> None:
        """Stop redrawing the line."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def progress_line(facts: ProgressFacts, rows_per_s: float) -> str:
    """Return the text of the line."""
    parts = [
        f"{facts.rows:,} rows",
        f"{rows_per_s:,.0f} rows/s",
        format_bytes(facts.payload_bytes),
    ]
    if facts.files is not None:
        parts.append(counted(facts.files, "file"))
    if facts.memory_limit:
        parts.append(f"memory {format_bytes(facts.memory_bytes)} of {format_bytes(facts.memory_limit)}")
    if facts.note:
        parts.append(printable(facts.note))
    return "  ".join(parts)
