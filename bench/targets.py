"""Targets, row by row, beside the figures of a run of all benches; ``python -m bench`` ends with them.

A target is CPU of the consumer's process in µs a message where nothing else is said. A figure that needs another one
beside it (pyarrow alone, the bare socket) takes it from the same run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .child import Case
from .pipeline import CHECKED

Rows = Sequence[Mapping[str, Any]]
Figures = Mapping[str, Rows]

BATCHES, LZ4, SNAPPY, LARGE, SINGLE, GETS = (
    Case(100, 1000, "none"),
    Case(100, 1000, "lz4"),
    Case(100, 1000, "snappy"),
    Case(1024, 1000, "none"),
    Case(100, 1, "none"),
    Case(100, 3450, "none"),
)
BUDGET_MIB = 512  # of a bench's pipeline
ONE, TWO, ALONE = "fastwire, 1 writer", "fastwire, 2 writers", "pyarrow alone"


def of(figures: Figures, bench: str, case: Case | None = None, **fields: Any) -> list[Mapping[str, Any]]:
    """The rows of a bench with these fields."""
    wanted = {**(case.fields() if case is not None else {}), **fields}
    return [row for row in figures.get(bench, ()) if all(row.get(name) == value for name, value in wanted.items())]


def figure(figures: Figures, name: str, bench: str, case: Case | None = None, **fields: Any) -> float | None:
    """``name`` of the one row that it is about."""
    rows = [row for row in of(figures, bench, case, **fields) if name in row]
    return float(rows[0][name]) if rows else None


def cpu(bench: str, case: Case, who: str = "fastwire") -> Callable[[Figures], float | None]:
    """CPU a message of ``who``."""
    return lambda figures: figure(figures, "cpu_us_per_message", bench, case, who=who)


def of_pyarrow(name: str, who: str) -> Callable[[Figures], float | None]:
    """A figure of pipelines into Parquet, divided by that of pyarrow alone."""

    def found(figures: Figures) -> float | None:
        mine, theirs = (figure(figures, name, "to_parquet", BATCHES, who=each) for each in (who, ALONE))
        return None if mine is None or theirs is None else mine / theirs

    return found


def of_floor(bench: str, socket: str = CHECKED) -> Callable[[Figures], float | None]:
    """The CPU of a pipeline into Parquet, divided by that of a bare ``socket`` and the codec together."""

    def found(figures: Figures) -> float | None:
        ours, *floor = (
            figure(figures, "cpu_us_per_message", bench, BATCHES, who=who) for who in (ONE, socket, "codec alone")
        )
        return None if ours is None or None in floor else ours / sum(filter(None, floor))

    return found


def encoding(rows: str, who: str) -> Callable[[Figures], float | None]:
    """The CPU of the encoder, divided by that of ``who``."""
    return lambda figures: figure(figures, "ours_times", "parquet", rows=rows, who=who)


def acks(case: Case) -> Callable[[Figures], float | None]:
    """Return the cost that individual acknowledgements add."""
    return lambda figures: figure(figures, "more_us", "shared", case, who="fastwire shared")


def decoded(form: str) -> Callable[[Figures], float | None]:
    """CPU a value in this format."""
    return lambda figures: figure(figures, "cpu_us_per_message", "decode_values", who="fastwire", format=form)


def job(way: str, peer: str) -> Callable[[Figures], float | None]:
    """The rows a second of a job on Spark, divided by those of plain Spark."""

    def found(figures: Figures) -> float | None:
        ours, theirs = (figure(figures, "rows_per_s", "spark_job", way=each) for each in (way, peer))
        return None if ours is None or theirs is None else ours / theirs

    return found


@dataclass(frozen=True)
class Target:
    """A row of the table; ``least`` turns the comparison round."""

    work: str
    aim: float
    found: Callable[[Figures], float | None]
    bench: str = ""
    case: Case | None = None
    least: bool = False


TARGETS = (
    Target(
        "scan, CRC and decode, 1,000 x 100 B",
        0.025,
        lambda figures: figure(figures, "cpu_us_per_message", "scan_decode", BATCHES),
    ),
    Target("Avro values of 8 fields to columns", 0.10, decoded("avro"), "decode_values"),
    Target("Protobuf values of 8 fields to columns", 0.12, decoded("protobuf"), "decode_values"),
    Target("JSON values of 8 fields to columns", 0.25, decoded("json"), "decode_values"),
    Target("socket to columns, 1,000 x 100 B", 0.05, cpu("discard", BATCHES), "discard", BATCHES),
    Target("the same in lz4", 0.08, cpu("discard", LZ4), "discard", LZ4),
    Target("the same with 1 KiB a message", 0.30, cpu("discard", LARGE), "discard", LARGE),
    Target("entries of one message, replayed", 0.25, cpu("discard", SINGLE), "discard", SINGLE),
    Target("entries of one message, a real broker", 1.3, cpu("broker", SINGLE), "broker", SINGLE),
    Target("socket to columns, a real broker", 0.05, cpu("broker", BATCHES), "broker", BATCHES),
    Target("Kafka, socket to columns", 0.05, cpu("kafka", BATCHES), "kafka", BATCHES),
    Target("TANK, socket to columns", 0.03, cpu("tank", BATCHES), "tank", BATCHES),
    Target("the same in snappy", 0.08, cpu("tank", SNAPPY), "tank", SNAPPY),
    Target("the same with 1 KiB a message", 0.25, cpu("tank", LARGE), "tank", LARGE),
    Target("TubeMQ, socket to columns", 0.10, cpu("tubemq", GETS), "tubemq", GETS),
    Target(
        "TubeMQ, a real Broker, times less CPU than its Java consumer",
        10,
        lambda figures: figure(figures, "times_our_cpu", "tubemq_broker", who="Java consumer"),
        least=True,
    ),
    Target("Parquet in memory, 100 B, times the codec alone", 1.2, encoding("envelope, 100 B", "codec alone")),
    Target("the same, times pyarrow", 0.75, encoding("envelope, 100 B", "pyarrow")),
    Target("values of 1 KiB, times the codec alone", 1.1, encoding("values of 1 KiB", "codec alone")),
    Target("eight typed columns, times pyarrow", 0.8, encoding("eight typed", "pyarrow")),
    Target("socket to Parquet, times socket, CRC and codec", 1.5, of_floor("to_parquet"), "to_parquet", BATCHES),
    Target("the same for Kafka", 1.5, of_floor("kafka")),
    Target("the same for TANK, which has no CRC", 1.5, of_floor("tank", "raw socket")),
    Target("its rows a second, times pyarrow's", 0.95, of_pyarrow("messages_per_s", ONE), least=True),
    Target(
        "two writers, times faster than pyarrow",
        1.3,
        of_pyarrow("messages_per_s", TWO),
        least=True,
    ),
    Target("acknowledgements one by one, in batches", 0.05, acks(BATCHES), "shared", BATCHES),
    Target("the same, entries of one message", 0.05, acks(SINGLE), "shared", SINGLE),
    Target(
        "1,000 partitions, times one's CPU",
        1.3,
        lambda figures: figure(figures, "times_one", "partitions", partitions=1000),
    ),
    Target(
        "resident with 1,000 partitions, MiB",
        BUDGET_MIB + 128,
        lambda figures: figure(figures, "peak_rss_mib", "partitions", partitions=1000),
    ),
    Target(
        "idle with 1,000 partitions, % of a core",
        1.0,
        lambda figures: figure(figures, "idle_cpu_percent", "partitions"),
    ),
    Target(
        "into a store of this machine with TLS, beyond a folder",
        0.05,
        lambda figures: figure(figures, "beyond_folder_us", "store", BATCHES, who="store"),
    ),
    Target(
        "rows into PostgreSQL, times its driver's CPU",
        1.2,
        lambda figures: figure(figures, "times_the_driver", "postgresql", who="fastwire"),
    ),
    Target(
        "a job on Spark with JSON, times plain Spark's rows a second",
        2,
        job("job: json", "Spark's scan, from_json and Parquet"),
        least=True,
    ),
    Target(
        "resident with 1,000 open folders in a store, MiB",
        BUDGET_MIB + 128,
        lambda figures: figure(figures, "peak_rss_mib", "store", folders=1000),
    ),
    Target("start to first record, s of CPU", 0.5, lambda figures: figure(figures, "cpu_s", "start")),
)


def peers(figures: Figures, target: Target) -> str:
    """Return the ratios of other clients to fastwire, for the same work."""
    rows = of(figures, target.bench, target.case) if target.bench else []
    told = [f"{row['who']} {row['times_our_cpu']}x" for row in rows[1:] if "times_our_cpu" in row]
    told += [f"{row['who']} {row['more_us']}" for row in rows[2:] if "more_us" in row]
    return ", ".join(told)


def judged(figures: Figures) -> list[dict[str, Any]]:
    """The table: each target with what was measured, whether that is as good, and what the others took."""
    table = []
    for target in TARGETS:
        found = target.found(figures)
        row: dict[str, Any] = {"bench": "targets", "work": target.work, "target": target.aim}
        if found is None:
            row |= {"measured": None, "met": None}
        else:
            met = found >= target.aim if target.least else found <= target.aim
            row |= {"measured": round(found, 3), "met": met, "others": peers(figures, target)}
        table.append(row)
    return table
