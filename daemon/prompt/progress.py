"""The line that shows how far a reading is, on a terminal and in a notebook."""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.live import Live

EVERY_S = 0.2


class Progress:
    """Shows rows, share and rate while its block runs; ``shown`` None: on a terminal and in a notebook.

    The share of the whole is what ``share`` returns, from 0 to 1; None if it is not known.
    """

    def __init__(self, shown: bool | None) -> None:
        self.share: Callable[[], float | None] = lambda: None
        self._notebook = _in_notebook()
        self._shown = sys.stderr.isatty() or self._notebook if shown is None else shown
        self._rows = 0
        self._began = self._told = time.monotonic()
        self._live: Live | None = None
        self._cell: Any = None  # the output of a notebook's cell, from the first line on

    def __enter__(self) -> Self:
        if self._shown and not self._notebook:
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
        if self._cell is not None:
            self._tell()

    def add(self, rows: int) -> None:
        """Count rows."""
        self._rows += rows
        if self._shown and time.monotonic() - self._told >= EVERY_S:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        rate = self._rows / max(self._told - self._began, 1e-9)
        share = self.share()
        part = "" if share is None else f"  {share:.0%}"
        line = f"{self._rows:,} rows{part}  {rate:,.0f} rows/s"
        if self._live is not None:
            self._live.update(line, refresh=True)
        elif self._notebook:
            # Not by rich, which wants a package for widgets there.
            shown = {"text/plain": line}
            if self._cell is None:
                self._cell = import_module("IPython.display").display(shown, raw=True, display_id=True)
            else:
                self._cell.update(shown, raw=True)


def _in_notebook() -> bool:
    python = sys.modules.get("IPython")
    return python is not None and hasattr(python.get_ipython(), "kernel")
