"""The line that shows how far a reading is, on a terminal and in a notebook."""

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["Progress"]

EVERY_S = 0.2


class Progress:
    """Shows rows and rate while its block runs; ``shown`` None: on a terminal."""

    def __init__(self, shown: bool | None) -> None:
        self._shown = _is_looked_at() if shown is None else shown
        self._rows = 0
        self._began = self._told = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.live import Live

            live = Live("", console=Console(stderr=True), auto_refresh=False, transient=True)
            live.start()
            self._live = live
        return self

    def __exit__(self, *_: object) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def add(self, rows: int) -> None:
        """Count rows."""
        self._rows += rows
        now = time.monotonic()
        if self._live is not None and now - self._told >= EVERY_S:
            self._told = now
            rate = self._rows / max(now - self._began, 1e-9)
            self._live.update(f"{self._rows:,} rows  {rate:,.0f} rows/s", refresh=True)


def _is_looked_at() -> bool:
    shell = sys.modules.get("IPython")
    return sys.stderr.isatty() or (shell is not None and shell.get_ipython() is not None)
