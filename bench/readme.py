"""The tables of figures in ``README.md`` and ``docs/figures.md``, from one saved run and nothing else.

    python -m bench --save readme       # best while nothing else runs
    python -m bench.readme [--check]

Writes the text between the two marks of each page anew from ``bench/results/readme.json``; with ``--check`` it writes
nothing and fails if that would change anything.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .__main__ import RESULTS
from .child import ROOT

SAVED = RESULTS / "readme.json"
README, FIGURES = ROOT / "README.md", ROOT / "docs" / "figures.md"
BEGIN, END = "<!-- figures: python -m bench.readme -->", "<!-- end of figures -->"

Row = Mapping[str, Any]
Saved = Mapping[str, Any]
OURS = "fastwire"


def renewed(text: str, tables: str) -> str:
    """A page with ``tables`` between its marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"the page has no {BEGIN!r} … {END!r}")
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def summary(saved: Saved) -> str:
    """The few rows of the README."""
    plain = (100, 1000, "none")
    pulsar, kafka = (_by_case(saved[bench])[plain] for bench in ("discard", "kafka"))
    landed = {row["who"]: row for row in saved["to_parquet"] if (row["size"], row["batch"], row["codec"]) == plain}
    ours = landed["fastwire, 2 writers"]
    spark = {row["way"]: f"{row['rows_per_s']:,}" for row in saved["spark_kafka"]}
    alone, client = landed["pyarrow alone"], landed["pulsar-client batch_receive"]
    rows = [
        ["Pulsar, socket to columns", f"{_cpu(pulsar, OURS)} µs",
         f"pulsar-client {_times(pulsar, 'pulsar-client receive', 'pulsar-client batch_receive')}"],
        ["Kafka, socket to columns", f"{_cpu(kafka, OURS)} µs",
         f"franz-go {_times(kafka, 'franz-go')}, confluent-kafka {_times(kafka, 'confluent-kafka')}"],
        ["Pulsar, socket to Parquet (zstd:1)", f"{ours['cpu_us_per_message']} µs",
         f"pyarrow, writing alone {alone['cpu_us_per_message']}; pulsar-client {client['cpu_us_per_message']}"],
        ["the same, records a second", f"{ours['messages_per_s']:,}",
         f"pyarrow, writing alone {alone['messages_per_s']:,}; pulsar-client {client['messages_per_s']:,}"],
        ["Spark, count from a real Kafka, rows a second", spark["fastwire count"],
         f"Spark's own source {spark['kafka count']}"],
    ]  # fmt: skip
    return _table(["100 B, batches of 1,000, CPU a message", "fastwire", "others"], rows)


def figures(saved: Saved) -> str:
    """All tables of a run."""
    tables = [_pulsar, _kafka, _tank, _tubemq, _tubemq_broker, _parquet, _stores, _commits, _iceberg]
    tables += [_writes, _spark, _jobs, _fanout, _others, _targets]
    parts = (_where(saved), *(table(saved) for table in tables))
    return "\n\n".join(part for part in parts if part)


def _where(saved: Saved) -> str:
    machine = saved["machine"]
    peers = ", ".join(f"{name} {machine[name]}" for name in ("pulsar-client", "confluent-kafka", "pyarrow"))
    earlier = f"\nOf an earlier run, on busy cores: {', '.join(saved['earlier'])}." if saved.get("earlier") else ""
    return (
        f"CPU (user and system of the process) a message, in µs, on {machine['cores']} shared cores ({machine['cpu']},"
        f" Python {machine['python']},\n{peers}; load {machine['load']} before it began).{earlier}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines) if rows else ""
    )


def _by_case(rows: Sequence[Row]) -> dict[tuple[int, int, str], dict[str, Row]]:
    found: dict[tuple[int, int, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["size"], row["batch"], row["codec"]), {})[row["who"]] = row
    return found


def _cpu(rows: Mapping[str, Row], who: str) -> str:
    return str(rows[who]["cpu_us_per_message"]) if who in rows else ""


def _times(rows: Mapping[str, Row], *whom: str) -> str:
    """The best of them, and how many times ours that is."""
    best = min((rows[who]["cpu_us_per_message"] for who in whom if who in rows), default=None)
    return "" if best is None else f"{best:.2g} ({best / rows[OURS]['cpu_us_per_message']:.0f}×)"


def _decoded(saved: Saved, system: str) -> dict[tuple[int, int, str], str]:
    """Scan and decode alone, by case."""
    return {
        (row["size"], row["batch"], row["codec"]): f"{row['cpu_us_per_message']:.3f}"
        for row in saved["scan_decode"]
        if row["system"] == system
    }


def _pulsar(saved: Saved) -> str:
    decoded = _decoded(saved, "pulsar")
    ways = ("pulsar-client receive", "pulsar-client batch_receive")
    rows = []
    for bench, added in (("discard", ""), ("broker", ", from a real broker")):
        for case, by_who in _by_case(saved.get(bench, ())).items():
            size, batch, codec = case
            alone = "" if added else decoded.get(case, "")
            told = (_cpu(by_who, OURS), _cpu(by_who, "raw socket"), _times(by_who, *ways))
            others = (_times(by_who, who) for who in ("Java client", "Rust client"))
            rows.append([f"{size} B, {batch:,}, {codec}{added}", alone, *told, *others])
    head = ("message, messages a batch, codec", "scan + decode", "socket → columns", "a bare socket, only read")
    return _table([*head, "pulsar-client, best way", "Java client", "Rust client"], rows)


def _kafka(saved: Saved) -> str:
    decoded = _decoded(saved, "kafka")
    rows = []
    for case, by_who in _by_case(saved.get("kafka", ())).items():
        size, batch, codec = case
        ours = (decoded.get(case, ""), _cpu(by_who, OURS), _cpu(by_who, "raw socket with CRC"))
        peers = [_times(by_who, who) for who in ("franz-go", "confluent-kafka", "aiokafka")]
        rows.append([f"{size} B, {batch:,}, {codec}", *ours, *peers])
    head = ("Kafka", "scan + decode", "socket → columns", "a socket with CRC-32C")
    return _table([*head, "franz-go", "confluent-kafka, tuned", "aiokafka"], rows)


def _tank(saved: Saved) -> str:
    return _replayed(saved, "tank", "TANK")


def _tubemq(saved: Saved) -> str:
    return _replayed(saved, "tubemq", "TubeMQ, messages a GET")


def _tubemq_broker(saved: Saved) -> str:
    rows = [
        [row["who"], str(row["cpu_us_per_message"]), f"{row['messages_per_s']:,}", str(row["broker_cpu_us"])]
        for row in saved.get("tubemq_broker", ())
    ]
    return _table(["TubeMQ, 100 B, from a real Broker", "CPU", "messages a second", "CPU of the Broker"], rows)


def _replayed(saved: Saved, system: str, title: str) -> str:
    decoded = _decoded(saved, system)
    whom = (OURS, "raw socket", "fastwire, 2 writers", "fastwire, 1 writer", "pyarrow alone")
    rows = [
        [f"{size} B, {batch:,}, {codec}", decoded.get((size, batch, codec), ""), *(_cpu(by_who, who) for who in whom)]
        for (size, batch, codec), by_who in _by_case(saved.get(system, ())).items()
    ]
    head = (title, "scan + decode", "socket → columns", "a bare socket, only read")
    return _table([*head, "socket → Parquet, 2 writers", "1 writer", "pyarrow, writing alone"], rows)


def _parquet(saved: Saved) -> str:
    rows = [
        [
            row["who"],
            str(row["cpu_us_per_message"]),
            f"{row['messages_per_s']:,}",
            "" if row["who"].startswith("pyarrow") else f"{row['peak_rss_mib']:.0f} MiB",
        ]
        for row in saved.get("to_parquet", ())
        if (row["size"], row["batch"], row["codec"]) == (100, 1000, "none")
    ]
    return _table(["100 B, 1,000, none: socket → Parquet zstd:1", "CPU", "records a second", "resident"], rows)


def _commits(saved: Saved) -> str:
    by_who: dict[str, dict[int, str]] = {}
    for row in saved.get("tables", ()):
        by_who.setdefault(row["who"], {})[row["files"]] = str(row["commit_ms"])
    counts = sorted({files for row in by_who.values() for files in row})
    head = ("ms of a commit of one small file, by the files that are there", *(f"{count:,}" for count in counts))
    return _table(head, [[who, *(took.get(count, "") for count in counts)] for who, took in by_who.items()])


def _stores(saved: Saved) -> str:
    rows = [
        [row["who"], str(row["cpu_us_per_message"]), str(row.get("beyond_folder_us", ""))]
        for row in saved.get("store", ())
        if "folders" not in row
    ]
    return _table(["into files of 128 MiB (store: S3 with TLS)", "CPU", "beyond a folder"], rows)


def _iceberg(saved: Saved) -> str:
    rows = [
        [
            row["who"],
            str(row["cpu_us_per_record"]),
            f"{row['start_cpu_s']} s",
            f"{row['seconds']} s",
            f"{row['peak_rss_mib']} MiB",
        ]
        for row in saved.get("connect_iceberg", ())
    ]
    head = ("from a real Kafka into an Iceberg table", "CPU a record", "CPU to start", "2 million records", "resident")
    return _table(head, rows)


def _writes(saved: Saved) -> str:
    rows = [
        [
            f"{row['system']}, {'with' if row['keys'] else 'without'} keys: {row['way']}",
            str(row["cpu_us_per_row"]),
            f"{row['rows_per_s']:,}",
        ]
        for row in saved.get("write_rows", ())
    ]
    return _table(["Arrow rows of 100 B to a topic, LZ4, Pulsar: mixed keys", "CPU a row", "rows a second"], rows)


def _jobs(saved: Saved) -> str:
    rows = [[row["way"], f"{row['rows_per_s']:,}", str(row["cpu_us_per_row"])] for row in saved.get("spark_job", ())]
    return _table(["Spark over landed files, JSON of 100 B", "rows a second", "CPU a row, JVM included"], rows)


def _spark(saved: Saved) -> str:
    rows = []
    for bench, of in (("spark_kafka", "a real Kafka"), ("spark_source", "a server that replays Pulsar")):
        for row in saved.get(bench, ()):
            if (
                row["way"].rpartition("fastwire ")[2] not in ("count", "noop", "parquet zstd")
                or "," not in row["columns"]
            ):
                continue
            way = row["way"].removeprefix("fastwire ")
            times = f"{row['times']:.1f}×" if "times" in row else ""
            rows.append([f"{way}, from {of}", f"{row['rows_per_s']:,}", str(row["cpu_us"]), times])
    head = ("Spark, 100 B, 4 columns", "rows a second", "CPU a row, JVM included", "as fast as Spark's own source")
    return _table(head, rows)


def _fanout(saved: Saved) -> str:
    by_plan: dict[tuple[int, int], dict[str, Row]] = {}
    for row in saved.get("fanout", ()):
        by_plan.setdefault((row["topics"], row["records_a_topic"]), {})[row["into"]] = row
    rows = [
        [
            f"{topics:,} topics, {records:,} records of each",
            *(f"{into[kind]['cpu_us_per_record']:.2f}" for kind in ("one dataset", "a dataset a topic")),
            f"{into['a dataset a topic']['times_one']:.1f}×",
            f"{into['a dataset a topic']['peak_rss_mib']:.0f} MiB",
        ]
        for (topics, records), into in by_plan.items()
    ]
    head = ("Kafka, 100 B, 2 partitions a topic, start and end included", "one dataset", "a dataset for each topic")
    return _table((*head, "times", "resident"), rows)


def _others(saved: Saved) -> str:
    rows = []
    if shared := _by_case(saved.get("shared", ())):
        ours, theirs = (
            " and ".join(f"{by_who[who]['more_us']:.3f}" for by_who in shared.values())
            for who in ("fastwire shared", "pulsar-client batch_receive_ack_each")
        )
        what = "individual acknowledgements (Shared) on top of a position's, in batches of 1,000 and in entries of one"
        rows.append([what, f"{ours}; pulsar-client {theirs}"])
    for row in saved.get("partitions", ()):
        if "idle_cpu_percent" in row:
            rows.append([f"idle, {row['partitions']:,} partitions", f"{row['idle_cpu_percent']} % of a core"])
        elif row["partitions"] > 1:
            told = (
                f"{row['times_one']}× CPU a message, and {row['setup_ms_per_partition']} ms a partition to find,"
                f" subscribe and leave it; {row['peak_rss_mib']:.0f} MiB resident"
            )
            rows.append([f"{row['partitions']:,} partitions instead of one", told])
    for row in saved.get("start", ()):
        told = f"{row['first_record_s']} s, {row['cpu_s']} s of CPU; Python itself {row['python_cpu_s']}"
        rows.append([f"start to first record, {row['partitions']} partitions, into `stdout`", told])
    return _table(["", ""], rows)


def _targets(saved: Saved) -> str:
    met = {True: "yes", False: "no", None: ""}
    rows = [
        [row["work"], str(row["target"]), "" if row["measured"] is None else str(row["measured"]), met[row["met"]]]
        for row in saved["targets"]
    ]
    return _table(["target (µs a message where nothing else is said)", "aimed at", "measured", "met"], rows)


def main() -> None:
    """Write both pages, or compare them."""
    saved = json.loads(SAVED.read_text(encoding="utf-8"))
    for page, tables in ((README, summary(saved)), (FIGURES, figures(saved))):
        text = page.read_text(encoding="utf-8")
        new = renewed(text, tables)
        if "--check" not in sys.argv:
            page.write_text(new, encoding="utf-8")
        elif new != text:
            raise SystemExit(f"{page.relative_to(ROOT)} does not show {SAVED.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
