"""The exit codes of ``fastwire-consume``; typer ends with 2 for arguments and options that are wrong."""

__all__ = ["EXIT_CONFIG", "EXIT_DONE", "EXIT_FAILED"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_CONFIG = 78
