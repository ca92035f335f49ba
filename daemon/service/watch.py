"""Notices that the text of a file has changed: configurations that are replaced without a signal."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ..runtime.tasks import in_thread

LOOK_INTERVAL_S = 5.0
LOOK_S = 5.0


async def call_on_change(path: Path, text: str, call: Callable[[], None], *, every_s: float = LOOK_INTERVAL_S) -> None:
    """Call ``call`` each time the text of ``path`` is another one than before, ``text`` at first; run until cancelled.

    The text decides, not the time or the inode: a mounted ConfigMap is replaced by moving a symbolic link, and an equal
    copy is no change. A file that cannot be read is looked at again, because it may be between two names.
    """
    while True:
        await asyncio.sleep(every_s)
        try:
            found = await in_thread(lambda: path.read_text(encoding="utf-8", errors="replace"), LOOK_S, f"read {path}")
        except (OSError, TimeoutError):
            continue
        if found != text:
            text = found
            call()
