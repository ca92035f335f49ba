"""A Spark for which the connectors of Delta and Iceberg exist: an older one than that of the product, beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.brokers.cache import cache_folder, cached
from tests.brokers.maven import BrokerUnavailableError, cached_jars, dependency, pom
from tests.spark.session import OLD_SETTINGS, said

PYSPARK = ("pyspark==4.0.1", "py4j==0.10.9.9")
# Scala is left out: Spark brings it.
_WITHOUT = "<exclusions><exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion></exclusions>"
POM = pom(
    "spark-tables",
    dependency("io.delta:delta-spark_2.13", "4.0.1", _WITHOUT)
    + dependency("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13", "1.11.0", _WITHOUT),
)
EXTENSIONS = (
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "io.delta.sql.DeltaSparkSessionExtension",
)
SCRIPT = """
import json, sys
import pyspark
from pyspark.sql import SparkSession

settings, form, place, columns, statements = map(json.loads, sys.argv[1:])
assert pyspark.__version__ == settings.pop("pyspark"), pyspark.__file__
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

def rows():
    return [list(row) for row in spark.read.format(form).load(place).selectExpr(*columns).collect()]

before = rows()
told = [[row.asDict(recursive=True) for row in spark.sql(each).collect()] for each in statements]
print("FOUND " + json.dumps([before, told, rows()], default=str))
"""


def run(
    form: str, place: str, columns: Sequence[str], statements: Sequence[str], **settings: str
) -> tuple[list[list[Any]], list[list[Any]], list[list[Any]]]:
    """Return the rows of a table by Spark's connector of a format, the results of SQL statements, and the rows then.

    ``columns`` are expressions of SQL. Raises BrokerUnavailableError where Spark or the connectors cannot be fetched.
    """
    jars = sorted(map(str, cached_jars("spark-tables-4.0", POM).glob("*.jar")))
    more = {
        "pyspark": PYSPARK[0].rpartition("=")[2],
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default 50 and 200 tasks look at a small table.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    given = (OLD_SETTINGS | more | settings, form, place, columns, statements)
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    before, told, after = said(env | {"PYTHONPATH": str(_pyspark())}, SCRIPT, *map(json.dumps, given))
    return before, told, after


def _pyspark() -> Path:
    """The folder with this version of PySpark, which is downloaded the first time."""

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *PYSPARK]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise BrokerUnavailableError(f"pip could not fetch {PYSPARK[0]}: {done.stderr.strip()[-300:]}")

    return cached(cache_folder("spark") / "pyspark-4.0", ("requirements.txt", "\n".join(PYSPARK)), install)
