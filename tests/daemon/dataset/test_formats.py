"""Each durable format: an older version finds in what this one writes all that it has written itself.

``tests/golden/formats`` has a document of each kind, as this code wrote it on 2026-11-27. A key that is
renamed, dropped or of another meaning needs another format number, which older versions refuse in a sentence.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.dataset.commitlog.entry import LogEntry
from fastwire_daemon.dataset.description import read_description
from fastwire_daemon.pipeline.topicledger import Positions

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"


def positions(value: bytes) -> bytes:
    """The description of a pipeline into a topic, which is an entry of the topic of the positions."""
    held = Positions("kafka/mirror/copy")
    key, _ = held.described()
    held.read({key: value})
    return held.described()[1]


AGAIN: Mapping[str, Callable[[bytes], bytes]] = {
    "dataset": lambda data: read_description(data, "x").encode(),
    "entry": lambda data: LogEntry.decode(data, "x").encode(),
    "checkpoint": lambda data: Checkpoint.decode(data, 1).encode(),
    "positions": positions,
}
LATER = {
    "dataset": "has format 2; this version of fastwire knows 1",
    "entry": "x has format 2, because a later version of fastwire writes this dataset",
    "checkpoint": "format 2",  # no user sees it: an earlier checkpoint is taken, or the log is read from its beginning
    "positions": "it has format 2, and this version of fastwire knows 1. If a later version",
}


def test_each_kind_has_a_document() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(AGAIN) == set(LATER)


@pytest.mark.parametrize("kind", AGAIN)
def test_it_is_read_and_written_with_all_that_it_had(kind: str) -> None:
    data = (GOLDEN / f"{kind}.json").read_bytes()
    before: dict[str, Any] = json.loads(data)
    after: dict[str, Any] = json.loads(AGAIN[kind](data))
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("kind", AGAIN)
def test_a_key_of_a_later_version_is_ignored(kind: str) -> None:
    value = json.loads((GOLDEN / f"{kind}.json").read_bytes())
    AGAIN[kind](json.dumps({**value, "of_a_later_version": {"a": [1]}}).encode())


@pytest.mark.parametrize("kind", AGAIN)
def test_a_later_format_is_refused_in_words(kind: str) -> None:
    value = json.loads((GOLDEN / f"{kind}.json").read_bytes())
    with pytest.raises(Exception, match=LATER[kind]):
        AGAIN[kind](json.dumps({**value, "format": 2}).encode())
