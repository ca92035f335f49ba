"""What a job has to know of Spark's checkpoint before the query starts: whose it is."""

import json
from pathlib import Path

__all__ = ["read_origin"]


def read_origin(checkpoint: Path) -> str | None:
    """What the last batch was read from: the name of a system, "" for a dataset; None where no batch was planned."""
    batches = [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdecimal()]
    if not batches:
        return None
    text = (checkpoint / "offsets" / str(max(batches))).read_text(encoding="utf-8")
    try:
        # A version, then what Spark has to say itself, then a line a source.
        return str(json.loads(text.splitlines()[-1]).get("sys", ""))
    except (ValueError, IndexError, AttributeError):
        return None  # cut off by a crash: Spark knows what to do
