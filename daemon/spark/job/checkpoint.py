"""A job's view of its checkpoint: the system of its source, and the settings that split the last batch."""

import json
import os
from pathlib import Path

__all__ = ["keep_split", "read_origin", "read_split", "split_path"]


def read_origin(checkpoint: Path) -> str | None:
    """Return the source of the last batch: the name of a system, "" for a dataset, None if no batch was planned."""
    batches = [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdecimal()]
    if not batches:
        return None
    text = (checkpoint / "offsets" / str(max(batches))).read_text(encoding="utf-8")
    try:
        # The file has a version, Spark's own metadata, and one line for each source.
        return str(json.loads(text.splitlines()[-1]).get("sys", ""))
    except (ValueError, IndexError, AttributeError):
        return None  # truncated by a crash: Spark handles it


def split_path(checkpoint: Path) -> Path:
    """Return the path of the split settings of the last batch with bad rows; Spark ignores unknown files."""
    return checkpoint / "fastwire" / "split.json"


def read_split(checkpoint: Path) -> str | None:
    """Return the text stored by ``keep_split``, None if there is none."""
    try:
        return split_path(checkpoint).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def keep_split(checkpoint: Path, text: str) -> None:
    """Store ``text`` durably, unless the file holds it already."""
    if read_split(checkpoint) == text:
        return
    path = split_path(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    for folder in (path.parent, checkpoint):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
