"""Memory stays within the budget and 128 MiB, whatever comes and however slow the sink is.

What is counted is resident memory without the mapped pages of libraries: how many of those are resident is the page
cache's business (twice as many after a fresh installation), and the kernel shares them and takes them back.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire.pulsar.payload import Compression, Record, encode_batch_entry
from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.load import Load, fill
from tests.real.daemon import Daemon, Job, verify

pytestmark = pytest.mark.crash

TOPIC = "persistent://public/default/memory"
BUDGET_MIB = 64
ROOM_MIB = 96  # interpreter, packages, encoders; with mapped library pages the promise is 128


def own_memory_mib(pid: int) -> float:
    """Resident memory of the process that is backed by no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


def run_and_watch(config: Path, log: Path, script: dict[str, object] | None = None) -> float:
    peak = 0.0
    with Daemon("run", str(config), "--until-end", log=log, script=script) as daemon:
        while daemon.process.poll() is None:
            try:
                peak = max(peak, own_memory_mib(daemon.process.pid))
            except (FileNotFoundError, AssertionError, ProcessLookupError):
                break  # it has just ended
            time.sleep(0.005)
        daemon.wait_done()
    return peak


def small_records(broker: PulsarDevBroker) -> int:
    load = Load(records=600_000, partitions=4, compression=Compression.LZ4)
    broker.create_topic(TOPIC, 4)
    fill(broker.append, TOPIC, load, lambda: 1_700_000_000_000)
    return load.records


def large_records(broker: PulsarDevBroker) -> int:
    """As large as a broker lets through, compressed and not."""
    broker.create_topic(TOPIC, 0)
    for number in range(40):
        codec = Compression.LZ4 if number % 2 else Compression.NONE
        value = (b"%08d" % number) * (600 << 10)
        entry = encode_batch_entry(
            [Record(value=value)], producer_name="p", sequence_id=number, publish_time=1, compression=codec
        )
        broker.append(TOPIC, [entry])
    return 40


@pytest.mark.parametrize("produce", [small_records, large_records])
@pytest.mark.parametrize("slow", [False, True])
def test_memory_stays_within_the_budget(produce: Callable[[PulsarDevBroker], int], slow: bool, tmp_path: Path) -> None:
    with running(PulsarDevBroker(PulsarOptions(read_ahead=100, max_message_size=5 << 20))) as broker:
        rows = produce(broker)
        job = Job(
            broker.url,
            TOPIC,
            tmp_path / "data",
            daemon={"memory": f"{BUDGET_MIB}MiB"},
            roll={"rows": max(2, rows // 4), "idle": "1s"},
        )
        # The second commit stands still while the broker has more to give.
        script: dict[str, object] | None = {"at": "files-finished", "nth": 2, "do": "sleep", "seconds": 3}
        peak = run_and_watch(job.write(tmp_path), tmp_path / "log", script if slow else None)
    said = verify(tmp_path / "data")
    assert said.returncode == 0, said.stdout
    assert f"{rows:,} rows" in said.stdout
    # One payload may stand beside the budget: it is read whole before anything can be done about it.
    assert peak < BUDGET_MIB + ROOM_MIB + (5 if produce is large_records else 0), f"{peak:.0f} MiB"
