"""The job on Spark, from landed files or brokers into a table, beside what Spark takes to scan and to write the files.

    python -m bench.spark_job [--json]

Orders as JSON of about 100 B, in one session on two threads, each way once after a warm-up. CPU is that of this
process, of Spark's Java and of its Python workers. Without PySpark or Java nothing is measured.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from fastwire_daemon.config import parse_config
from fastwire_daemon.spark.job.run import open_session, run_jobs
from tests.spark.landed import Landed

from .child import Case, serving, show, spark_is_here

FILES, ROWS = 8, 250_000
SETTINGS = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.driver.bindAddress": "127.0.0.1"}
DDL = "order_id BIGINT NOT NULL, customer STRING, amount DOUBLE, note STRING"
JOBS = {
    "none": 'decode = { format = "none" }',
    "json": 'decode = { format = "json", schema = "FOLDER/orders.ddl" }',
    "json, dedupe": (
        'decode = { format = "json", schema = "FOLDER/orders.ddl" }\n'
        'dedupe = { key = ["order_id"], watermark = "1 hour" }'
    ),
}


def land(path: Path) -> int:
    """A dataset of orders; how many."""
    dice, landed = random.Random(1), Landed(path)
    for file in range(FILES):
        first = file * ROWS
        landed.add(
            [
                b'{"order_id": %d, "customer": "c%05d", "amount": %d.25, "note": "%030x"}'
                % (number, dice.randrange(50_000), dice.randrange(1000), dice.getrandbits(120))
                for number in range(first, first + ROWS)
            ]
        )
    return FILES * ROWS


def used() -> float:
    """Processor seconds of this process and of all below it, so far."""
    times = [process.cpu_times() for process in processes()]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def processes() -> Iterator[psutil.Process]:
    own = psutil.Process()
    yield own
    yield from own.children(recursive=True)


def measured(way: str, rows: int, work: Callable[[], object]) -> dict[str, Any]:
    cpu, clock = used(), time.perf_counter()
    work()
    seconds = time.perf_counter() - clock
    cpu = used() - cpu
    return {
        "bench": "spark_job",
        "way": way,
        "rows": rows,
        "rows_per_s": round(rows / seconds),
        "cpu_us_per_row": round(cpu / rows * 1e6, 2),
    }


def job(spark: Any, folder: Path, name: str, number: int, source: str = "") -> Callable[[], object]:
    place = folder / f"job-{number}"
    text = f"""
[spark.orders]
source = {{ {source or f'dataset = "{folder}/landed"'} }}
output = {{ path = "{place}/table", dead_letters = "{place}/dead-letters", checkpoint = "{place}/checkpoint" }}
{JOBS[name].replace("FOLDER", str(folder))}
"""
    config = parse_config(text, {})

    def work() -> None:
        if run_jobs(spark, config):
            raise SystemExit(f"the job {name} has failed")

    return work


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    rows = land(folder / "landed")
    (folder / "orders.ddl").write_text(DDL, encoding="utf-8")
    spark = open_session(SETTINGS, "local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    landed = spark.read.parquet(str(folder / "landed"))
    parsed = landed.selectExpr(f"from_json(CAST(value AS STRING), '{DDL}') AS record", "*").select(
        "record.*", "topic", "partition", "ledger", "offset", "batchIndex", "timestamp"
    )
    peers = {
        "Spark's scan": lambda: landed.write.format("noop").mode("append").save(),
        "Spark's scan and from_json": lambda: parsed.write.format("noop").mode("append").save(),
        "Spark's scan, from_json and Parquet": lambda: (
            parsed.write.mode("overwrite").option("compression", "zstd").parquet(str(folder / "peer"))
        ),
    }
    try:
        peers["Spark's scan, from_json and Parquet"]()
        job(spark, folder, "none", 0)()
        for way, work in peers.items():
            yield measured(way, rows, work)
        for number, name in enumerate(JOBS, 1):
            yield measured(f"job: {name}", rows, job(spark, folder, name, number))
        with serving(Case(100, 1000, "none"), rows) as server:
            direct = f'url = "{server["url"]}", topics = ["{server["topic"]}"]'
            for number in (100, 101):  # the first pays for the workers that read
                figure = measured("job: none, direct", rows, job(spark, folder, "none", number, direct))
            yield figure
    finally:
        spark.stop()


def main() -> None:
    """Measure and print."""
    if not spark_is_here():
        return
    with tempfile.TemporaryDirectory() as folder:
        show(list(rows_of(Path(folder))))


if __name__ == "__main__":
    main()
