"""Golden frames: files of hexadecimal digits in ``golden/``, with room between them and comments after ``#``."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def load(name: str) -> bytes:
    """Return the bytes of ``golden/<name>.hex``."""
    lines = (FOLDER / f"{name}.hex").read_text(encoding="ascii").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def names(prefix: str) -> list[str]:
    """Return the names of all files that begin with ``prefix``, in order."""
    return sorted(path.stem for path in FOLDER.glob(f"{prefix}*.hex"))
