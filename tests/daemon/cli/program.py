"""The program as a process of its own, and a configuration that it takes."""

import sys
from collections.abc import Callable

GOOD = """\
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["orders", "refunds"]
subscription = "fastwire-orders"
start = "earliest"
[pipelines.orders.sink]
type = "parquet"
path = "{path}"

[pipelines.look.source]
url = "pulsar+ssl://127.0.0.1"
topics = ["events"]
subscription = "fastwire-look"
start = "latest"
auth = {{ token_file = "{token}" }}
[pipelines.look.sink]
type = "stdout"
"""

# What the fixture ``run`` is: arguments in; exit code, stdout and stderr out.
Run = Callable[..., tuple[int, str, str]]

PROGRAM = (sys.executable, "-c", "from fastwire_daemon.cli.app import main; main()")
