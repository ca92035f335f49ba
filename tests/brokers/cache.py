"""Folders outside the tree that keep what tests fetch from registries, between runs."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder that keeps things of a ``kind``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "fastwire" / kind


def cached(target: Path, recipe: tuple[str, str], make: Callable[[Path], None]) -> Path:
    """The folder ``target``, filled by ``make`` the first time, and again when the ``recipe`` is another one.

    A recipe is a file name and a text; it is written into the folder.
    Several processes may ask at once: one fills a folder of its own and renames it, the others wait.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name, text = recipe
        if _text_of(target / name) == text:
            return target
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            (fresh / name).write_text(text)
            make(fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return target


def _text_of(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None
