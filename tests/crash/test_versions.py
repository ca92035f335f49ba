"""Datasets of older versions: each is verified, continued by this one, and one of a later format is refused in words.

``tests/golden/versions`` has datasets as the code of these days wrote them: 90 records from the embedded broker. That
of 2026-11-21 has no checksums, the files of that of 2026-11-26 are pyarrow's. A change of the format adds one.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from tests.real.daemon import Daemon, Job, verify
from tests.support.nursery import Nursery
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.crash

VERSIONS = ROOT / "tests" / "golden" / "versions"
NAMES = sorted(path.name for path in VERSIONS.iterdir())
TOPIC = "persistent://public/default/orders"
SINK = {"partition_by": "day", "columns": ["value", "topic", "ledger", "offset"]}


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(VERSIONS / name, folder / "data"))


def values(path: Path) -> list[int]:
    table = ds.dataset(path, exclude_invalid_files=True).to_table(columns=["value"])
    return sorted(int(value) for value in table.column(0).to_pylist())


def content(path: Path) -> dict[Path, bytes]:
    """All files but those of open rolls."""
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and "staging" not in each.parts}


def test_there_are_some() -> None:
    assert NAMES[0] == "2026-11-21" and len(NAMES) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_an_older_dataset_is_sound_and_goes_on(name: str, tmp_path: Path, nursery: Nursery) -> None:
    path = copy_of(name, tmp_path)
    assert verify(path, "--deep").returncode == 0
    assert values(path) == list(range(90))
    with running(PulsarDevBroker(PulsarOptions(ledger_entries=2))) as broker:
        broker.create_topic(TOPIC, 0)
        for first in range(0, 180, 30):  # the first three entries are those of the dataset
            broker.produce(TOPIC, [f"{first + n}".encode() for n in range(30)])
        job = Job(broker.url, TOPIC, path, "golden", source={"cluster": "golden"}, sink=SINK)
        with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "log", nursery=nursery) as daemon:
            daemon.wait_done()
    assert values(path) == list(range(180))
    said = verify(path, "--deep")
    assert said.returncode == 0, said.stdout


LATER = {
    "the dataset": ("_fastwire/dataset.json", "the dataset at {path} has format 2; this version of fastwire knows 1"),
    "a log entry": (
        "_fastwire/log/000000000/000000000002.json",
        "000000000002.json has format 2, because a later version of fastwire",
    ),
}


@pytest.mark.parametrize("what", LATER)
def test_a_dataset_of_a_later_format_is_refused(what: str, tmp_path: Path, nursery: Nursery) -> None:
    """In a sentence and with 78, so that no supervisor starts it again and again; nothing is written."""
    path = copy_of(NAMES[-1], tmp_path)
    file, said = LATER[what]
    text = (path / file).read_text()
    later = text.replace('"format":1', '"format":2').replace('"format": 1', '"format": 2')
    assert later != text
    (path / file).write_text(later)
    before = content(path)
    with running(PulsarDevBroker(PulsarOptions())) as broker:
        broker.create_topic(TOPIC, 0)
        job = Job(broker.url, TOPIC, path, "golden", source={"cluster": "golden"}, sink=SINK)
        config = replace(job, roll={}).write(tmp_path)
        with Daemon("run", str(config), "--until-end", log=tmp_path / "log", nursery=nursery) as daemon:
            assert daemon.wait() == 78, daemon.tail()
            assert said.format(path=path) in daemon.output
    assert content(path) == before
    report = verify(path)
    assert report.returncode == 1 and "this version of fastwire knows 1" in report.stdout
