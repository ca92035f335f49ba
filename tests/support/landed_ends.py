"""The ends of what has landed, as a dataset's log has them: of systems whose brokers keep no progress."""

from pathlib import Path

from fastwire_daemon.dataset.commitlog.entry import LogEntry


def behind(path: Path, ends: list[int]) -> list[tuple[int, int, int]]:
    """The partitions that have not landed up to ``ends``, positions by number: each with what has landed."""
    landed = [0] * len(ends)
    for file in path.glob("_fastwire/log/*/*.json"):
        for span in LogEntry.decode(file.read_bytes(), file.name).spans:
            number = int(span.log.partition)
            landed[number] = max(landed[number], span.end.a)
    return [(number, here, end) for number, (here, end) in enumerate(zip(landed, ends, strict=True)) if here < end]
