"""SQL over a topic of JSON: the command ``query`` beside loops of confluent-kafka with DuckDB.

    python -m bench.query [--json] [RECORDS]

A million records, without RECORDS, are written to the embedded broker, which is a process of its own. Each way groups
all of them by a field. ``cpu_s`` is that of its process, ``start_cpu_s`` that of a run over no records: the interpreter
and its imports. ``times`` compares what is left. ``loop, json`` parses each value in Python, as most people write it;
``loop, DuckDB`` leaves that to DuckDB. kwack is not here: neither it nor its dependencies are on Maven Central.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .child import ROOT, Child, machine, run, show

RECORDS = 1_000_000
TOPIC = "orders"
PARTITIONS = 4
SQL = "SELECT city, count(*) AS n, avg(amount) AS mean FROM orders GROUP BY city ORDER BY city"
FIELDS = [
    {"name": name, "type": ["null", kind]} for name, kind in (("id", "long"), ("city", "string"), ("amount", "double"))
]


@contextmanager
def broker(records: int) -> Iterator[str]:
    """Serve a topic with so many records."""
    import pyarrow as pa

    import fastwire_daemon as fw

    command = [sys.executable, "-c", SERVE]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        cities = [f"city of the number {number}" for number in range(100)]
        ids = range(records)
        columns = {"id": ids, "city": [cities[n % 100] for n in ids], "amount": [n % 1000 / 4 for n in ids]}
        fw.write(url, TOPIC, pa.table(columns), progress=False)
        yield url
    finally:
        process.kill()
        process.communicate()


SERVE = f"""
import threading
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
with running(KafkaDevBroker(KafkaOptions())) as made:
    made.create_topic("{TOPIC}", {PARTITIONS})
    print(made.url, flush=True)
    threading.Event().wait()
"""

COMMAND = "import fastwire_consume; fastwire_consume.main()"


def loop(servers: str, records: int, *, parse: bool) -> list[tuple[Any, ...]]:
    """Read all records with the official client into DuckDB, and ask it."""
    import duckdb
    import pyarrow as pa
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.offset.store": False, "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    values: list[bytes | None] = []
    while len(values) < records:
        values.extend(message.value() for message in consumer.consume(10_000, timeout=30))
    connection = duckdb.connect()
    if parse:
        parsed = [json.loads(value or b"null") for value in values] or [{"city": "", "amount": 0.5}]
        connection.register(TOPIC, pa.Table.from_pylist(parsed))
    else:
        connection.register("records", pa.table({"value": pa.array(values, pa.binary()).cast(pa.string())}))
        fields = "value->>'$.city' AS city, (value->>'$.amount')::DOUBLE AS amount"
        connection.execute(f"CREATE VIEW {TOPIC} AS SELECT {fields} FROM records")
    found = connection.execute(SQL).fetchall()
    consumer.close()
    return found


def peer(servers: str, records: int, how: str) -> list[str]:
    """Return the arguments of a loop as a child."""
    return ["-m", "bench.query", "--loop", how, servers, str(records)]


def ended_well(child: Child) -> Child:
    """Return a child that has not failed."""
    if child.code:
        raise SystemExit(child.error)
    return child


def main() -> None:
    """Measure and print; as a child, be one of the loops."""
    if "--loop" in sys.argv:
        how, servers, count = sys.argv[-3:]
        print(json.dumps({"groups": len(loop(servers, int(count), parse=how == "json"))}))
        return
    records = next((int(word) for word in sys.argv[1:] if word.isdigit()), RECORDS)
    print(json.dumps(machine()), file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with broker(records) as url, tempfile.TemporaryDirectory(prefix="fastwire-bench-") as place:
        folder = Path(place)
        schema = folder / "order.avsc"
        schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": FIELDS}), encoding="utf-8")
        servers = urlsplit(url).netloc
        typed = ["--decode", "json", "--schema-file", str(schema)]
        query = ["-c", COMMAND, "query", url, TOPIC, SQL, *typed, "--format", "csv"]
        ways = {
            "query": ([*query, "--from", "latest"], query),
            **{f"loop, {name}": [peer(servers, count, name) for count in (0, records)] for name in ("DuckDB", "json")},
        }
        for who, (nothing, everything) in ways.items():
            start = ended_well(run(nothing, folder))
            began = time.perf_counter()
            child = ended_well(run(everything, folder))
            wall = time.perf_counter() - began
            cost = child.cpu_s - start.cpu_s
            rows.append(
                {
                    "who": who,
                    "records": records,
                    "cpu_s": round(child.cpu_s, 2),
                    "start_cpu_s": round(start.cpu_s, 2),
                    "wall_s": round(wall, 2),
                    "peak_rss_mib": child.peak_rss_mib,
                    "times": round(cost / rows[0]["own_cpu_s"], 1) if rows else 1.0,
                    "own_cpu_s": round(cost, 2),
                }
            )
    show(rows)


if __name__ == "__main__":
    main()
