"""A run loads what it needs and nothing else: who starts it waits for every module, and pays for its memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.daemon import Job
from tests.support.spark_scene import ROWS, SCENES, serve

pytestmark = pytest.mark.crash

RECORDS = 1000

# The command as it is, and at its end the names of all that was loaded.
PROGRAM = """
import json, sys
from fastwire_daemon.cli.app import main
try:
    main()
except SystemExit as ended:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
    raise
"""

# What a plain topic in the clear, landed in Parquet, has no use for.
NEEDLESS = {
    "aiohttp": "a client for issuers of tokens",
    "cryptography": "end-to-end encryption",
    "fastwire.pulsar.reading.encryption": "end-to-end encryption",
    "fastwire.pulsar.producing.producer": "writing",
    "fastwire.kafka.producing.producer": "writing",
    "fastwire_daemon.net.auth.oauth2": "issuers of tokens",
    "fastwire_daemon.net.auth.provider": "plug-ins that make tokens",
    "fastwire_daemon.devbroker": "a broker",
    "fastwire_daemon.systems.kafka.producer": "writing",
    "fastwire_daemon.systems.pulsar.client.client": "the client for people",
    "fastwire_daemon.systems.pulsar.client.consumer": "the client for people",
    "fastwire_daemon.systems.pulsar.client.deadletters": "the client for people",
    "fastwire_daemon.systems.pulsar.client.intake": "the client for people",
    "fastwire_daemon.systems.pulsar.producer": "writing",
    "fastwire_daemon.systems.tank.producer": "writing",
    "fastwire_daemon.spark": "jobs on Spark",
    "pandas": "converting columns",
    "pyarrow.compute": "folders by day or hour; 8 MiB, and as long as the rest of pyarrow",
    "pyarrow.dataset": "reading",
    "pyarrow.parquet": "another encoder of files",
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


# What only one system needs.
OWN = {
    "pulsar": {
        "fastwire.pulsar.protocol.connection",
        "fastwire_daemon.systems.pulsar.cluster",
        "fastwire_daemon.systems.pulsar.source.pulsarsource",
    },
    "kafka": {
        "fastwire.kafka.protocol.connection",
        "fastwire_daemon.systems.kafka.cluster",
        "fastwire_daemon.systems.kafka.source.kafkasource",
    },
    "tank": {
        "fastwire.tank.protocol.connection",
        "fastwire_daemon.systems.tank.cluster",
        "fastwire_daemon.systems.tank.source.tanksource",
    },
}


@pytest.mark.parametrize("system", list(OWN))
def test_a_plain_run_loads_nothing_that_it_has_no_use_for(system: str, tmp_path: Path) -> None:
    scene = SCENES[system]()
    with serve(scene, RECORDS // ROWS):
        source = {} if system == "pulsar" else {"subscription_type": None}
        if not scene.group_option:
            source["subscription"] = None
        modules = loaded(Job(scene.url, "t", tmp_path / "data", source=source).write(tmp_path))
    assert OWN[system] | {"fastwire.parquet.file"} <= modules
    found = {name: why for name, why in NEEDLESS.items() if name in modules}
    assert not found
    assert not [own & modules for other, own in OWN.items() if other != system and own & modules]
