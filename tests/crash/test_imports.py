"""A run loads what it needs and nothing else: who starts it waits for every module, and pays for its memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.load import Load, fill
from tests.real.daemon import Job

pytestmark = pytest.mark.crash

TOPIC = "persistent://public/default/imports"
RECORDS = 1000

# The command as it is, and at its end the names of all that was loaded.
PROGRAM = """
import json, sys
from fastwire_daemon.cli import main
try:
    main()
except SystemExit as ended:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
    raise
"""

# What a plain Pulsar topic in the clear, landed in Parquet, has no use for.
NEEDLESS = {
    "aiohttp": "a client for issuers of tokens",
    "cryptography": "end-to-end encryption",
    "fastwire.kafka.connection": "another system",
    "fastwire.pulsar.encryption": "end-to-end encryption",
    "fastwire.pulsar.producer": "writing",
    "fastwire_daemon.auth.oauth2": "issuers of tokens",
    "fastwire_daemon.devbroker": "a broker",
    "fastwire_daemon.kafka": "another system",
    "fastwire_daemon.pulsar.client": "the client for people",
    "fastwire_daemon.pulsar.consumer": "the client for people",
    "fastwire_daemon.pulsar.deadletters": "the client for people",
    "fastwire_daemon.pulsar.intake": "the client for people",
    "fastwire_daemon.pulsar.producer": "writing",
    "fastwire_daemon.spark": "jobs on Spark",
    "pandas": "converting columns",
    "pyarrow.compute": "folders by day or hour; 8 MiB, and as long as the rest of pyarrow",
    "pyarrow.dataset": "reading",
    "pyspark": "jobs on Spark",
    "rich": "terminals",
}


def loaded(config: Path) -> set[str]:
    """The modules of a run to the end of its topic."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", str(config), "--until-end"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    *log, modules = done.stderr.splitlines() or [""]
    assert done.returncode == 0, done.stderr
    assert any(f'"rows":{RECORDS}' in line.replace(" ", "") for line in log), done.stderr
    return set(json.loads(modules))


def test_a_plain_run_loads_nothing_that_it_has_no_use_for(tmp_path: Path) -> None:
    with running(PulsarDevBroker(PulsarOptions())) as broker:
        broker.create_topic(TOPIC, 4)
        fill(broker.append, TOPIC, Load(records=RECORDS, partitions=4), lambda: 1_700_000_000_000)
        modules = loaded(Job(broker.url, TOPIC, tmp_path / "data").write(tmp_path))
    assert {"fastwire_daemon.sources.pulsar.source", "pyarrow.parquet"} <= modules
    found = {name: why for name, why in NEEDLESS.items() if name in modules}
    assert not found
