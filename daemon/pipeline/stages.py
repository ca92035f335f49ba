"""The time of a pipeline by stage, the stage that limits its rate, and the setting that would help."""

from collections.abc import Mapping
from typing import Any

# In the order of the data. Stages that share a thread are the limit only if they fill it together.
LOOP = ("receive", "scan", "decompress", "decode")
SINK = ("encode", "write", "fsync", "sink")
WAITS = ("permits", "back_pressure")
STAGES = (*LOOP, *SINK, *WAITS)

HELP = {
    "receive": "a second daemon that shares the partitions, or reads other topics",
    "scan": "a second daemon that shares the partitions, or reads other topics",
    "decompress": "a second daemon that shares the partitions, or reads other topics",
    "decode": "sink.columns",
    "encode": "sink.writers, sink.compression",
    "write": "sink.compression, a faster disk",
    "fsync": "sink.roll",
    "sink": "the sink itself, or what it waits for",
    "permits": "daemon.memory",
    "processor": "a machine with less other work",
    "broker": "",
}

# Shares of the wall-clock time above which a stage counts as the limit.
WAITING = 0.15
BUSY = 0.80


def stage_figures(
    times_ns: Mapping[str, int], rows: int, seconds: float, *, sink_waits: bool = False
) -> dict[str, Any]:
    """Return nanoseconds per record and the share of all time spent, by stage, and ``limit``, the slowest stage.

    ``times_ns`` are the nanoseconds of each stage of ``STAGES`` (absent: 0) within ``seconds`` of wall-clock time.
    ``back_pressure`` is the time in which the sink's back-pressure paused reading, ``permits`` the time in which no
    records were requested because memory was short. ``limit`` is "broker" if the daemon waits for records, and
    "processor" if the sink's threads do not get to run. It is "sink" while ``sink_waits``, for a disk that is full or a
    store that is away. The result is empty without rows.
    """
    if not rows or seconds <= 0:
        return {}
    known = {stage: times_ns.get(stage, 0) for stage in STAGES}
    known = {stage: spent for stage, spent in known.items() if spent > 0}
    whole = sum(known.values())
    limit = "sink" if sink_waits else _limit(known, seconds * 1e9)
    return {
        "ns_per_record": {stage: round(spent / rows, 1) for stage, spent in known.items()},
        "share": {stage: round(spent / whole, 3) for stage, spent in known.items()},
        "limit": limit,
        "setting": HELP[limit],
    }


def _limit(times_ns: Mapping[str, int], wall_ns: float) -> str:
    def largest(stages: tuple[str, ...]) -> str:
        return max(stages, key=lambda stage: times_ns.get(stage, 0))

    back_pressure = times_ns.get("back_pressure", 0)
    if back_pressure >= WAITING * wall_ns:
        # If the source has waited for the sink longer than the sink has worked, its threads did not get to run.
        return largest(SINK) if sum(times_ns.get(stage, 0) for stage in SINK) >= back_pressure else "processor"
    if times_ns.get("permits", 0) >= WAITING * wall_ns:
        return "permits"
    if sum(times_ns.get(stage, 0) for stage in LOOP) >= BUSY * wall_ns:
        return largest(LOOP)
    return "broker"
