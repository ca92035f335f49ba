"""Stacks of a process that hangs: those of its threads, and what each of its tasks awaits.

The process that may hang calls ``install``. A test whose wait for it has timed out sends it ``ASKED``, and reads its
standard error.
"""

import asyncio
import contextlib
import faulthandler
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

ASKED = signal.SIGUSR2
END = "(end of the stacks)"
AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def awaited(work: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a suspended coroutine, each awaited by the one before."""
    while work is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(work, f"{kind}_frame", None)
            if frame is not None:
                yield frame, frame.f_lineno
        work = next((getattr(work, name) for name in AWAITED if hasattr(work, name)), None)


def show_tasks(*_: object) -> None:
    """Write each task of the running loop, with the line at each level of what it awaits, to standard error."""
    with contextlib.suppress(RuntimeError):  # no loop runs
        for task in asyncio.all_tasks():
            print(f"{task!r}:", file=sys.stderr)
            print(*traceback.StackSummary.extract(awaited(task.get_coro())).format(), sep="", file=sys.stderr)
    print(END, file=sys.stderr, flush=True)


def install() -> None:
    """Answer ``ASKED``: by the threads in any case, by the tasks as soon as Python code runs in the main thread."""
    signal.signal(ASKED, show_tasks)
    faulthandler.register(ASKED, file=2, all_threads=True, chain=True)
