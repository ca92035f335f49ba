"""Cells for a notebook (or ``python conf/spark_notebook.py``): what is landed, a trial of the job, the job, its table.

Needs the folder ``orders`` that the walk-through in docs/spark.md makes.
"""

# %% A session. One that is there already (a notebook server's, spark-submit's) is taken as it is.
from fastwire_daemon.config import load_config
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.logs import configure
from fastwire_daemon.spark.job.run import open_session, run_jobs
from fastwire_daemon.spark.job.trial import try_job

spark = open_session(master="local[2]")
spark.sparkContext.setLogLevel("ERROR")

# %% What the daemon has landed is a folder of Parquet like any other, each record once.
landed = spark.read.parquet("orders/landed")
landed.groupBy("topic", "partition").count().show(truncate=False)
landed.selectExpr("CAST(value AS STRING) AS value", "timestamp", "ledger", "offset", "batchIndex").show(
    3, truncate=False
)

# %% Some of it through the job, with nothing written.
config = load_config("conf/spark.toml")
trial = try_job(spark, "orders", config.spark["orders"], rows=10_000)
print(f"{trial.rows} rows tried, {trial.dead_letters} dead letters: {trial.reasons}")

# %% The job. With trigger = "available-now" it ends when everything landed is in the table.
configure()
run_jobs(spark, config)

# %% The table, by plain listing, and the dead letters.
table = spark.read.parquet("orders/table")
table.groupBy("date").agg({"amount": "sum", "order_id": "count"}).orderBy("date").show()
dead = spark.read.parquet("orders/dead-letters")
dead.selectExpr("reason", "CAST(value AS STRING) AS value", "ledger", "offset", "batchIndex").show(3, truncate=False)

# %% The proof: rows and batches against the log of the table.
report = verify("orders/table")
print("sound" if report.ok else report.problems, report.rows, "rows in", report.entries, "batches")
