"""Records from a broker into Spark by ``format("fastwire")``: count, nothing, and Parquet.

    python -m bench.spark_source [--json] [--rows N]

One Spark on two threads, its JVM in the figures; a replaying broker in a process of its own. Each way is run twice and
the second run counts: the first pays for classes and workers. ``scan`` is Spark counting rows of Parquet files.
CPU is that of the JVM and all its Python processes.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.spark.session import SETTINGS

from .child import Case, serving, spark_is_here, table

PARTITIONS = 4
NARROW = "key,value,partition,offset"


def session(*, fastwire: bool = True, **settings: str) -> Any:
    """A small Spark with two task slots, which knows our source if it is to."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("fastwire-bench")
    more = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for key, value in (SETTINGS | more | settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if fastwire:
        from fastwire_daemon.spark.register import FastwireSource

        spark.dataSource.register(FastwireSource)
    return spark


def cpu_s(java: psutil.Process) -> float:
    """CPU of the JVM and of every process below it, those that have ended included."""
    used = 0.0
    for each in [java, *java.children(recursive=True)]:
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


def measured_by(spark: Any, rows: int) -> Callable[[str, str, Callable[[], Any]], dict[str, Any]]:
    """A function that measures work on ``rows`` rows: rate and CPU of the second of two runs."""
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)

    def measured(way: str, columns: str, work: Callable[[], Any]) -> dict[str, Any]:
        for _ in range(2):
            before, began = cpu_s(java), time.perf_counter()
            work()
            wall, used = time.perf_counter() - began, cpu_s(java) - before
        return {
            "way": way,
            "columns": columns,
            "rows": rows,
            "s": round(wall, 2),
            "rows_per_s": round(rows / wall),
            "cpu_us": round(used / rows * 1e6, 3),
        }

    return measured


def main() -> None:
    """Run all of it."""
    if not spark_is_here():
        return
    rows = int(sys.argv[sys.argv.index("--rows") + 1]) if "--rows" in sys.argv else 8_000_000
    case = Case(100, 1000, "none")
    folder = Path(tempfile.mkdtemp(prefix="fastwire-bench-"))
    began = time.perf_counter()
    spark = session()
    start_s = round(time.perf_counter() - began, 1)
    measured = measured_by(spark, rows)
    figures: list[dict[str, Any]] = []

    def add(way: str, columns: str, work: Callable[[], Any]) -> None:
        figures.append({"bench": "spark_source", **measured(way, columns, work)})
        if "--json" in sys.argv:
            print(json.dumps(figures[-1]), flush=True)

    try:
        with serving(case, rows, PARTITIONS) as server:
            given = {"servers": server["url"], "subscribe": server["topic"]}
            narrow = spark.read.format("fastwire").options(**given, columns=NARROW).load()
            whole = spark.read.format("fastwire").options(**given).load()
            if narrow.count() != rows:
                raise SystemExit("Spark has not counted what the broker has sent")
            add("count", NARROW, narrow.count)
            add("noop", NARROW, lambda: narrow.write.format("noop").mode("overwrite").save())
            target = str(folder / "out")
            zstd = narrow.write.option("compression", "zstd").mode("overwrite")
            add("parquet zstd", NARROW, lambda: zstd.parquet(target))
            add("scan", NARROW, lambda: spark.read.parquet(target).write.format("noop").mode("overwrite").save())
            add("noop", "default", lambda: whole.write.format("noop").mode("overwrite").save())
        figures.append({"bench": "spark_source", "way": "session start", "s": start_s})
        if "--json" in sys.argv:
            print(json.dumps(figures[-1]), flush=True)
        else:
            print(table(figures))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
