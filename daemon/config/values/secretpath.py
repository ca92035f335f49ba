"""Paths of files with secrets in messages: a secret that stands where its file should is not repeated."""

from pathlib import Path


def shown_path(path: Path | str) -> str:
    """Return the path for a message, or words instead of a text that may be a secret.

    It is one unless the file exists, or at least the first folder that the path names.
    """
    path = Path(path)
    folders = path.parts[:-1]
    try:
        if path.exists() or (len(folders) > path.is_absolute() and Path(*folders[: 1 + path.is_absolute()]).is_dir()):
            return str(path)
    except (OSError, ValueError):
        pass  # too long for a name, or a zero byte
    return "(not shown, as it may be the secret itself)"
