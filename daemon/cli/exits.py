"""The exit codes of ``fastwire-consume``; typer ends with 2 for arguments and options that are wrong."""

from ..runtime.health import EXIT_DEGRADED

__all__ = ["EXITS", "EXIT_CONFIG", "EXIT_DEGRADED", "EXIT_DONE", "EXIT_FAILED", "EXIT_NOT_READY", "EXIT_STUCK"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_NOT_READY = 3
"""``status``: the daemon answers, and a pipeline is starting, has failed, or reaches no broker."""
EXIT_STUCK = 4
"""``status``: the daemon answers, and a call of a sink does not end."""
EXIT_CONFIG = 78

EXITS = {
    EXIT_DONE: "Done; status: the daemon is healthy.",
    EXIT_FAILED: "Failed or aborted, or a check has failed; status: no daemon answers.",
    2: "Wrong command line.",
    EXIT_NOT_READY: "status: a pipeline is starting, has failed, or reaches no broker.",
    EXIT_STUCK: "status: a call of a sink does not end.",
    EXIT_DEGRADED: "run: drained, but some partitions have stopped; status: the daemon lands some records and not all.",
    EXIT_CONFIG: "Wrong configuration, or a broker or dataset that does not fit it.",
}
"""The meaning of each exit code, in a sentence."""
