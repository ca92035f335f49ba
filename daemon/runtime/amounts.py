"""Amounts as text for people."""


def counted(count: int, thing: str, things: str = "") -> str:
    """Return a number with its noun, in the plural (``things``, by default with an s) if necessary."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {things or f'{thing}s'}"


def format_bytes(count: int) -> str:
    """Return a number of bytes in readable form: ``17.3 MB``."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"
    return f"{value / 1000:.1f} TB"
